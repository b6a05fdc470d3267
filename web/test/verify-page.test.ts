// The page `/verify` in Chromium, under its policy: from a holder's file and from a link, against the chain alone.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { Browser } from "playwright-core"
import { afterAll, beforeAll, expect, it } from "vitest"
import { type PayoutRig, startPayoutRig } from "../../server/test/payouts.ts"
import { receiptsOn } from "../../server/test/receipts.ts"
import { isSound, openBrowser, visit } from "./browser.ts"

let rig: PayoutRig
let on: ReturnType<typeof receiptsOn>
let browser: Browser
let url: string
let payment: string
const dataDir = mkdtempSync(join(tmpdir(), "verify-page-"))
beforeAll(async () => {
  rig = await startPayoutRig({ dataDir, receipts: { batchMs: 1_000, anchorMs: 1_000 } })
  on = receiptsOn(rig)
  await rig.empty()
  payment = await rig.paid(await rig.sell([50, 50]), 1_000_000n)
  await on.finish()
  ;[url, browser] = await Promise.all([rig.service.listen(), openBrowser()])
})
/** Questions to the node that the visitor named are what the page is for. */
const others = (faults: readonly string[]) => faults.filter(fault => fault !== `request to ${rig.anvil.rpcUrl}/`)

afterAll(async () => {
  await browser?.close()
  await rig?.stop()
  rmSync(dataDir, { recursive: true, force: true })
})

it("verifies a holder's file, and refuses one that was changed", async () => {
  const saved = await on.saved(payment)
  const files = { good: saved, bad: { ...saved, root: `0x${"0".repeat(64)}` } }
  for (const [name, file] of Object.entries(files)) writeFileSync(join(dataDir, `${name}.json`), JSON.stringify(file))
  const { page, faults } = await visit(browser, { url })
  await page.goto(`${url}/verify`)
  await isSound(page)
  const linesOf = async (name: string) => {
    await page.locator("#file").setInputFiles(join(dataDir, `${name}.json`))
    await page.locator("#rpc").fill(rig.anvil.rpcUrl)
    await page.locator("#lines").evaluate(list => list.replaceChildren())
    await page.getByRole("button", { name: "Verify" }).click()
    await page.locator("#lines li").nth(6).waitFor()
    return (await page.locator("#lines li b").allTextContents()).join("")
  }
  expect(await linesOf("good")).toBe("✔✔✔✔✔✔·")
  await isSound(page)
  expect(await linesOf("bad")).toContain("✗")
  expect(others(faults)).toEqual([])
})

it("verifies what a link has, whose key leaves the address bar", async () => {
  const { key, root, offset } = await on.saved(payment)
  const length = rig.service.ctx.db.selectFrom("receipts").select("byte_length").where("byte_offset", "=", offset)
  const { byte_length } = await length.executeTakeFirstOrThrow()
  const { page, faults } = await visit(browser, { url })
  await page.goto(`${url}/verify#${new URLSearchParams({ k: key, root, o: `${offset}`, l: `${byte_length}` })}`)
  expect(page.url()).toBe(`${url}/verify`)
  await page.locator("#rpc").fill(rig.anvil.rpcUrl)
  await page.getByRole("button", { name: "Verify" }).click()
  await page.locator("#lines li").nth(6).waitFor()
  expect((await page.locator("#lines li b").first().textContent()) ?? "").toBe("✔")
  expect(others(faults)).toEqual([])
})
