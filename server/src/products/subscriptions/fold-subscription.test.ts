import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { type Billing, boundary, intervals } from "./calendar.ts"
import {
  anchorAtMove,
  anchorAtResume,
  CANCEL_AFTER_MS,
  firstPeriod,
  foldSubscription,
  GRACE_MS,
  type InvoiceFacts,
  type SubscriptionFacts,
} from "./fold-subscription.ts"

const DAY = 86_400_000
const T = new Date("2027-01-31T10:00:00Z")
const at = (days: number) => new Date(T.getTime() + days * DAY)
const monthly = { interval: "month", count: 1 } as const
const first: InvoiceFacts = {
  periodStart: T,
  periodEnd: new Date("2027-02-28T10:00:00Z"),
  dueAt: T,
  state: "paid",
  paidAt: T,
  isFinal: true,
  isOfProduct: true,
  wasUnpaidAtCancel: false,
}
const second: InvoiceFacts = {
  periodStart: first.periodEnd,
  periodEnd: new Date("2027-03-31T10:00:00Z"),
  dueAt: first.periodEnd,
  state: "open",
  paidAt: null,
  isFinal: false,
  isOfProduct: true,
  wasUnpaidAtCancel: false,
}
const base: SubscriptionFacts = {
  billing: monthly,
  anchor: T,
  maxPeriods: null,
  invoices: [first],
  hasGrace: true,
  aheadMs: 3 * DAY,
  pausedAt: null,
  canceledAt: null,
  cancelAtPeriodEnd: false,
}
const fold = (days: number, change: Partial<SubscriptionFacts> = {}) =>
  foldSubscription({ ...base, ...change }, at(days))
const open = { invoices: [first, second] }
const late = { hasGrace: false, invoices: [first, { ...second, dueAt: at(40) }] }
const latest = (one: Date, other: Date | null) => (other && other > one ? other : one)
const graceAfter = (date: Date) => new Date(date.getTime() + GRACE_MS)

describe("a subscription", () => {
  it.each<[string, number, Partial<SubscriptionFacts>, object]>([
    ["never paid", 0, { invoices: [{ ...first, state: "open" }] }, { status: null, runAt: null }],
    ["paid", 1, {}, { status: "active", next: null, accessUntil: graceAfter(first.periodEnd), runAt: at(25) }],
    ["ahead of its next period", 25, {}, { next: expect.objectContaining({ dueAt: first.periodEnd }) }],
    ["paid, but not finally", 25, { invoices: [{ ...first, isFinal: false }] }, { next: null, status: "active" }],
    ["looked after too late", 40, {}, { next: expect.objectContaining({ periodStart: at(28), dueAt: at(40) }) }],
    ["billed", 27, open, { status: "active", next: null, runAt: at(28) }],
    ["due", 28, open, { status: "payment_due", runAt: at(31), accessUntil: at(31) }],
    ["due too long", 31, open, { status: "past_due", runAt: null, accessUntil: at(31) }],
    ["past due after its session's time", 99, open, { status: "past_due" }],
    ["unpaid to the end", 58, { invoices: [first, { ...second, state: "ended" }] }, { cancelReason: "unpaid" }],
    ["due without grace", 28, { ...open, hasGrace: false }, { status: "past_due", accessUntil: at(28) }],
    ["billed too late, without grace", 41, late, { status: "payment_due", accessUntil: at(43) }],
    [
      "billed too late after a late payment, without grace",
      41,
      {
        ...late,
        invoices: [
          { ...first, paidAt: at(27) },
          { ...second, dueAt: at(40) },
        ],
      },
      { status: "past_due", accessUntil: at(28) },
    ],
    ["paid late", 50, { invoices: [first, { ...second, state: "paid" }] }, { status: "active", accessUntil: at(62) }],
    [
      "in arrears, after its access",
      65,
      { invoices: [first, { ...second, state: "paid", paidAt: at(64), isFinal: true }] },
      { status: "past_due", accessUntil: at(62), next: expect.objectContaining({ graceUntil: at(62), dueAt: at(65) }) },
    ],
    ["paused", 5, { pausedAt: at(4) }, { status: "paused", accessUntil: at(28), runAt: null }],
    ["paused while billed", 27, { ...open, pausedAt: at(26) }, { status: "paused", isVoiding: true }],
    [
      "to end with its period",
      5,
      { cancelAtPeriodEnd: true },
      { status: "active", accessUntil: at(28), runAt: at(28) },
    ],
    ["ended with its period", 28, { cancelAtPeriodEnd: true }, { status: "canceled", cancelReason: "requested" }],
    [
      "ended with its period while an invoice is half paid",
      28,
      { ...open, cancelAtPeriodEnd: true },
      { status: "canceled", accessUntil: at(28), isVoiding: true, runAt: null },
    ],
    ["canceled", 5, { canceledAt: at(4) }, { status: "canceled", accessUntil: at(4), isVoiding: false }],
    [
      "canceled, and paid a moment later",
      29,
      { canceledAt: at(28), invoices: [first, { ...second, state: "paid", wasUnpaidAtCancel: true }] },
      { status: "canceled", accessUntil: second.periodEnd },
    ],
    [
      "canceled, and then a reorg moved the payment that it had",
      5,
      { canceledAt: at(4), invoices: [{ ...first, paidAt: at(4.5) }] },
      { status: "canceled", accessUntil: at(4) },
    ],
    ["of one period", 27, { maxPeriods: 1 }, { status: "active", next: null, runAt: at(28) }],
    ["of one period that is over", 28, { maxPeriods: 1 }, { status: "canceled", cancelReason: "completed" }],
  ])("that is %s", (_name, days, change, expected) => {
    expect(fold(days, change)).toMatchObject(expected)
  })

  it("begins with a trial that comes before the first period", () => {
    expect(firstPeriod(monthly, 14, T)).toEqual({ anchor: at(14), periodEnd: new Date("2027-03-14T10:00:00Z") })
  })
})

