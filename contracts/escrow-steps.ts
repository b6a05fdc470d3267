/** Random calls of the escrow by everyone who has a part in it, most of them nearly right. Pure. */
import fc from "fast-check"
import type { Via } from "./escrow-model.ts"

/** Who calls. */
export const CALLERS = ["operator", "payer", "thief", "odd"] as const
/** An account that calls. */
export type Caller = (typeof CALLERS)[number]

/** What the terms of a payment are like. */
const TERMS = [
  "plain",
  "withFees",
  "fixedReceiver",
  "thief's",
  "odd's",
  "captureEndsFirst",
  "refundEndsFirst",
  "feeAbove",
  "feesCrossed",
] as const
/** A kind of terms. */
export type Terms = (typeof TERMS)[number]

const KINDS = ["authorize", "charge", "capture", "void", "reclaim", "refund", "direct", "nested"] as const
/** A kind of call. */
type Kind = (typeof KINDS)[number]

/** A call in words. */
export interface Step {
  kind: Kind
  /** Which payment of the run. */
  of: number
  by: "whoever may" | Caller
  amount: "all" | "more" | "part" | "none"
  fee: "least" | "most" | "below" | "above" | "none"
  feeTo: "expected" | "other" | "zero"
  via: "right" | "wrong" | "odd" | "oddOfTheOtherKind"
  delta: bigint
  direct: "payments" | "refunds" | "store"
  /** Mined at this expiry of the payment, or a second before, where that is still to come. */
  at: { expiry: "preApprovalExpiry" | "authorizationExpiry" | "refundExpiry"; minus: 0 | 1 } | undefined
}

/** A run: the kinds of its payments, and what is asked. */
export interface Run {
  terms: Terms[]
  steps: Step[]
}

/** What a mutant is likely to be noticed by. */
export interface Focus {
  terms?: Terms
  kinds?: readonly Kind[]
  /** What every step of these kinds is like. */
  like?: Partial<Step>
}

const often = <T>(usual: T, weight: number, ...others: readonly T[]): fc.Arbitrary<T> =>
  fc.oneof({ weight, arbitrary: fc.constant(usual) }, { weight: 1, arbitrary: fc.constantFrom(...others) })

const PAYMENTS = 3

const at = fc.option(
  fc.record({
    expiry: fc.constantFrom("preApprovalExpiry" as const, "authorizationExpiry" as const, "refundExpiry" as const),
    minus: fc.constantFrom(0 as const, 1 as const),
  }),
  { nil: undefined, freq: 6 },
)

const stepOf = (kind: fc.Arbitrary<Kind>): fc.Arbitrary<Step> =>
  fc.record({
    kind,
    of: fc.nat({ max: PAYMENTS - 1 }),
    by: often<Step["by"]>("whoever may", 6, ...CALLERS),
    amount: fc.constantFrom("all", "all", "part", "part", "part", "more", "none"),
    fee: often<Step["fee"]>("least", 4, "most", "below", "above", "none"),
    feeTo: often<Step["feeTo"]>("expected", 5, "other", "zero"),
    via: often<Step["via"]>("right", 3, "wrong", "odd", "oddOfTheOtherKind"),
    delta: fc.constantFrom(0n, 0n, 0n, -1n, 1n),
    direct: fc.constantFrom("payments", "refunds", "store"),
    at,
  })

const usualKind = fc.oneof(
  { weight: 5, arbitrary: fc.constant<Kind>("authorize") },
  { weight: 2, arbitrary: fc.constant<Kind>("charge") },
  { weight: 5, arbitrary: fc.constant<Kind>("capture") },
  { weight: 4, arbitrary: fc.constant<Kind>("refund") },
  { weight: 4, arbitrary: fc.constantFrom<Kind>("void", "reclaim", "direct", "nested") },
)

/** Runs of up to `length` calls, most of them of the kinds and terms of `focus` where one is given. */
export function runs(length: number, focus?: Focus): fc.Arbitrary<Run> {
  const terms = focus?.terms ? fc.constant(focus.terms) : fc.constantFrom(...TERMS)
  const focused = focus?.kinds
    ? stepOf(fc.constantFrom(...focus.kinds)).map(step => ({ ...step, ...focus.like }))
    : undefined
  const step = focused
    ? fc.oneof({ weight: 2, arbitrary: stepOf(usualKind) }, { weight: 3, arbitrary: focused })
    : stepOf(usualKind)
  return fc.record({
    terms: fc.array(terms, { minLength: PAYMENTS, maxLength: PAYMENTS }),
    steps: fc.array(step, { minLength: length / 2, maxLength: length, size: "max" }),
  })
}

/** The collector of a step. */
export function viaOf({ kind, via, delta }: Step): Via {
  const [own, other] = kind === "refund" ? (["refunds", "payments"] as const) : (["payments", "refunds"] as const)
  const odd = (by: "payments" | "refunds") => (by === "payments" ? "oddPayments" : "oddRefunds")
  if (via === "right") return { by: own }
  if (via === "wrong") return { by: other }
  return { by: odd(via === "odd" ? own : other), delta }
}
