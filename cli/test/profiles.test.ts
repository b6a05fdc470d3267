// Which service and which key a command uses, without a process.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, expect, it, vi } from "vitest"
import { credentialOf } from "../src/profiles.ts"

const SANDBOX = "http://127.0.0.1:4321"
let dir: string
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "sluice-profiles-"))
  writeFileSync(join(dir, "sandbox.json"), JSON.stringify({ baseUrl: SANDBOX, merchants: [{ apiKey: "sk_1" }] }))
  for (const name of ["SLUICE_API_KEY", "SLUICE_URL"]) vi.stubEnv(name, undefined)
  for (const name of ["HOME", "XDG_CONFIG_HOME", "DATA_DIR"]) vi.stubEnv(name, dir)
})
afterEach(() => {
  vi.unstubAllEnvs()
  rmSync(dir, { recursive: true })
})

it("is the sandbox of the data folder with its key, whatever its port", () => {
  expect(credentialOf({})).toEqual({ baseUrl: SANDBOX, apiKey: "sk_1" })
  expect(credentialOf({ url: `${SANDBOX}/` })).toEqual({ baseUrl: SANDBOX, apiKey: "sk_1" })
})

it("is no key for another address than the sandbox's", () => {
  expect(credentialOf({ url: "https://pay.example.com" })).toEqual({
    baseUrl: "https://pay.example.com",
    apiKey: undefined,
  })
  vi.stubEnv("SLUICE_URL", "http://127.0.0.1:4000")
  expect(credentialOf({})).toEqual({ baseUrl: "http://127.0.0.1:4000", apiKey: undefined })
})
