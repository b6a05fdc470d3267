// What a subscription is between two rounds of its job, and when money for an invoice comes, goes and comes back.
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { later, SUBSCRIBER, type SubscriptionRig, startSubscriptionRig } from "../../../test/subscription-rig.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { inTransaction } from "../../platform/context.ts"
import { cancelSubscription, type Owner, resumeSubscription } from "./ask-subscription.ts"

const MOMENT_DAYS = 0.001
const PAID_UNTIL = "2027-02-28T10:00:00.000Z"
const RENEWED_UNTIL = "2027-03-31T10:00:00.000Z"

let rig: SubscriptionRig
beforeAll(async () => {
  rig = await startSubscriptionRig()
})
afterAll(() => rig?.stop())
beforeEach(() => rig.begin("2027-01-31T10:00:00Z"))

/** A subscription whose renewal is billed; returns its id and the renewal's session. */
async function billed(): Promise<{ id: string; session: string }> {
  const id = await rig.subscribed()
  rig.to("2027-02-26T10:00:00Z")
  await rig.look()
  return { id, session: await rig.open(id) }
}
const wait = () => rig.to(later(rig.now(), MOMENT_DAYS))
const cancel = (owner: Owner, id: string, at: "now" | "period_end") =>
  inTransaction(rig.service.ctx, ctx => cancelSubscription(ctx, owner, id, at))
const merchant = async (): Promise<Owner> => ({ merchantId: await rig.service.merchant("shop") })
const subscriber = async (): Promise<Owner> => ({ payer: SUBSCRIBER })
const sessionOf = async (id: string) => (await rig.call("GET", `checkouts/${id}`)).body
const payments = async () => {
  const { data } = (await rig.call("GET", "payments")).body as { data: { status: string; exception: string | null }[] }
  return data.map(({ status, exception }) => [status, exception])
}

describe("before the job's next round", () => {
  it.each([
    ["its merchant", merchant],
    ["its subscriber", subscriber],
  ])("a subscription that was paid late and is canceled by %s keeps the period that was paid", async (_who, owner) => {
    const { id, session } = await billed()
    rig.to("2027-03-01T10:00:00Z")
    await rig.look()
    await rig.pay(session)
    wait()
    await cancel(await owner(), id, "period_end")
    expect(await rig.read(id)).toMatchObject({ status: "active", cancelAtPeriodEnd: true })
    await rig.look()
    expect(await rig.read(id)).toMatchObject({ status: "active", accessUntil: RENEWED_UNTIL })
  })

  it("a cancellation is not taken back after the end of the period", async () => {
    const id = await rig.subscribed()
    await cancel(await subscriber(), id, "period_end")
    await rig.look()
    rig.to("2027-02-28T16:00:00Z")
    const resumed = inTransaction(rig.service.ctx, ctx => resumeSubscription(ctx, { payer: SUBSCRIBER }, id))
    await expect(resumed).rejects.toThrow("This subscription is canceled")
    await rig.look()
    expect(await rig.read(id)).toMatchObject({ status: "canceled", accessUntil: PAID_UNTIL })
  })
})

describe("money for an invoice that was closed and replaced", () => {
  /** Closes the open invoice, and has another made for its period. */
  async function replaced(id: string): Promise<void> {
    for (const what of ["pause", "resume"] as const) {
      await rig.ask(id, what)
      await rig.look()
    }
  }
  const expectLate = async (id: string, session: string) => {
    expect(await sessionOf(session)).toMatchObject({ status: "expired", exception: "late" })
    expect(await payments()).toContainEqual(["open", "late"])
    expect((await rig.invoices(id)).map(({ paid_at, voided_at }) => [paid_at !== null, voided_at !== null])).toEqual([
      [true, false],
      [false, true],
      [false, false],
    ])
  }

  it("is late where a reorg brings it back: the merchant returns it", async () => {
    const { id, session } = await billed()
    await rig.pay(session, { state: "confirmed" })
    await rig.look()
    await rig.reorg(session, "gone")
    await rig.look()
    await replaced(id)
    await rig.reorg(session, "confirmed")
    await rig.look()
    await expectLate(id, session)
  })

  it("is late where it is found only then, though it was in time", async () => {
    const { id, session } = await billed()
    const inTime = rig.now()
    wait()
    await replaced(id)
    await rig.pay(session, { at: inTime })
    await rig.look()
    await expectLate(id, session)
    const [open = ""] = [await rig.open(id)]
    await rig.pay(open)
    await rig.look()
    expect(await rig.read(id)).toMatchObject({ status: "active", paidUntil: RENEWED_UNTIL })
  })

  it.each([
    ["while the paid period lasts", "2027-02-27T10:00:00Z", "2027-03-31T10:00"],
    ["when access is over, shortly before its period ends", "2027-03-31T09:00:00Z", "2027-04-30T09:00"],
    ["when its period is over", "2027-03-31T11:00:00Z", "2027-04-30T11:00"],
  ])("that its merchant accepts %s buys the whole of it, if none was made", async (_when, at, until) => {
    const { id, session } = await billed()
    await rig.ask(id, "pause")
    await rig.look()
    wait()
    await rig.pay(session)
    await rig.look()
    rig.to(at)
    await rig.look()
    const { data } = (await rig.call("GET", "payments")).body
    const late = data.find(({ status }: { status: string }) => status === "open")
    expect((await rig.call("POST", `payments/${late.id}/accept`, {})).status).toBe(200)
    await rig.look()
    expect((await rig.read(id)).paidUntil.slice(0, 16)).toBe(until)
  })

  it("pays where no later invoice was made", async () => {
    const { id, session } = await billed()
    const inTime = rig.now()
    wait()
    await rig.ask(id, "pause")
    await rig.look()
    await rig.pay(session, { at: inTime })
    await rig.look()
    expect((await sessionOf(session)).status).toBe("confirmed")
    expect(await rig.read(id)).toMatchObject({ status: "paused", paidUntil: RENEWED_UNTIL })
  })
})

