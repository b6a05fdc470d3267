// The package as npm packs it, in a clean folder: the README's examples on each runtime, its types, and its size.
import { execFile } from "node:child_process"
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { createRequire } from "node:module"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { brotliCompressSync } from "node:zlib"
import { rolldown } from "rolldown"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { root } from "../../server/test/e2e/program.ts"
import { installPackages, nodeFirst } from "../../server/test/packages.ts"
import { startService, type TestService } from "../../server/test/service.ts"
import { type Example, environmentOf, examples } from "../test/examples.ts"

const exec = promisify(execFile)

let service: TestService
let env: Record<string, string>
/** Where the archive is installed, and nothing else. */
let folder: string
let archive: string
let packages: string
beforeAll(async () => {
  const sdk = await installPackages("sdk")
  packages = join(await installPackages("sdk/acceptance"), "node_modules")
  folder = mkdtempSync(join(tmpdir(), "sluice-packed-"))
  await exec("npm", ["pack", "--pack-destination", folder], { cwd: sdk, env: nodeFirst() })
  archive = join(folder, readdirSync(folder).find(name => name.endsWith(".tgz")) ?? "none")
  writeFileSync(join(folder, "package.json"), '{ "type": "module" }')
  await exec("npm", ["install", "--no-audit", "--no-fund", "--omit=peer", archive], { cwd: folder, env: nodeFirst() })
  service = await startService()
  env = await environmentOf(service)
})
afterAll(async () => {
  await service?.stop()
  rmSync(folder, { recursive: true, force: true })
})

/** By runtime: the program and its arguments before the file's name. */
const runtimes: Record<string, () => string[]> = {
  "Node 20": () => [join(packages, "node20/bin/node")],
  "Node 22": () => [join(packages, "node22/bin/node")],
  "Node 26": () => [process.execPath],
  Bun: () => [join(packages, "bun/bin/bun.exe")],
  Deno: () => [join(packages, "deno/deno"), "run", "--allow-net", "--allow-env", "--allow-read"],
}

const nameOf = ({ name }: Example) => name.replaceAll(/\W/g, "-")

describe.each(Object.keys(runtimes))("on %s", runtime => {
  it.each(examples)("$name", async example => {
    const file = join(folder, `${nameOf(example)}.mjs`)
    writeFileSync(file, example.code)
    const [program = "", ...args] = runtimes[runtime]?.() ?? []
    const options = { cwd: folder, env: { PATH: process.env.PATH ?? "", HOME: folder, NO_COLOR: "1", ...env } }
    const run = exec(program, [...args, file], options)
    await example.meanwhile?.(service)
    expect((await run).stdout).toMatch(example.prints)
  })

  it("is the version that it says", async () => {
    const [program = ""] = runtimes[runtime]?.() ?? []
    const { stdout } = await exec(program, ["--version"])
    expect(stdout).toMatch(
      { "Node 20": /^v20\./, "Node 22": /^v22\./, "Node 26": /^v26\./ }[runtime] ?? /^(deno 2|1)\./,
    )
  })
})

describe("on workerd", () => {
  /** A worker may ask nothing before its first request, so the example runs inside of one. */
  const workerOf = (code: string): string => {
    const lines = code.split("\n")
    const isOutside = (line: string) => line.startsWith("import ")
    return `${lines.filter(isOutside).join("\n")}
const shown = value => typeof value === "bigint" ? value + "n" : typeof value === "object" ? JSON.stringify(value) : String(value)
export default { async fetch() {
  let printed = ""
  const console = { log: (...values) => { printed += values.map(shown).join(" ") + "\\n" } }
  ${lines
    .filter(line => !isOutside(line))
    .join("\n")
    .replace("export async function", "async function")}
  return new Response(printed)
} }`
  }

  it.each(examples)("$name", async example => {
    const input = join(folder, `worker-${nameOf(example)}.mjs`)
    writeFileSync(input, workerOf(example.code))
    const bundle = await rolldown({ input, platform: "neutral" })
    const { output } = await bundle.generate({ format: "esm", codeSplitting: false })
    const { Miniflare } = createRequire(join(packages, "x.js"))("miniflare")
    const worker = new Miniflare({
      modules: [{ type: "ESModule", path: "worker.mjs", contents: output[0].code }],
      bindings: env,
      compatibilityDate: "2026-07-01",
      compatibilityFlags: ["nodejs_compat", "nodejs_compat_populate_process_env"],
    })
    try {
      const run = worker.dispatchFetch("http://worker.example/").then((response: Response) => response.text())
      await example.meanwhile?.(service)
      expect(await run).toMatch(example.prints)
    } finally {
      await worker.dispose()
    }
  })
})

