// From the moment that a checkout's time is over, or that it is deleted, nothing asks its payer for money any more.
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { startService, type TestService } from "../../../test/service.ts"

let service: TestService
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service.stop())
beforeEach(async () => {
  await service.empty()
  await service.merchant("shop")
})

const as = { as: "shop" }
const start = async () => {
  const { status, body } = await service.call("POST", "/api/console/checkouts", { amount: "5", expiresIn: 300 }, as)
  expect(status).toBe(201)
  return body as { id: string; payTo: string }
}
const read = async (path: string) => (await service.call("GET", path, undefined, as)).body
/** What a payer can read: the status, and the page of a browser without a script. */
const shownTo = async ({ id }: { id: string }) => {
  const status = await read(`/api/pay/status/${id}`)
  return { status, page: JSON.stringify(status) + (await read(`/pay/${id}`)) }
}

// No round has settled the checkout in any of these.
it.each<[string, (session: { id: string }) => Promise<unknown>]>([
  ["expired", async () => service.advance(301_000)],
  ["was deleted", async ({ id }) => await deleted(id)],
  ["expired after a part of it had arrived", async ({ id }) => await partOf(id)],
])("once it %s nobody is asked for money", async (_, end) => {
  const session = await start()
  const before = await shownTo(session)
  expect(before.status).toMatchObject({ status: "pending", message: "Send 5.00 USDC.", payTo: session.payTo })
  expect(before.page).toContain(session.payTo)
  await end(session)
  service.advance(1_000)
  const { status, page } = await shownTo(session)
  expect(["pending", "verifying"]).toContain(status.status)
  expect(status.message).toContain("do not send money now")
  expect(status).not.toHaveProperty("payTo")
  expect(page).not.toContain(session.payTo)
  expect(page).not.toMatch(/ send \d|Send 5\.00/)
  // Its merchant still sees where it was to be paid.
  const whole = await read(`/api/console/checkouts/${session.id}`)
  expect(whole).toMatchObject({ payTo: session.payTo, message: status.message })
})

const deleted = async (id: string) =>
  expect((await service.call("DELETE", `/api/console/checkouts/${id}`, undefined, as)).status).toBe(200)

async function partOf(id: string): Promise<void> {
  const part = { status: "verifying", exception: "underpaid", received: 2_000_000n } as const
  const message = "2.00 of 5.00 USDC arrived; send 3.00 more."
  await service.ctx.db
    .updateTable("checkout_sessions")
    .set({ ...part, message })
    .where("id", "=", id)
    .execute()
  service.advance(301_000)
}

it("a page that is open hears of the deletion at once", async () => {
  const { id } = await start()
  const woken: unknown[] = []
  const { wake } = service.ctx.wakes
  service.ctx.wakes.wake = async (channel, names) => {
    woken.push([channel, names])
    await wake(channel, names)
  }
  await deleted(id)
  service.ctx.wakes.wake = wake
  expect(woken).toContainEqual(["payments", [id]])
})
