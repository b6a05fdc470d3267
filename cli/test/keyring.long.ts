// The keyring of the system: a real one (gnome-keyring, on a bus of its own) where the machine has it, and a machine without one.
import { spawn } from "node:child_process"
import { once } from "node:events"
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll, expect, it } from "vitest"
import { programFile } from "./program.ts"

const KEY = "sk_live_keyring0123456789"
/** `script/test cli --long` installs its programs: where one is missing, the tests fail. */
const hasKeyring = process.platform === "linux"

/** The two routes of the sign-in, and one that a key opens. */
const service = createServer((request, response) => {
  request.resume()
  const { url = "", headers } = request
  const body = url.startsWith("/api/device/token")
    ? { key: KEY, name: "CLI", merchantId: "mer_1", scopes: ["read"], expiresAt: "2027-01-01T00:00:00.000Z" }
    : url.startsWith("/api/device")
      ? { device_code: "d", user_code: "BCDFGHJK", verification_uri: "http://x", expires_in: 60, interval: 0 }
      : { key: headers["x-api-key"] ?? headers.authorization ?? null }
  response.setHeader("content-type", "application/json").end(JSON.stringify(body))
})
let dir: string
let env: Record<string, string>
beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), "sluice-keyring-"))
  await new Promise<void>(resolve => service.listen(0, "127.0.0.1", resolve))
  const { PATH = "" } = process.env
  const url = `http://127.0.0.1:${(service.address() as AddressInfo).port}`
  env = { PATH, HOME: dir, XDG_DATA_HOME: join(dir, "data"), XDG_RUNTIME_DIR: dir, SLUICE_URL: url }
})
afterAll(() => {
  service.close()
  rmSync(dir, { recursive: true, force: true })
})

/** Runs a script of a shell, in which `sluice` is the program; returns what it printed. */
async function shell(script: string, more: Record<string, string> = {}, inSession = false): Promise<string> {
  const text = `sluice() { "${process.execPath}" "${await programFile()}" "$@"; }\n${script}`
  const [program = "", ...args] = [...(inSession ? ["dbus-run-session", "--"] : []), "bash", "-c", text]
  const child = spawn(program, args, { env: { ...env, ...more }, stdio: ["ignore", "pipe", "pipe"] })
  let out = ""
  for (const stream of [child.stdout, child.stderr]) stream.on("data", chunk => (out += chunk))
  await once(child, "close")
  return out
}
const profile = (file: string) => JSON.parse(readFileSync(file, "utf8")).default

it.skipIf(!hasKeyring)("has the key, and the file does not", async () => {
  const file = join(dir, "keyring.json")
  const out = await shell(
    `printf secret | gnome-keyring-daemon --unlock --components=secrets >/dev/null
    sluice login --json | tail -n 1
    sluice api GET /api/checkouts --json
    cp "$SLUICE_CONFIG" "$SLUICE_CONFIG.first"
    sluice login --json >/dev/null
    echo "again: $(secret-tool search --all service sluice 2>&1 | grep -c '^secret = ')"
    sluice api GET /api/checkouts --json
    SLUICE_KEYRING=off sluice api GET /api/checkouts
    echo "code: $?"
    sluice logout --json
    echo "left: $(secret-tool search --all service sluice 2>&1 | grep -c '^secret = ')"`,
    { SLUICE_CONFIG: file },
    true,
  )
  expect(out).toContain('"keyIn":"keyring"')
  expect(out.split(`{"key":"${KEY}"}`)).toHaveLength(3)
  expect(out).toMatch(/again: 1\n/)
  expect(out).toMatch(/does not give the key.*\n(.*\n)*code: 3\n/)
  expect(out).toMatch(/left: 0\n/)
  const first = profile(`${file}.first`)
  expect(first).toMatchObject({ name: "CLI", keyring: expect.stringMatching(/^[0-9a-f-]{36}$/) })
  expect(JSON.stringify(first)).not.toContain(KEY)
  expect(readFileSync(file, "utf8")).toBe("{}\n")
})

it.skipIf(!hasKeyring)("has a buyer's key, and nobody reads it without the keyring", async () => {
  const wallet = "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"
  const mcp = "sluice mcp --buyer --max-per-call 1 --max-per-day 2 --allow-host a --keyring"
  const out = await shell(
    `printf secret | gnome-keyring-daemon --unlock --components=secrets >/dev/null
    printf ${wallet} | secret-tool store --label=buyer service sluice account buyer
    printf no-key | secret-tool store --label=other service sluice account other
    for account in buyer other none; do ${mcp} $account </dev/null; echo "$account: $?"; done
    SLUICE_KEYRING=off ${mcp} buyer </dev/null; echo "off: $?"`,
    {},
    true,
  )
  for (const ended of ["buyer: 0", "other: 3", "none: 3", "off: 3"]) expect(out).toContain(`${ended}\n`)
  expect(out).not.toContain(wallet.slice(0, 20))
})

it.runIf(process.platform === "linux")("is left in no keyring that took it and does not give it back", async () => {
  const [bin, kept, file] = ["bin", "kept", "locked.json"].map(name => join(dir, name)) as [string, string, string]
  for (const folder of [bin, kept]) mkdirSync(folder)
  const secretTool = `#!/bin/sh
for last; do :; done
case $1 in store) cat >"${kept}/$last";; clear) rm "${kept}/$last";; *) exit 1;; esac`
  writeFileSync(join(bin, "secret-tool"), secretTool, { mode: 0o700 })
  const out = await shell("sluice login --json | tail -n 1", { SLUICE_CONFIG: file, PATH: `${bin}:${env.PATH}` })
  expect(out).toContain('"keyIn":"file"')
  expect(profile(file)).toMatchObject({ apiKey: KEY })
  expect(readdirSync(kept)).toEqual([])
})

it.each([
  ["no keyring answers", {}],
  ["it is turned off", { SLUICE_KEYRING: "off" }],
])("has no key where %s: the file has it", async (name, more) => {
  const file = join(dir, `${name}.json`)
  const out = await shell(`sluice login --json | tail -n 1\nsluice api GET /api/checkouts --json`, {
    SLUICE_CONFIG: file,
    DBUS_SESSION_BUS_ADDRESS: "unix:path=/dev/null",
    ...more,
  })
  expect(out).toContain('"keyIn":"file"')
  expect(out).toContain(`{"key":"${KEY}"}`)
  expect(profile(file)).toMatchObject({ apiKey: KEY })
})
