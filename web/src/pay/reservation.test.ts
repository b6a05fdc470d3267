// What a payer sees of a payment that is reserved first, in every state, before and beside any browser.
import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { catalogues } from "../i18n/all.ts"
import { type Language, languages } from "../i18n/languages.ts"
import { translator } from "../i18n/words.ts"
import type { CheckoutPage, CheckoutStatus, Reservation } from "../page-data.ts"
import { ledgerOf } from "./reservation.ts"
import { isDone, isPayable, isSettled, stageOf } from "./stage.ts"
import { wordsOf } from "./words-of.ts"

const HASH = `0x${"ab".repeat(32)}`
const terms = {
  primaryType: "ReceiveWithAuthorization" as const,
  to: `0x${"c0".repeat(20)}`,
  value: "19900000",
  validAfter: "0",
  validBefore: "1893456000",
  nonce: HASH,
}
const nothing: Reservation = {
  capture: "manual",
  authorized: "0.00",
  captured: "0.00",
  released: "0.00",
  refunded: "0.00",
  left: "0.00",
  captureBefore: "2026-01-31T12:00:00.000Z",
  terms: null,
  moves: [],
  phase: "held",
  reclaim: null,
}
const reclaim = { after: "2026-01-31T13:00:00.000Z", to: `0x${"e5".repeat(20)}`, data: `0x${"0f".repeat(420)}` }
const base: CheckoutStatus = {
  sessionId: "cs_1",
  status: "pending",
  exception: null,
  message: "",
  amount: "19.90",
  amountReceived: "0.00",
  arriving: "0.00",
  missing: "19.90",
  paused: false,
  stale: false,
  relaying: false,
  gasless: true,
  redirectUrl: null,
  txHashes: [],
  waiting: [],
  expiresAt: "2026-01-24T12:00:00.000Z",
  over: false,
  payerFields: [],
  confirmations: 0,
  requiredConfirmations: 3,
  submission: null,
  reservation: { ...nothing, terms },
}
const withAmounts = (status: CheckoutStatus["status"], amounts: Partial<Reservation>): CheckoutStatus => ({
  ...base,
  status,
  reservation: { ...nothing, authorized: "19.90", ...amounts },
})
const pageOf = (status: CheckoutStatus, lang: Language = "en"): CheckoutPage => ({
  kind: "checkout",
  lang,
  merchant: "Blue Bottle Books",
  sandbox: true,
  description: null,
  status,
  brand: { logo: null, accentColor: null, allowedOrigins: [] },
  network: { chainId: 84532, title: "Base Sepolia", rpcUrl: null, explorer: null },
  token: { address: `0x${"a1".repeat(20)}`, symbol: "USDC", decimals: 6, name: "USDC", version: "2" },
})
const said = (status: CheckoutStatus, lang: Language = "en") => {
  const { title, text } = wordsOf(
    translator(catalogues[lang]),
    pageOf(status, lang),
    status,
    stageOf(status, {}),
    "UTC",
  )
  return `${title}|${text}`
}