/** A subscription in memory that follows the fold, as the job does in the database. */
class Model {
  now = T
  facts: Omit<SubscriptionFacts, "invoices"> & { invoices: InvoiceFacts[] }
  /** Whether somebody has begun to pay the open invoice. */
  isPaying = false
  isVoidAsked = false
  /** What blocks the next invoice: the merchant has to change something, or payments are paused. */
  blockedBy: "merchant" | "pause" | null = null
  graceUntil: Date | null = null
  /**
   * When periods were counted again after time without access. Only before these may there be time that nobody was
   * billed for.
   */
  gapEnds = new Set<number>()
  /** Whether an invoice was created for time before such a restart. */
  hasBilledGap = false
  /** The length of each period. */
  billingOf = new Map<InvoiceFacts, Billing>()

  constructor(billing: Billing, maxPeriods: number | null) {
    const { anchor, periodEnd } = firstPeriod(billing, 0, T)
    this.facts = { ...base, billing, anchor, maxPeriods, invoices: [{ ...first, periodEnd }] }
  }

  get folded() {
    return foldSubscription(this.facts, this.now)
  }

  get open() {
    return this.facts.invoices.find(each => each.state === "open")
  }

  /** One round of the job, after sessions that are over were ended. */
  work() {
    const { open } = this
    if (open && this.now.getTime() >= open.dueAt.getTime() + CANCEL_AFTER_MS && !this.isPaying)
      open.state = this.isVoidAsked ? "void" : "ended"
    const { next, isVoiding, accessUntil, paidUntil } = this.folded
    this.graceUntil = null
    if (isVoiding) {
      this.isVoidAsked = true
      if (this.open && !this.isPaying) this.open.state = "void"
    }
    if (!next) return
    if (this.blockedBy === "pause") this.graceUntil = next.graceUntil
    const isOver = accessUntil !== null && paidUntil !== null && accessUntil <= this.now
    if (this.blockedBy === "merchant" && isOver) this.count(anchorAtResume(this.facts.anchor, paidUntil, this.now))
    if (this.blockedBy) return
    this.isVoidAsked = false
    const { periodStart, periodEnd, dueAt, anchor } = next
    const invoice = { ...second, periodStart, periodEnd, dueAt }
    this.facts = { ...this.facts, anchor, invoices: [...this.facts.invoices, invoice] }
    this.hasBilledGap ||= periodStart.getTime() < Math.max(...this.gapEnds)
    this.billingOf.set(invoice, this.facts.billing)
  }

  /** Counts periods from this anchor. */
  count(anchor: Date) {
    if (anchor.getTime() === this.now.getTime()) this.gapEnds.add(anchor.getTime())
    this.facts.anchor = anchor
  }

