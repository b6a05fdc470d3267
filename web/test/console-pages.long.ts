/** Every page of the console by every fault of the API, and lists of 10,000 rows that are read to their end and scrolled. */
import type { Browser } from "playwright-core"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { newSandbox, type Sandbox } from "../../server/test/e2e/program.ts"
import { openBrowser } from "./browser.ts"
import { canFail, failOn, faultNames, prepareFor } from "./console-faults.ts"
import { fillLists, framesOf, keepsItsPlace, longLists, MANY, MOST_ROWS, readUntil } from "./console-lists.ts"
import { pagesOf } from "./console-pages.ts"
import { fillWorld, type World } from "./console-sales.ts"
import { visitsOf } from "./console-visits.ts"

let browser: Browser
let sandbox: Sandbox
let world: World
const visits = visitsOf(() => ({ browser, sandbox }))

beforeAll(async () => {
  await import("../src/console/build.ts")
  const limits = { LIMIT_PUBLIC: "0", LIMIT_AUTH: "0", LIMIT_CONSOLE: "0", LIMIT_PAGES: "0" }
  sandbox = await newSandbox(limits, "migrated")
  await Promise.all([sandbox.start(), openBrowser().then(found => (browser = found))])
  world = await fillWorld(sandbox)
})
afterAll(async () => {
  await visits.close()
  await browser?.close()
  await sandbox.remove()
})

describe.concurrent("each page says that it failed, and goes on", () => {
  it.each(faultNames)("%s", async fault => {
    const { page } = await visits.open("/signed-in", world.name)
    await prepareFor(fault, page)
    for (const each of pagesOf(world).filter(canFail))
      await failOn(page, sandbox.url, each, fault).catch((error: Error) => {
        throw new Error(`${each.path}: ${error.message}`)
      })
  })
})

/** A screen draws sixty frames a second; one of them that takes longer than this is seen. */
const LONGEST_FRAME_MS = 50

it("reads a list of 10,000 rows to its end, scrolls it, and is at its place when one comes back", async context => {
  if (!sandbox.databaseUrl) return context.skip("Only Postgres can be filled beside the service.")
  const name = await fillLists(sandbox)
  const { page, faults } = await visits.open("/links", name)
  const measured: object[] = []
  for (const list of longLists) {
    await visits.go(page, list[0])
    await readUntil(page, MANY, list[1])
    // The best of three: other programs on this machine take frames, too.
    const runs = []
    for (let i = 0; i < 3; i++) runs.push(await framesOf(page))
    const longest = Math.min(...runs.map(({ frames }) => frames[0] ?? 0))
    const rows = Math.max(...runs.map(run => run.rows))
    measured.push({ list: list[1], longestFrameMs: Math.round(longest), rows })
    expect(rows).toBeLessThanOrEqual(MOST_ROWS)
    await keepsItsPlace(page, list, MANY)
  }
  process.stdout.write(`Lists: ${JSON.stringify(measured)}\n`)
  expect(measured.filter(each => (each as { longestFrameMs: number }).longestFrameMs > LONGEST_FRAME_MS)).toEqual([])
  expect(faults).toEqual([])
}, 1_200_000)
