// The socket of the admin server: only for its owner, taken over from a dead process, left to a running one, short
// where paths are long.
import { spawn } from "node:child_process"
import { once } from "node:events"
import { chmodSync, existsSync, mkdtempSync, readdirSync, rmSync, statSync } from "node:fs"
import { request } from "node:http"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { afterEach, beforeEach, expect, it } from "vitest"
import type { Context } from "../../platform/context.ts"
import { openLog } from "../../platform/log.ts"
import { openAdmin } from "./open-admin.ts"
import { serveOnSocket, socketPath } from "./socket.ts"

let dir: string
let stops: (() => Promise<void>)[]
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "sluice-sock-"))
  stops = []
})
afterEach(async () => {
  for (const stop of stops) await stop()
  rmSync(dir, { recursive: true, force: true })
})

const log = openLog("silent")
async function serve(dataDir: string): Promise<() => Promise<void>> {
  // A request without a route needs no database.
  const stop = await serveOnSocket(openAdmin({ log } as Context), dataDir, log)
  stops.push(stop)
  return stop
}
/** The status that a socket answers for a path that does not exist; an error's code when nothing listens. */
const ask = (path: string): Promise<number | string | undefined> =>
  new Promise(resolve => {
    const sent = request({ socketPath: path, path: "/none", agent: false }, response => {
      response.resume()
      resolve(response.statusCode)
    })
    sent.once("error", (error: NodeJS.ErrnoException) => resolve(error.code))
    sent.end()
  })
const modeOf = (path: string) => statSync(path).mode & 0o777

it("creates a data folder that is absent, and a socket that only its owner can open; and removes it", async () => {
  const dataDir = join(dir, "data")
  const stop = await serve(dataDir)
  const path = join(dataDir, "admin.sock")
  expect([socketPath(dataDir), await ask(path)]).toEqual([path, 404])
  expect([modeOf(dataDir), modeOf(path)]).toEqual([0o700, 0o600])
  expect(readdirSync(dataDir)).toEqual(["admin.sock"])
  await stop()
  expect(readdirSync(dataDir)).toEqual([])
})

it("gives the socket no more rights in a folder that everybody may enter", async () => {
  chmodSync(dir, 0o777)
  await serve(dir)
  expect(modeOf(join(dir, "admin.sock"))).toBe(0o600)
})

it("takes over what a killed process left, and leaves a running process's socket alone", async () => {
  const path = join(dir, "admin.sock")
  const script = `require("node:net").createServer().listen(${JSON.stringify(path)}, () => console.log("up"))`
  const other = spawn(process.execPath, ["-e", script], { stdio: ["ignore", "pipe", "inherit"] })
  await once(other.stdout, "data")
  const inode = statSync(path).ino
  const idle = await serve(dir)
  expect(statSync(path).ino).toBe(inode)
  await idle()
  expect(existsSync(path)).toBe(true)
  other.kill("SIGKILL")
  await once(other, "exit")
  expect([existsSync(path), await ask(path)]).toEqual([true, "ECONNREFUSED"])
  await serve(dir)
  expect([await ask(path), modeOf(path)]).toEqual([404, 0o600])
})

it("does not remove the socket of a later process", async () => {
  const path = join(dir, "admin.sock")
  const stop = await serve(dir)
  rmSync(path)
  await serve(dir)
  await stop()
  expect(await ask(path)).toBe(404)
})

it("lies elsewhere where the folder's path is too long, in the same place after a restart", async () => {
  const long = join(dir, "x".repeat(60), "y".repeat(60))
  const stop = await serve(long)
  const path = socketPath(long)
  try {
    expect([path.startsWith(tmpdir()), await ask(path)]).toEqual([true, 404])
    expect([modeOf(dirname(path)), modeOf(path), modeOf(join(long, "admin.path"))]).toEqual([0o700, 0o600, 0o600])
    await stop()
    await serve(long)
    expect([socketPath(long), await ask(path)]).toEqual([path, 404])
    await stops.pop()?.()
    // Where others may enter the folder, it is not used again.
    chmodSync(dirname(path), 0o755)
    await serve(long)
    const another = socketPath(long)
    expect([another === path, await ask(another)]).toEqual([false, 404])
    await stops.pop()?.()
    rmSync(dirname(another), { recursive: true, force: true })
  } finally {
    rmSync(dirname(path), { recursive: true, force: true })
  }
})

it("does not prevent the start where it can't be created", async () => {
  const file = join(dir, "file")
  await serve(dir)
  const stop = await serveOnSocket(openAdmin({ log } as Context), join(file, "\0"), log)
  await stop()
})
