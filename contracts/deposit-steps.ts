/** Random steps of an attack on the deposit contracts, in the words of the roles that take part. Pure. */
import fc from "fast-check"
import type { TermsArgument } from "../server/src/platform/chain/deposit-terms.ts"
import type { GiveBack } from "../server/src/platform/chain/give-back.ts"

/** Who sends, is paid or signs. */
export const ROLES = [
  "operator",
  "guardian",
  "next",
  "thief",
  "owner",
  "accomplice",
  "approver",
  "payeeA",
  "payeeB",
  "payer",
  "wallet",
  "signer",
] as const
/** An account. */
export type Role = (typeof ROLES)[number]
/** An account, or an address where money would be lost. */
export type Place = Role | "zero" | "factory" | "deposit" | "token"

/** Every deposit of a run has a number; their terms are in `deposit-world.ts`. */
const DEPOSITS = 5
/** The tokens of a world, by their manners. */
export const TOKENS = ["plain", "silent", "refusing", "taxing"] as const

/** What is asked, in words. */
export type Act =
  | { kind: "release"; of: number; alter: Alter; list: List; token: number; to: Place; amount: bigint }
  | {
      kind: "giveBack"
      of: number
      alter: Alter
      token: number
      to: Place
      amount: bigint
      nonce: number
      /** Seconds after the block that it is sent for. */
      deadline: bigint
      signer: "its own" | Role
      tamper: Tamper
    }
  | { kind: "recover"; of: number; alter: Alter; token: number | "ether" }
  | { kind: "pause" | "unpause" }
  | { kind: "setOperator"; next: Role | "zero" }
  | { kind: "send" | "sendEther"; of: number | "implementation"; token: number; to: Role }
  | { kind: "repeat"; back: number }

/** A group of calls. */
export type Kind = "release" | "giveBack" | "recover" | "rule" | "byOperator" | "direct" | "repeat"

/** A field of the terms that is not the deposit's. */
export type Alter = "none" | "salt" | keyof TermsArgument
/** Which payees are sent along. */
export type List = "own" | "none" | "reversed" | "reweighted" | "thief" | number
/** A field that was signed with another value than it is sent with. */
type Tamper = "none" | "chain" | "factory" | keyof GiveBack

/** One transaction. */
export interface Step {
  by: Role
  /** Mined at `openAfter` of this deposit, or a second later, where that is still to come. */
  at: { of: number; plus: bigint } | undefined
  /** The token calls back with the same call in the middle of its transfer. */
  reenters: boolean
  /** Sent through `multicall`. */
  batched: boolean
  act: Act
}

const often = <T>(usual: T, weight: number, ...others: readonly T[]): fc.Arbitrary<T> =>
  fc.oneof({ weight, arbitrary: fc.constant(usual) }, { weight: 1, arbitrary: fc.constantFrom(...others) })

const of = fc.nat({ max: DEPOSITS - 1 })
const token = fc.nat({ max: TOKENS.length - 1 })
const alter = often<Alter>("none", 6, "salt", "owner", "approver", "payeesHash", "openAfter")
const amount = fc.constantFrom(0n, 1n, 10n, 50n, 101n)
const to = fc.constantFrom<Place>(
  "owner",
  "payeeA",
  "payeeB",
  "accomplice",
  "thief",
  "operator",
  "payer",
  "zero",
  "factory",
  "deposit",
  "token",
)
const list = fc.oneof(
  { weight: 6, arbitrary: fc.constant<List>("own") },
  { weight: 2, arbitrary: fc.constantFrom<List>("none", "reversed", "reweighted", "thief") },
  { weight: 1, arbitrary: of },
)
const signer = often<"its own" | Role>("its own", 6, "thief", "operator", "guardian", "owner", "approver")
const tamper = often<Tamper>("none", 6, "chain", "factory", "token", "to", "amount", "deposit", "nonce", "deadline")
const role = fc.constantFrom<Role>("operator", "guardian", "next", "thief")

const release = fc.record({ kind: fc.constant("release" as const), of, alter, list, token, to, amount })
const giveBack = fc.record({
  kind: fc.constant("giveBack" as const),
  of,
  alter,
  token,
  to,
  amount,
  signer,
  tamper,
  nonce: fc.nat({ max: 3 }),
  deadline: fc.constantFrom(1_000n, 0n, -1n),
})
const recover = fc.record({
  kind: fc.constant("recover" as const),
  of,
  alter,
  token: fc.oneof({ weight: 3, arbitrary: token }, { weight: 1, arbitrary: fc.constant("ether" as const) }),
})
const rule = fc.oneof(
  fc.record({ kind: fc.constantFrom("pause" as const, "unpause" as const) }),
  fc.record({
    kind: fc.constant("setOperator" as const),
    next: fc.constantFrom<Role | "zero">("operator", "next", "thief", "zero"),
  }),
)
/** The deposit that the factory itself approves for. */
const ITS_OPERATORS = 2
/** What the operator may send back, and the guardian's answers to its theft: alone, either is too rare to meet the other. */
const byOperator = fc.oneof(
  rule,
  fc.record({
    kind: fc.constant("giveBack" as const),
    of: fc.constant(ITS_OPERATORS),
    alter: fc.constant<Alter>("none"),
    token: fc.constant(0),
    to: fc.constant<Place>("thief"),
    amount: fc.constant(1n),
    tamper: fc.constant<Tamper>("none"),
    signer,
    nonce: fc.nat({ max: 30 }),
    deadline: fc.constant(1_000n),
  }),
)
const direct = fc.record({
  kind: fc.constantFrom("send" as const, "sendEther" as const),
  of: fc.oneof(of, fc.constant("implementation" as const)),
  token,
  to: fc.constant<Role>("thief"),
})
const repeat = fc.record({ kind: fc.constant("repeat" as const), back: fc.nat({ max: 5 }) })

/** The calls of a kind, and how often they come by themselves. */
const acts: Record<Kind, { weight: number; arbitrary: fc.Arbitrary<Act> }> = {
  release: { weight: 8, arbitrary: release },
  giveBack: { weight: 8, arbitrary: giveBack },
  recover: { weight: 4, arbitrary: recover },
  rule: { weight: 2, arbitrary: rule },
  byOperator: { weight: 4, arbitrary: byOperator },
  direct: { weight: 2, arbitrary: direct },
  repeat: { weight: 2, arbitrary: repeat },
}

/** Sequences in which `attacker` sends most of the calls, and most are of the kind `focus` where one is given. */
export const stepsBy = (attacker: Role, length: number, focus?: Kind): fc.Arbitrary<Step[]> => {
  const by = fc.oneof({ weight: 4, arbitrary: fc.constant(attacker) }, { weight: 3, arbitrary: role })
  const act = fc.oneof<fc.MaybeWeightedArbitrary<Act>[]>(
    ...Object.values(acts),
    ...(focus ? [{ weight: 40, arbitrary: acts[focus].arbitrary }] : []),
  )
  const at = fc.option(fc.record({ of, plus: fc.constantFrom(0n, 1n) }), { nil: undefined, freq: 8 })
  const step = fc.record({ by, at, reenters: often(false, 4, true), batched: often(false, 4, true), act })
  return fc.array(step, { minLength: length / 2, maxLength: length, size: "max" })
}
