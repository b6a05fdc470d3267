/**
 * Every example of the API reference: its shell and its TypeScript are checked, and each curl is run against a sandbox with a merchant's
 * week in it. Most ids of the examples are made up, so many answers are refusals; none may say that the request itself is wrong.
 */
import { execFile, execFileSync } from "node:child_process"
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { newSandbox, type Sandbox } from "../server/test/e2e/program.ts"
import { type ConsoleWorld, fillConsole, makeMonthly } from "../web/test/console-world.ts"
import { referencePages } from "./reference.ts"

const root = join(import.meta.dirname, "..")
const document = JSON.parse(readFileSync(join(root, "docs/openapi.json"), "utf8"))

/** The examples of a language, each with the operation's method, path and name. */
const examplesIn = (language: string) =>
  referencePages(document)
    .flatMap(({ text }) => text.split(/^## /m).slice(1))
    .flatMap(section => {
      const [, method = "", path = "", name = ""] = /^`([A-Z]+) (\S+)` \(`(\w+)`\)/m.exec(section) ?? []
      const blocks = section.matchAll(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\`$`, "gm"))
      return [...blocks].map(([, code = ""]) => ({ method, path, name, code }))
    })

it("are TypeScript that the SDK's types accept", () => {
  const examples = examplesIn("ts")
  const folder = mkdtempSync(join(root, "sdk/.reference-"))
  try {
    // As one says an id in TypeScript: its own, and any text.
    const names = new Set(examples.flatMap(({ path }) => [...path.matchAll(/\{(\w+)\}/g)].map(([, name = ""]) => name)))
    const given = [...names].map(name => `declare const ${name}: string`)
    const blocks = examples.map(
      ({ name, code }) => `export async function ${name}Example() {\n${code}\nreturn answer\n}`,
    )
    const head = [`import type { Sluice } from "../src/index.ts"`, "declare const sluice: Sluice", ...given]
    writeFileSync(join(folder, "examples.ts"), [...head, ...blocks].join("\n"))
    writeFileSync(
      join(folder, "tsconfig.json"),
      JSON.stringify({ extends: "../tsconfig.json", include: ["examples.ts"], compilerOptions: { noEmit: true } }),
    )
    const tsc = join(root, "node_modules/.bin/tsc")
    const run = () => execFileSync(tsc, ["-p", folder, "--checkers", "1"], { encoding: "utf8", stdio: "pipe" })
    expect(examples.length).toBeGreaterThan(100)
    let faults = ""
    try {
      run()
    } catch (error) {
      faults = (error as { stdout: string }).stdout
    }
    expect(faults).toBe("")
  } finally {
    rmSync(folder, { recursive: true })
  }
})

describe("run in a sandbox", () => {
  let sandbox: Sandbox
  let world: ConsoleWorld & { product: string }
  beforeAll(async () => {
    sandbox = await newSandbox({ LIMIT_CONSOLE: "0", LIMIT_PUBLIC: "0", LIMIT_AUTH: "0" }, "migrated")
    await sandbox.start()
    const product = await makeMonthly(sandbox)
    world = { ...(await fillConsole(sandbox)), product }
  })
  afterAll(() => sandbox.remove())

  it("say nothing that the API can't read, and most of what reads or creates succeeds", async () => {
    const { accessToken, apiKey } = sandbox.file().merchants[0]
    const as = { authorization: `Bearer ${accessToken}` }
    const first = async (path: string) => (await sandbox.call(path, undefined, as)).body.data[0]?.id
    const ids: [RegExp, string][] = [
      [/paywalls\//, world.paywall],
      [/^\/api\/(console\/)?checkouts\/|pay\/status/, world.paid.id],
      [/console\/payment-links\//, world.link],
      [/console\/products\//, world.product],
      [/console\/webhooks\//, world.webhook],
      [/console\/deliveries\//, world.failed],
      [/console\/payouts\//, world.payout],
      [/console\/payments\//, world.waiting],
      [/console\/timeline\//, world.paid.id],
      [/agent\/payments\//, `set_${"0".repeat(24)}`],
      [/console\/events\//, await first("/api/console/events")],
    ]
    // What ends something comes last.
    const order = ["GET", "POST", "PUT", "DELETE"]
    // Who owns two merchants has to name one.
    const isLast = ({ name }: { name: string }) => (name === "createMerchant" ? 1 : 0)
    const examples = examplesIn("sh").sort(
      (a, b) => isLast(a) - isLast(b) || order.indexOf(a.method) - order.indexOf(b.method),
    )
    const home = join(sandbox.dir, "curl")
    mkdirSync(home)
    // After each answer its status, in a line that no answer has.
    writeFileSync(join(home, ".curlrc"), 'silent\nmax-time = 30\nwrite-out = "\\n%{http_code}"\n')
    const env = {
      PATH: process.env.PATH ?? "",
      CURL_HOME: home,
      SLUICE_URL: sandbox.url,
      SLUICE_API_KEY: apiKey,
      TOKEN: accessToken,
      WALLET_TOKEN: "none",
      METRICS_TOKEN: "none",
      PAYER: sandbox.file().buyers[0].address,
      ADDRESS: world.paid.payTo,
      FROM: sandbox.file().buyers[0].address,
    }
    const answers: { name: string; status: number; error?: string; message?: string }[] = []
    for (const { name, path, code } of examples) {
      const ID = ids.find(([pattern]) => pattern.test(path))?.[1] ?? "none-1"
      const { stdout } = await promisify(execFile)("bash", ["-euc", code], {
        env: {
          SLUG: "none-1",
          NONCE: `0x${"1".repeat(64)}`,
          ROOT: `0x${"1".repeat(64)}`,
          TX_HASH: `0x${"1".repeat(64)}`,
          GRANT_ID: "none-1",
          ...env,
          ID,
        },
      })
      const at = stdout.lastIndexOf("\n")
      const status = Number(stdout.slice(at + 1))
      const { error, message } =
        status < 400 ? {} : (JSON.parse(stdout.slice(0, at)) as { error?: string; message?: string })
      answers.push({ name, status, ...(error ? { error, message } : {}) })
    }
    if (process.env.SHOW) process.stdout.write(`${answers.map(each => JSON.stringify(each)).join("\n")}\n`)
    const wrong = answers.filter(
      ({ status, error = "" }) =>
        status >= 500 || ["VALIDATION_ERROR", "ROUTE_NOT_FOUND", "UNSUPPORTED_MEDIA_TYPE"].includes(error),
    )
    expect(wrong).toEqual([])
    expect(answers.filter(({ status }) => status < 300).length).toBeGreaterThan(answers.length / 2)
  })
})