  pay(isLasting: boolean) {
    const { open } = this
    if (!open) return
    this.isPaying = false
    if (isLasting) Object.assign(open, { state: "paid", paidAt: this.now, isFinal: true })
  }

  /** The merchant accepts money that came for the last invoice after it was voided. */
  accept() {
    const last = this.facts.invoices.at(-1)
    if (last?.state === "void" && last.periodEnd > this.now)
      Object.assign(last, { state: "paid", paidAt: this.now, isFinal: true })
  }

  move(billing: Billing) {
    const { status, paidUntil } = this.folded
    if (status === "canceled" || !paidUntil || this.open) return
    const anchor = anchorAtMove(this.facts.anchor, paidUntil)
    this.facts = { ...this.facts, billing, anchor }
    for (const each of this.facts.invoices) each.isOfProduct = false
  }

  resume() {
    const { status, paidUntil } = this.folded
    if (status === "canceled" || !paidUntil || (this.isVoidAsked && this.open)) return
    const wasPaused = this.facts.pausedAt !== null
    this.facts = { ...this.facts, pausedAt: null, cancelAtPeriodEnd: false }
    if (wasPaused) this.count(anchorAtResume(this.facts.anchor, paidUntil, this.now))
  }

  ask(change: Partial<Omit<SubscriptionFacts, "invoices">>) {
    if (this.folded.status === "canceled") return
    this.facts = { ...this.facts, ...change }
    if (this.open) this.isVoidAsked = true
    if (this.open && change.canceledAt) this.open.wasUnpaidAtCancel = true
  }
}

