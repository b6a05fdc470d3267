// The package as npm packs it, in a folder of its own: it brings all that it needs.
import { execFile } from "node:child_process"
import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, expect, it } from "vitest"
import { root } from "../server/test/e2e/program.ts"
import { nodeFirst } from "../server/test/packages.ts"

const exec = promisify(execFile)
/** What the issue allows for the program. */
const MAX_BYTES = 60_000

let folder: string
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "sluice-verify-"))
  await exec("npm", ["pack", "--pack-destination", folder], { cwd: join(root, "verify"), env: nodeFirst() })
  const archive = join(folder, readdirSync(folder).find(name => name.endsWith(".tgz")) ?? "none")
  writeFileSync(join(folder, "package.json"), "{}")
  await exec("npm", ["install", "--offline", "--no-audit", "--no-fund", archive], { cwd: folder, env: nodeFirst() })
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const run = async (...args: string[]) =>
  await exec(join(folder, "node_modules/.bin/sluice-verify"), args, { cwd: folder, env: nodeFirst() }).then(
    ({ stdout }) => ({ code: 0, text: stdout }),
    ({ code, stdout, stderr }) => ({ code, text: `${stdout}${stderr}` }),
  )

it("is one small package without dependencies", () => {
  expect(readdirSync(join(folder, "node_modules")).filter(name => !name.startsWith("."))).toEqual(["@sluice"])
  const files = join(folder, "node_modules/@sluice/verify")
  expect(readdirSync(files).sort()).toEqual(["LICENSE", "README.md", "dist", "package.json"])
  expect(statSync(join(files, "dist/cli.js")).size).toBeLessThan(MAX_BYTES)
})

it("says how it is used, and fails for what is no receipt", async () => {
  expect((await run("--help")).text).toContain("--rpc")
  writeFileSync(join(folder, "other.json"), "{}")
  expect((await run("other.json")).code).toBe(1)
})