describe("a payment that is reserved first", () => {
  const states: [state: string, status: CheckoutStatus, stage: string, words: string][] = [
    [
      "to sign",
      base,
      "pay",
      "|You authorize up to 19.90 USDC. Blue Bottle Books can take it until Jan 31, 2026, 12:00",
    ],
    ["signed", { ...base, status: "verifying", relaying: true }, "reserving", "Reserving your payment|"],
    ["reserved", withAmounts("authorized", { left: "19.90" }), "reserved", "Reserved until Jan 31, 2026, 12:00"],
    [
      "that its merchant did not take in time",
      withAmounts("authorized", { left: "19.90", phase: "releasing", reclaim }),
      "reserved",
      "Waiting to be released|The time to take it has passed. 19.90 USDC is returned to your wallet automatically. If it is not there by Jan 31, 2026, 1:00",
    ],
    [
      "that was not released in time",
      withAmounts("authorized", { left: "19.90", phase: "reclaimable", reclaim }),
      "reserved",
      "You can withdraw your money|19.90 USDC could not be released in time.",
    ],
    [
      "captured in part, and the rest not released in time",
      withAmounts("confirmed", { captured: "12.00", left: "7.90", phase: "reclaimable", reclaim }),
      "paid",
      "Payment complete|Blue Bottle Books took 12.00 of 19.90 USDC. 7.90 USDC could not be released in time. You can withdraw it",
    ],
    [
      "reserved, to be captured at once",
      withAmounts("authorized", { capture: "automatic", left: "19.90" }),
      "reserved",
      "Your payment is reserved|It is being sent to Blue Bottle Books.",
    ],
    [
      "captured",
      withAmounts("confirmed", { captured: "19.90" }),
      "paid",
      "Payment complete|Blue Bottle Books has received",
    ],
    [
      "captured in part",
      withAmounts("confirmed", { captured: "12.00", left: "7.90" }),
      "paid",
      "Payment complete|Blue Bottle Books took 12.00 of 19.90 USDC. The rest is reserved until Jan 31, 2026",
    ],
    [
      "captured in part, the rest released",
      withAmounts("confirmed", { captured: "12.00", released: "7.90" }),
      "paid",
      "Payment complete|Blue Bottle Books took 12.00 of 19.90 USDC. The rest was returned to your wallet.",
    ],
    [
      "released",
      withAmounts("voided", { released: "19.90" }),
      "released",
      "Your reservation was released|Blue Bottle Books took nothing. 19.90 USDC was returned",
    ],
    [
      "refunded in part",
      withAmounts("partially_refunded", { captured: "19.90", refunded: "5.00" }),
      "paid",
      "Payment complete|Blue Bottle Books has received your payment. 5.00 USDC was refunded to your wallet.",
    ],
    [
      "refunded",
      withAmounts("refunded", { captured: "19.90", refunded: "19.90" }),
      "refunded",
      "Your payment was refunded|19.90 USDC was returned",
    ],
    [
      "expired",
      { ...base, status: "expired" },
      "expired",
      "This payment has expired|The time to pay has run out. Nothing was",
    ],
    ["over, and not written yet", { ...base, over: true }, "expired", "This payment has expired|"],
    ["failed", { ...base, status: "failed" }, "failed", "This payment did not go through|Nothing was taken"],
    ["paused", { ...base, paused: true }, "paused", "Payments are paused|Nothing can be reserved right now."],
    ["without a relay wallet", { ...base, gasless: false }, "paused", "Payments are paused|Nothing can be reserved"],
    ["at a silent network", { ...base, stale: true }, "unknown", "We can't see the network right now|"],
  ]

  it.each(states)("%s", (_, status, stage, words) => {
    expect(stageOf(status, {})).toBe(stage)
    expect(said(status).replaceAll("\u00a0", " ")).toContain(words)
    for (const lang of Object.keys(languages) as Language[]) expect(said(status, lang)).not.toMatch(/[{}]|undefined/)
  })

  it("is done for its payer while its merchant may take it, and not while it is to come back", () => {
    const phases = ["held", "releasing", "reclaimable"] as const
    const seen = phases.map(phase => {
      const status = withAmounts("authorized", { left: "19.90", phase, reclaim })
      return [isDone("reserved", status), isSettled(status)]
    })
    expect(seen).toEqual([
      [true, true],
      [false, false],
      [false, false],
    ])
  })

  it("is asked for while nothing is reserved, and what was signed is not asked for again", () => {
    const statuses = ["pending", "verifying", "authorized", "confirmed", "voided", "refunded", "expired"] as const
    const status = fc.record({
      status: fc.constantFrom(...statuses),
      paused: fc.boolean(),
      stale: fc.boolean(),
      relaying: fc.boolean(),
      gasless: fc.boolean(),
      over: fc.boolean(),
      reservation: fc.constantFrom(base.reservation, nothing),
    })
    fc.assert(
      fc.property(status, change => {
        const changed = { ...base, ...change } as CheckoutStatus
        const asked = isPayable(stageOf(changed, {}))
        const { status, paused, stale, relaying, gasless, over } = changed
        const may = status === "pending" && !paused && !stale && !relaying && gasless && !over
        expect(asked).toBe(may && changed.reservation?.terms !== null)
        if (isDone(stageOf(changed, {}), changed)) expect(isSettled(changed)).toBe(true)
      }),
    )
  })

  it("lists what moved with its transactions, and nothing that did not", () => {
    const moves = (["reserve", "capture", "capture", "release", "refund"] as const).map((kind, i) => ({
      kind,
      txHash: `${HASH}${i}`,
    }))
    const amounts = { authorized: "19.90", captured: "12.00", released: "7.90", refunded: "2.00", left: "0.00" }
    expect(
      ledgerOf({ ...nothing, ...amounts, moves }).map(({ name, amount, txHashes }) => [
        name,
        amount,
        txHashes.map(each => each.at(-1)).join(""),
      ]),
    ).toEqual([
      ["amountReserved", "19.90", "0"],
      ["paidAmount", "12.00", "12"],
      ["amountReleased", "7.90", "3"],
      ["amountRefunded", "2.00", "4"],
    ])
    expect(ledgerOf(nothing)).toEqual([])
    // The amount that is still reserved is shown beside the others; if all of it is reserved, it is not shown twice.
    const names = (amounts: Partial<Reservation>) => ledgerOf({ ...nothing, ...amounts }).map(({ name }) => name)
    expect(names({ authorized: "19.90", left: "19.90" })).toEqual(["amountReserved"])
    expect(names({ authorized: "19.90", captured: "12.00", left: "7.90" })).toContain("amountLeft")
  })
})
