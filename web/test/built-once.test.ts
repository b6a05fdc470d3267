// Who builds the console and the site, where many processes may.
import { spawnSync } from "node:child_process"
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setImmediate } from "node:timers/promises"
import { afterAll, expect, it } from "vitest"
import { lockBuild } from "../built-once.ts"

const dist = mkdtempSync(join(tmpdir(), "built-once-"))
const lock = join(dist, ".building")
afterAll(() => rmSync(dist, { recursive: true }))

it("lets one in at a time", async () => {
  const unlock = await lockBuild(dist)
  const order: string[] = []
  const second = lockBuild(dist).then(unlock => {
    order.push("second")
    unlock()
  })
  // Whoever is let in is there by then.
  await setImmediate()
  order.push("first")
  unlock()
  await second
  expect([order, existsSync(lock)]).toEqual([["first", "second"], false])
})

it.each([
  ["who has ended", () => `${spawnSync(process.execPath, ["--version"]).pid} 1`],
  ["whose id another process has now", () => `${process.pid} 1`],
  ["that wrote nothing", () => ""],
])("does not wait for a builder %s", async (_, holder) => {
  writeFileSync(lock, holder())
  const unlock = await lockBuild(dist)
  expect(readFileSync(lock, "utf8")).toMatch(new RegExp(`^${process.pid}( \\d+)?$`))
  unlock()
})
