// Every example of the README, as it is written, against the real service.
import { execFile } from "node:child_process"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, expect, it } from "vitest"
import { startService, type TestService } from "../../server/test/service.ts"
import { environmentOf, examples, written } from "./examples.ts"

const source = new URL("../src/index.ts", import.meta.url).pathname

let service: TestService
let folder: string
let env: Record<string, string>
beforeAll(async () => {
  service = await startService()
  env = await environmentOf(service)
  // Inside the package, so that Node finds its type.
  folder = mkdtempSync(join(import.meta.dirname, "readme-"))
})
afterAll(async () => {
  await service?.stop()
  rmSync(folder, { recursive: true, force: true })
})

it("has no example that is not run", () => {
  expect(written).toHaveLength(examples.length)
})

it.each(examples)("$name", async ({ name, code, prints, meanwhile }) => {
  const file = join(folder, `${name.replaceAll(/\W/g, "-")}.ts`)
  writeFileSync(file, code.replace(/from "@sluice\/sdk"/, `from ${JSON.stringify(source)}`))
  const run = promisify(execFile)(process.execPath, [file], { env: { ...process.env, ...env } })
  await meanwhile?.(service)
  expect((await run).stdout).toMatch(prints)
})