describe("the archive", () => {
  it("is clean for publint and attw", async () => {
    const publint = await exec(process.execPath, [join(packages, "publint/src/cli.js"), "run", archive, "--strict"])
    expect(publint.stdout).toContain("All good!")
    const attw = join(packages, "@arethetypeswrong/cli/dist/index.js")
    await exec(process.execPath, [attw, archive, "--profile", "esm-only"], { env: { ...process.env, NO_COLOR: "1" } })
  })

  it("has types that a strict program reads", async () => {
    const file = join(folder, "shop.ts")
    writeFileSync(
      file,
      `import { Sluice, SluiceError, type SluiceEvent, webhooks } from "@sluice/sdk"
const sluice = new Sluice({ baseUrl: "https://pay.example", apiKey: "k" })
export const pay = async (): Promise<string> => (await sluice.checkouts.create({ amount: "1" })).url
export const amountOf = (event: SluiceEvent) => event.type === "checkout.session.completed" ? event.data.amount : undefined
export const all = async () => { for await (const { id } of sluice.checkouts.list()) console.log(id.toUpperCase()) }
export const codeOf = (error: unknown) => error instanceof SluiceError && error.code === "NOT_FOUND"
// @ts-expect-error: a parsed body.
export const wrong = () => webhooks.verify({}, {}, "s")
// @ts-expect-error: an amount of another kind.
export const bad = () => sluice.checkouts.create({ amount: true })
`,
    )
    const tsc = join(root, "sdk/node_modules/typescript/bin/tsc")
    const flags = ["--noEmit", "--strict", "--target", "es2022", "--lib", "es2023,dom,dom.iterable"]
    for (const module of [
      ["nodenext", "nodenext"],
      ["esnext", "bundler"],
    ] as const)
      await exec(process.execPath, [tsc, ...flags, "--module", module[0], "--moduleResolution", module[1], file], {
        cwd: folder,
      })
  })

  it.each([
    ["@sluice/sdk", 12],
    ["@sluice/sdk/webhooks", 3],
    ["@sluice/sdk/money", 1],
  ])("%s is at most %i KB", async (name, most) => {
    const input = join(folder, "whole.mjs")
    writeFileSync(input, `export * from "${name}"`)
    const bundle = await rolldown({ input, platform: "neutral" })
    const { output } = await bundle.generate({ format: "esm", minify: true, codeSplitting: false })
    expect(output[0].imports).toEqual([])
    expect(brotliCompressSync(output[0].code).length).toBeLessThanOrEqual(most * 1_024)
  })

  it("has nothing but what it is for", () => {
    const top = readdirSync(join(folder, "node_modules/@sluice/sdk"))
    expect(top.sort()).toEqual(["LICENSE", "README.md", "dist", "package.json"])
    const { dependencies } = JSON.parse(readFileSync(join(folder, "node_modules/@sluice/sdk/package.json"), "utf8"))
    expect(dependencies).toBeUndefined()
    expect(readdirSync(join(folder, "node_modules"))).toEqual([".package-lock.json", "@sluice"])
  })
})