it("a merchant's pauses do not use up its subscriber's right to take a cancellation back; its own cancellations do", async () => {
  const { id } = await billed()
  const asSubscriber = async (what: "cancel" | "resume") => {
    const work = what === "cancel" ? cancel(await subscriber(), id, "period_end") : resume()
    const answer = await work.then(
      () => "done",
      error => error.message as string,
    )
    await rig.look()
    return answer
  }
  const resume = () =>
    inTransaction(rig.service.ctx, ctx => resumeSubscription(ctx, { payer: SUBSCRIBER }, id)).then(() => {})
  for (const what of ["pause", "resume", "pause", "resume"] as const) {
    await rig.ask(id, what)
    await rig.look()
  }
  const answers: string[] = []
  for (let i = 0; i < 3; i++) answers.push(await asSubscriber("cancel"), await asSubscriber("resume"))
  expect(answers.slice(0, 5)).toEqual(Array(5).fill("done"))
  expect(answers[5]).toMatch(/^This subscription was canceled and resumed too often/)
  expect((await rig.ask(id, "resume")).body).toMatchObject({ status: "active", cancelAtPeriodEnd: false })
})

describe("a reorg", () => {
  it("that moves a renewal's payment gives no access back that a cancellation had ended", async () => {
    const { id, session } = await billed()
    await rig.pay(session, { state: "confirmed" })
    await rig.look()
    await rig.ask(id, "cancel", { at: "now" })
    await rig.look()
    const { accessUntil } = await rig.read(id)
    for (const state of ["gone", "confirmed"] as const) {
      wait()
      await rig.reorg(session, state)
      await rig.look()
    }
    expect(await rig.read(id)).toMatchObject({ status: "canceled", accessUntil })
  })

  it("that removes the payment of an invoice which was paid during a pause leaves it owed", async () => {
    const { id, session } = await billed()
    await rig.pay(session, { value: 1_000_000n, state: "confirmed" })
    await rig.ask(id, "pause")
    await rig.look()
    await rig.pay(session, { value: 4_000_000n, state: "confirmed" })
    await rig.look()
    await rig.ask(id, "resume")
    await rig.look()
    await rig.reorg(session, "gone")
    rig.to("2027-03-04T10:00:00Z")
    await rig.look()
    expect((await rig.events()).at(-1)).toMatchObject({ type: "past_due", hostedUrl: expect.any(String) })
    rig.to("2027-03-31T10:00:00Z")
    await rig.look()
    expect(await rig.read(id)).toMatchObject({ status: "canceled", cancelReason: "unpaid" })
  })
})

it("payments that are paused for a moment give no access back that the merchant's own fault had ended", async () => {
  const id = await rig.subscribed()
  const { db } = rig.service.ctx
  await db.deleteFrom("payout_addresses").execute()
  for (const day of ["2027-02-26", "2027-03-04", "2027-06-05"]) {
    rig.to(`${day}T10:00:00Z`)
    await rig.look()
  }
  const ended = { status: "past_due", accessUntil: "2027-03-03T10:00:00.000Z", blockedBy: "payout_address" }
  expect(await rig.read(id)).toMatchObject(ended)
  const wallet = { chain_id: 84532, address: `0x${"77".repeat(20)}` as Address, next_nonce: 0n, run_at: rig.now() }
  await db
    .insertInto("wallets")
    .values({ ...wallet, status: "halted", halted_reason: "a test" })
    .execute()
  for (const minute of [20, 40]) {
    rig.to(`2027-06-05T10:${minute}:00Z`)
    await rig.look()
    expect(await rig.read(id)).toMatchObject(ended)
  }
})
