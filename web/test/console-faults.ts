/** How the API fails on a page of the console, and what a person must see then. */
import type { Page } from "playwright-core"
import { expect } from "vitest"
import type { ConsolePage } from "./console-pages.ts"
import { shows } from "./console-visits.ts"

const WORDS = "It broke in the test."

/** What the API answers; undefined is nothing at all. */
interface Answer {
  status: number
  body: string
  headers?: Record<string, string>
}

const failWith = (status: number, body: object, headers = {}): Answer => ({
  status,
  headers,
  body: JSON.stringify({ requestId: "req-of-the-test", message: WORDS, ...body }),
})

interface Fault {
  answer: Answer | undefined
  /** What is there meanwhile, beside a way on. */
  says: string[]
  /** Whether "Try again" shows the page; else it comes back by itself. */
  byButton?: boolean
  /** Nothing brings it back: the person may not see it. */
  isFinal?: boolean
}

const faults: Record<string, Fault> = {
  "500": { answer: failWith(500, { error: "INTERNAL_ERROR" }), says: [WORDS, "req-of-the-test"], byButton: true },
  "403": {
    answer: failWith(403, { error: "ROLE_REQUIRED" }),
    says: ["Your role does not allow this", WORDS, "Go to "],
    isFinal: true,
  },
  "429": {
    answer: failWith(429, { error: "RATE_LIMITED", retryAfter: 1 }, { "retry-after": "1" }),
    says: ["Too many requests this minute."],
  },
  timeout: { answer: undefined, says: ["This is taking too long"], byButton: true },
  torn: {
    answer: { status: 200, body: '{"data":[{"id":"pay_' },
    says: ["answer broke off"],
    byButton: true,
  },
}

/**
 * Gives the API's requests this answer until the returned function is called. Not by `page.route`, which switches the
 * browser's cache off: each page then compiles the whole console again.
 */
async function answerAll(
  page: Page,
  isMeant: (method: string, path: string) => boolean,
  answer: Answer | undefined,
): Promise<() => Promise<void>> {
  const session = await page.context().newCDPSession(page)
  session.on("Fetch.requestPaused", ({ requestId, request }) => {
    const isLeft = !isMeant(request.method, new URL(request.url).pathname)
    if (!isLeft && answer === undefined) return
    const done = isLeft
      ? session.send("Fetch.continueRequest", { requestId })
      : session.send("Fetch.fulfillRequest", {
          requestId,
          responseCode: answer?.status ?? 0,
          responseHeaders: Object.entries({ "content-type": "application/json", ...answer?.headers }).map(
            ([name, value]) => ({ name, value }),
          ),
          body: Buffer.from(answer?.body ?? "").toString("base64"),
        })
    // A page that is left takes its requests with it.
    done.catch(() => undefined)
  })
  await session.send("Fetch.enable", { patterns: [{ urlPattern: "*/api/console/*" }] })
  return async () => await session.detach()
}

/** The faults that exist. */
export const faultNames: readonly string[] = Object.keys(faults)

/** The pages that can fail. */
export const canFail = ({ kind }: ConsolePage): boolean => kind !== "still"

const API = "**/api/console/**"
/** The page gives up after 20 s. */
const LATER_MS = 21_000

/** For a fault that takes long, the page's clock can be moved: that of its whole browser context. */
export async function prepareFor(name: string, page: Page): Promise<void> {
  if (name === "timeout") await page.clock.install()
}

/** Opens a page whose reads fail, sees that it says so, and that it goes on; a form's request fails. `url` is the service's. */
export async function failOn(page: Page, url: string, each: ConsolePage, name: string): Promise<void> {
  const fault = faults[name] as Fault
  const isForm = each.kind === "form"
  const isMeant = (method: string, path: string) => (method === "GET") !== isForm && !/\/(stream|me)$/.test(path)
  const stop = await answerAll(page, isMeant, fault.answer)
  const held = page.waitForRequest(API)
  await page.goto(`${url}/console${each.path}`)
  if (isForm) {
    await failForm(page, each, name)
    return await stop()
  }
  if (name === "timeout") {
    await held
    await page.locator("main h1, main .bone").first().waitFor({ state: "attached" })
    await page.clock.fastForward(LATER_MS)
  }
  await shows(page, ...fault.says)
  expect(await page.locator("h1").count(), "a title").toBeGreaterThan(0)
  await stop()
  if (fault.isFinal) return
  // Each part has its own, and one that was behind another comes later.
  const again = page.locator("main").getByRole("button", { name: "Try again" }).first()
  const shown = shows(page, ...each.shows).then(() => true)
  const isMore = () =>
    again.waitFor().then(
      () => false,
      () => false,
    )
  while (fault.byButton && !(await Promise.race([shown, isMore()])))
    await again.click({ timeout: 2_000 }).catch(() => undefined)
  await shown
}

/** The request of a form fails: what was typed stays, and the button can be pressed again. */
async function failForm(page: Page, each: ConsolePage, name: string): Promise<void> {
  const button = page.locator("main").getByRole("button", { name: each.submit ?? "", exact: true })
  const field = page.locator("main form input[type=text], main form input:not([type])").first()
  await field.fill("7")
  const sent = page.waitForRequest(request => request.method() === "POST" && request.url().includes("/api/console/"))
  // By Enter: what loads beside the form may move the button between the press of a mouse and its release.
  await button.click({ trial: true })
  await field.press("Enter")
  await sent
  if (name === "timeout") {
    await page.clock.fastForward(3 * LATER_MS)
  }
  const says = {
    timeout: "money is moved only once",
    torn: "money is moved only once",
    "429": WORDS,
    "403": WORDS,
    "500": WORDS,
  }
  await page
    .locator("main")
    .getByRole("alert")
    .getByText(says[name as keyof typeof says])
    .waitFor()
  expect(await field.inputValue()).toBe("7")
  expect(await button.isEnabled()).toBe(true)
}
