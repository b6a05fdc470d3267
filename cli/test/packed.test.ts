// The package as npm packs it, in a folder of its own: it brings all that it needs.
import { execFile } from "node:child_process"
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, expect, it } from "vitest"
import { root } from "../../server/test/e2e/program.ts"
import { nodeFirst } from "../../server/test/packages.ts"
import { commandTable } from "../src/commands.ts"

const exec = promisify(execFile)

let folder: string
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "sluice-cli-"))
  await exec("npm", ["pack", "--pack-destination", folder], { cwd: join(root, "cli"), env: nodeFirst() })
  const archive = join(folder, readdirSync(folder).find(name => name.endsWith(".tgz")) ?? "none")
  writeFileSync(join(folder, "package.json"), "{}")
  // With nothing but the archive: it must not need a registry.
  await exec("npm", ["install", "--offline", "--no-audit", "--no-fund", archive], { cwd: folder, env: nodeFirst() })
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const run = async (...args: string[]) =>
  await exec(join(folder, "node_modules/.bin/sluice"), args, {
    cwd: folder,
    env: { ...nodeFirst(), HOME: folder, SLUICE_URL: "http://127.0.0.1:9", SLUICE_API_KEY: "sk_none" },
  }).then(
    ({ stdout }) => ({ code: 0, out: stdout, errors: "" }),
    ({ code, stdout, stderr }) => ({ code, out: stdout, errors: stderr }),
  )

it("has every command", async () => {
  const { code, out } = await run("--help")
  expect(code).toBe(0)
  for (const name of Object.keys(commandTable())) expect(out).toMatch(new RegExp(`^  ${name}\\b`, "m"))
})

it("loads what a command needs, and fails with its exit code", async () => {
  expect(await run("checkouts", "list", "--json")).toMatchObject({ code: 4, out: "" })
  expect(await run("mcp")).toMatchObject({ code: 4, out: "" })
  expect(await run("mcp", "--buyer")).toMatchObject({ code: 2, out: "" })
  expect(await run("listen", "--print")).toMatchObject({ code: 4, out: "" })
  expect(await run("completion", "bash")).toMatchObject({ code: 0, out: expect.stringContaining("complete -F") })
})

it("installs one package, with the licenses of all that is in it", () => {
  expect(readdirSync(join(folder, "node_modules")).filter(name => !name.startsWith("."))).toEqual(["@sluice"])
  const terms = readFileSync(join(folder, "node_modules/@sluice/cli/dist/THIRD_PARTY_LICENSES.txt"), "utf8")
  for (const name of ["commander", "viem", "zod", "@modelcontextprotocol/server"])
    expect(terms).toMatch(new RegExp(`^${name} \\d`, "m"))
})