describe("whatever happens to a subscription", () => {
  const billing = fc.record({ interval: fc.constantFrom(...intervals), count: fc.integer({ min: 1, max: 3 }) })
  type Kind = "pay" | "begin" | "fail" | "work" | "pause" | "resume" | "stop" | "cancel" | "block" | "accept" | "bill"
  type Step = [kind: Kind, days: number] | [kind: "clock", days: number] | [kind: "move", to: Billing]
  const step = fc.oneof(
    { weight: 6, arbitrary: fc.tuple(fc.constant("clock" as const), fc.double({ min: 0.01, max: 45, noNaN: true })) },
    { weight: 6, arbitrary: fc.tuple(fc.constantFrom("pay", "work", "bill"), fc.constant(0)) },
    { weight: 2, arbitrary: fc.tuple(fc.constantFrom("begin", "fail", "pause", "resume", "stop"), fc.constant(0)) },
    { weight: 2, arbitrary: fc.tuple(fc.constantFrom("block", "accept"), fc.constant(0)) },
    { weight: 1, arbitrary: fc.tuple(fc.constant("move" as const), billing) },
    { weight: 1, arbitrary: fc.tuple(fc.constant("cancel" as const), fc.constant(0)) },
  ) as fc.Arbitrary<Step>
  /**
   * Stories that random steps produce too rarely: late money for other terms, and terms that change while nothing can
   * be billed.
   */
  const story = fc.tuple(fc.constantFrom("late", "stuck"), billing).map(([kind, to]): Step[] =>
    kind === "late"
      ? [
          ["bill", 0],
          ["pause", 0],
          ["work", 0],
          ["move", to],
          ["accept", 0],
          ["resume", 0],
          ["bill", 0],
        ]
      : [
          ["pause", 0],
          ["clock", 45],
          ["block", 0],
          ["resume", 0],
          ["move", to],
          ["block", 0],
          ["bill", 0],
        ],
  )
  const steps = fc
    .array(fc.oneof({ weight: 9, arbitrary: step.map(each => [each]) }, { weight: 1, arbitrary: story }), {
      maxLength: 60,
    })
    .map(each => each.flat())

  function take(model: Model, [kind, value]: Step) {
    if (kind === "clock") model.now = new Date(model.now.getTime() + Math.round(value * DAY))
    if (kind === "move") model.move(value)
    if (kind === "accept") model.accept()
    if (kind === "block") model.blockedBy = model.blockedBy ? null : "merchant"
    if (kind === "bill") model.now = latest(model.now, model.folded.runAt)
    if (kind === "work" || kind === "bill") model.work()
    if (kind === "pay") model.pay(true)
    if (kind === "begin") model.isPaying = model.open !== undefined
    if (kind === "fail") model.pay(false)
    if (kind === "pause") model.ask({ pausedAt: model.now })
    if (kind === "stop") model.ask({ cancelAtPeriodEnd: true })
    if (kind === "cancel") model.ask({ canceledAt: model.now })
    if (kind === "resume") model.resume()
  }

  it.each([
    [1, false, true],
    [2, false, true],
    [7, false, true],
    [1, true, true],
    [2, true, true],
    [1, false, false],
    [7, false, false],
  ])(
    "who pays each period of %i days as late as it can gets no more time than it paid for (while payments are paused: %s, with grace: %s)",
    (count, isPaused, hasGrace) => {
      const model = new Model({ interval: "day", count }, null)
      model.facts.hasGrace = hasGrace
      let opened = 0
      let most = 0
      const paid = () => model.facts.invoices.filter(each => each.state === "paid").length
      for (let hour = 0; hour < 60 * 24; hour++) {
        model.now = new Date(T.getTime() + (hour * DAY) / 24)
        model.blockedBy = isPaused && hour > 20 * 24 && hour < 40 * 24 ? "pause" : null
        model.work()
        if (model.now < (model.graceUntil ?? model.folded.accessUntil ?? T)) opened++
        else model.pay(true)
        most = Math.max(most, opened / 24 - count * paid())
      }
      expect(paid()).toBeGreaterThan(5)
      expect(most).toBeLessThanOrEqual(hasGrace ? GRACE_MS / DAY : 0)
    },
  )

  it("no period is billed twice, left out or cut short, one invoice is open at most, and access is what was paid", () => {
    fc.assert(
      fc.property(
        billing,
        fc.option(fc.integer({ min: 1, max: 6 }), { nil: null }),
        steps,
        (billing, maxPeriods, steps) => {
          const model = new Model(billing, maxPeriods)
          for (const each of steps) {
            take(model, each)
            check(model)
          }
        },
      ),
      { numRuns: 500 },
    )
  })

  function check(model: Model) {
    const { facts, folded, now, gapEnds, billingOf } = model
    const billed = facts.invoices.filter(each => each.state !== "void")
    for (const [i, each] of billed.entries()) {
      const { periodStart, periodEnd } = each
      const before = billed[i - 1]
      expect(periodStart < periodEnd).toBe(true)
      if (before && !gapEnds.has(periodStart.getTime())) expect(periodStart).toEqual(before.periodEnd)
      if (before) expect(periodStart >= before.periodEnd).toBe(true)
      // A whole period: from the last day of a short month it can be some days longer, and it is never shorter.
      const whole = boundary(periodStart, billingOf.get(each) ?? facts.billing, 1)
      if (before) expect(periodEnd >= whole && periodEnd <= new Date(whole.getTime() + 3 * DAY)).toBe(true)
    }
    expect(model.hasBilledGap).toBe(false)
    const open = facts.invoices.filter(each => each.state === "open")
    expect(open.length).toBeLessThanOrEqual(1)
    const ofProduct = billed.filter(each => each.isOfProduct)
    if (facts.maxPeriods !== null) expect(ofProduct.length).toBeLessThanOrEqual(facts.maxPeriods)
    const paidUntil = Math.max(...billed.filter(each => each.state === "paid").map(each => each.periodEnd.getTime()))
    expect(folded.paidUntil?.getTime()).toBe(paidUntil)
    const accessUntil = folded.accessUntil?.getTime() ?? 0
    const graceUntil = Math.max(paidUntil, open[0]?.dueAt.getTime() ?? 0) + GRACE_MS
    if (folded.status === "canceled") expect(accessUntil).toBeLessThanOrEqual(Math.max(paidUntil, now.getTime()))
    else expect(accessUntil).toBeGreaterThanOrEqual(paidUntil)
    if (accessUntil > now.getTime()) expect(accessUntil).toBeLessThanOrEqual(graceUntil)
    // The status agrees with access, except while an invoice has to be created or closed now.
    const isRunning = folded.status === "active" || folded.status === "payment_due"
    if (isRunning && !folded.next && !folded.isVoiding) expect(accessUntil).toBeGreaterThan(now.getTime())
    if (folded.status === "past_due") expect(accessUntil).toBeLessThanOrEqual(now.getTime())
    // Every active subscription without an open invoice has a time when it is advanced.
    if (folded.status === "active" && !open[0]) expect(folded.runAt).not.toBeNull()
  }
})
