/** Long lists of the console: 10,000 payments, payers and payouts of one merchant, by SQL. */
import type { Page } from "playwright-core"
import { expect } from "vitest"
import { addRows, type Rows } from "../../bench/rows.ts"
import { openPostgres } from "../../server/src/platform/db/open.ts"
import type { Sandbox } from "../../server/test/e2e/program.ts"
import { shows } from "./console-visits.ts"

export const MANY = 10_000

const tables: readonly Rows[] = [
  "resources",
  "checkout_sessions",
  "deposits",
  "transfers",
  "payments",
  "claims",
  "claim_books",
  "deposit_books",
  "payouts",
]

/** Gives the sandbox's second merchant that many of each, at no time of today; answers its name. */
export async function fillLists(sandbox: Sandbox): Promise<string> {
  const { merchants, token } = sandbox.file()
  const [, { name, accessToken }] = merchants
  const { body } = await sandbox.call("/api/console/me", undefined, { authorization: `Bearer ${accessToken}` })
  const owner = {
    merchantId: body.merchants[0].merchantId,
    paywallId: "pw_none",
    webhookId: "",
    token: token.address.toLowerCase(),
  }
  const { db, close } = await openPostgres(sandbox.databaseUrl ?? "", error => {
    throw error
  })
  // The service writes beside it, and building an index can deadlock with that: the table is then as before, and filled again.
  const add = async (table: Rows): Promise<void> => {
    await addRows(db, owner, [table], 1, MANY).catch(async (error: Error) => {
      if (!/deadlock/.test(error.message)) throw error
      await add(table)
    })
  }
  try {
    for (const table of tables) await add(table)
  } finally {
    await close()
  }
  return name
}

/** The lists, with a text of what a row leads to. */
export const longLists = [
  ["/payments", "payments", "What happened"],
  ["/payers", "payers", "Last payments"],
  ["/payouts", "payouts", "Payments inside it"],
] as const

/** At most so many rows are in the document, however many the list has. */
export const MOST_ROWS = 80

/** Presses "Show more" until the list has that many rows. */
export async function readUntil(page: Page, rows: number, name: string): Promise<void> {
  const foot = page.locator(".foot-row span").first()
  const isRead = new RegExp(`^${rows.toLocaleString("en")} (of more than .*)?${name}$`)
  for (;;) {
    const before = (await foot.textContent()) ?? ""
    if (isRead.test(before)) return
    await page.getByRole("button", { name: "Show more" }).click()
    await page.waitForFunction(text => document.querySelector(".foot-row span")?.textContent !== text, before)
  }
}

const rowsNow = (page: Page): Promise<number> => page.locator("table.list tbody tr.open").count()

/** Scrolls to the middle, opens what is there and goes back: the list is as long as before, and at its place. */
export async function keepsItsPlace(page: Page, [path, name, told]: (typeof longLists)[number], rows: number) {
  await shows(page, name)
  await readUntil(page, rows, name)
  expect(await rowsNow(page)).toBeLessThanOrEqual(MOST_ROWS)
  await page.evaluate(() => scrollTo({ top: document.documentElement.scrollHeight / 2 }))
  // The row in the middle of the window, once it is drawn.
  const middle = () =>
    page.evaluate(() => {
      const at = document.elementsFromPoint(600, innerHeight / 2).find(each => each.closest("table.list tr.open"))
      return at?.closest("tr")?.getAttribute("data-index") ?? null
    })
  await page.waitForFunction(() =>
    document.elementsFromPoint(600, innerHeight / 2).some(each => each.closest("table.list tr.open")),
  )
  const at = await middle()
  expect(Number(at)).toBeGreaterThan(rows / 4)
  await page.locator(`tr[data-index="${at}"] a.whole`).click({ position: { x: 2, y: 2 } })
  await shows(page, told)
  await page.goBack()
  await page.locator(`tr[data-index="${at}"]`).waitFor()
  await page.getByText(new RegExp(`^${rows.toLocaleString("en")} (of more than .*)?${name}$`)).waitFor()
  expect(Math.abs(Number(await middle()) - Number(at)), `${path}: the row in the middle`).toBeLessThanOrEqual(2)
}

/** The longest frames while the window scrolls through the whole list, in ms, the longest first; and the most rows that were drawn. */
export const framesOf = (page: Page): Promise<{ frames: number[]; rows: number }> =>
  page.evaluate(async () => {
    scrollTo({ top: 0 })
    const frames: number[] = []
    let rows = 0
    const step = Math.ceil(document.documentElement.scrollHeight / 600)
    let before = await new Promise<number>(requestAnimationFrame)
    while (scrollY + innerHeight < document.documentElement.scrollHeight - 2) {
      scrollBy({ top: step })
      const now = await new Promise<number>(requestAnimationFrame)
      frames.push(now - before)
      before = now
      rows = Math.max(rows, document.querySelectorAll("table.list tbody tr").length)
    }
    return { frames: frames.sort((a, b) => b - a).slice(0, 10), rows }
  })
