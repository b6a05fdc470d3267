/** The escrow's contracts with one check taken out of each, to show that the property tests would notice. Pure. */
import type { Focus } from "./escrow-steps.ts"

/** The files that a mutant has a copy of its own of. */
const FILES = ["AuthCaptureEscrow.sol", "EscrowBase.sol", "TokenStore.sol"] as const
const COLLECTORS = ["Erc3009Collector.sol", "RefundCollector.sol"] as const
type File = (typeof FILES)[number] | (typeof COLLECTORS)[number]

/** One check that is missing. */
export interface Mutant extends Focus {
  /** The check that is missing. */
  without: string
  file: File
  /** A text that the source has once, and what is there instead. */
  change: readonly [string, string]
}

const refusal = (without: string, condition: string, focus: Focus, file: File = "EscrowBase.sol"): Mutant => ({
  ...focus,
  without,
  file,
  change: [condition, condition.replace(/\) revert/, " && false) revert")],
})
const PAY = ["authorize", "charge"] as const
const BASE = "EscrowBase.sol"
const ODD = { via: "odd", delta: 0n, by: "whoever may", amount: "part", feeTo: "expected", fee: "least" } as const
const RIGHT = { ...ODD, via: "right" } as const
const atEnd = (expiry: "preApprovalExpiry" | "authorizationExpiry" | "refundExpiry") =>
  ({ ...ODD, at: { expiry, minus: 0 } }) as const

/** One for each check whose absence another check does not make up for. */
export const MUTANTS: readonly Mutant[] = [
  refusal("the caller", "if (msg.sender != expected) revert", { kinds: ["capture", "void"] }),
  refusal("an amount", "if (amount == 0) revert ZeroAmount", { kinds: ["capture", "charge"] }),
  refusal("what the payer signed for", "if (amount > paymentInfo.maxAmount) revert", {
    terms: "plain",
    kinds: PAY,
    like: { ...ODD, amount: "more" },
  }),
  refusal("the end of the payer's word", "if (block.timestamp >= preApproval) revert", {
    terms: "plain",
    kinds: PAY,
    like: atEnd("preApprovalExpiry"),
  }),
  {
    without: "the last second of the payer's word",
    file: BASE,
    terms: "plain",
    kinds: PAY,
    like: atEnd("preApprovalExpiry"),
    change: ["block.timestamp >= preApproval", "block.timestamp > preApproval"],
  },
  {
    without: "a capture after the payer's word",
    file: BASE,
    terms: "captureEndsFirst",
    kinds: PAY,
    like: RIGHT,
    change: ["if (preApproval > authorization || ", "if ("],
  },
  {
    without: "a refund after the capture",
    file: BASE,
    terms: "refundEndsFirst",
    kinds: PAY,
    like: RIGHT,
    change: [" || authorization > refundEnd", ""],
  },
  refusal("the bound of fees", "if (maxFeeBps > MAX_FEE_BPS) revert", { terms: "feeAbove", kinds: PAY, like: RIGHT }),
  refusal("the order of the bounds", "if (minFeeBps > maxFeeBps) revert", {
    terms: "feesCrossed",
    kinds: ["authorize"],
    like: RIGHT,
  }),
  refusal("a payment once", "if (paymentState[hash].hasCollectedPayment) revert", {
    terms: "plain",
    kinds: PAY,
    like: ODD,
  }),
  {
    without: "the last second of captures",
    file: BASE,
    terms: "plain",
    kinds: ["capture"],
    like: atEnd("authorizationExpiry"),
    change: [">= paymentInfo.authorizationExpiry", "> paymentInfo.authorizationExpiry"],
  },
  {
    without: "the first second of reclaims",
    file: BASE,
    terms: "plain",
    kinds: ["reclaim"],
    like: atEnd("authorizationExpiry"),
    change: ["timestamp < paymentInfo.authorizationExpiry", "timestamp <= paymentInfo.authorizationExpiry"],
  },
  {
    without: "the last second of refunds",
    file: BASE,
    terms: "plain",
    kinds: ["refund"],
    like: atEnd("refundExpiry"),
    change: [">= paymentInfo.refundExpiry", "> paymentInfo.refundExpiry"],
  },
  {
    without: "what was captured taken from what is held",
    file: BASE,
    kinds: ["capture"],
    like: RIGHT,
    change: ["state.capturableAmount = held - uint120(amount);", ""],
  },
  {
    without: "what was captured added to what can be refunded",
    file: BASE,
    kinds: ["capture"],
    like: RIGHT,
    change: ["state.refundableAmount += uint120(amount);", ""],
  },
  {
    without: "what was refunded taken from what can be",
    file: BASE,
    kinds: ["refund"],
    like: ODD,
    change: ["paymentState[hash].refundableAmount = captured - uint120(amount);", ""],
  },
  refusal("something held", "if (amount == 0) revert ZeroAuthorization", { kinds: ["void"] }),
  {
    without: "what was returned taken from what is held",
    file: BASE,
    kinds: ["void"],
    like: RIGHT,
    change: ["paymentState[hash].capturableAmount = 0;", "paymentState[hash].capturableAmount = uint120(amount);"],
  },
  refusal("the receiver of fees", "if (expected != address(0) && feeReceiver != expected) revert", {
    terms: "fixedReceiver",
    kinds: ["charge", "capture"],
  }),
  refusal("the collector's kind", "if (collector.collectorType() != kind) revert", {
    terms: "plain",
    kinds: PAY,
    like: { ...RIGHT, via: "wrong" },
  }),
  refusal("what was collected", "if (token.balanceOf(store) != before + amount) revert", {
    terms: "plain",
    kinds: PAY,
    like: { ...ODD, delta: -1n },
  }),
  {
    without: "no more than was asked for",
    file: BASE,
    terms: "plain",
    kinds: PAY,
    like: { ...ODD, delta: 1n },
    change: ["token.balanceOf(store) != before + amount", "token.balanceOf(store) < before + amount"],
  },
  {
    without: "one call at a time",
    file: BASE,
    terms: "odd's",
    kinds: ["nested"],
    like: RIGHT,
    change: [
      "external nonReentrant onlySender(paymentInfo.operator) validAmount(amount) {\n        bytes32 hash = _requirePayable",
      "external onlySender(paymentInfo.operator) validAmount(amount) {\n        bytes32 hash = _requirePayable",
    ],
  },
  {
    without: "a store for each operator",
    file: BASE,
    change: [
      "return bytes32(bytes20(operator))",
      "return bytes32(bytes20(operator == address(0) ? operator : address(0)))",
    ],
  },
  {
    without: "the fee taken from the receiver's part",
    file: BASE,
    terms: "withFees",
    kinds: ["charge"],
    like: RIGHT,
    change: ["paymentInfo.receiver, amount - fee)", "paymentInfo.receiver, amount)"],
  },
  {
    without: "the least fee",
    file: "AuthCaptureEscrow.sol",
    terms: "withFees",
    kinds: ["charge"],
    like: { ...ODD, amount: "all", fee: "below" },
    change: ["feeAmount < least || ", ""],
  },
  {
    without: "the most of a fee",
    file: "AuthCaptureEscrow.sol",
    terms: "withFees",
    kinds: ["charge"],
    like: { ...ODD, fee: "above" },
    change: [" || feeAmount > most", ""],
  },
  refusal(
    "the escrow's word for a store",
    "if (msg.sender != authCaptureEscrow) revert",
    { kinds: ["authorize", "direct"], like: { direct: "store" } },
    "TokenStore.sol",
  ),
  refusal(
    "the escrow's word for a payment",
    "if (msg.sender != authCaptureEscrow) revert",
    { terms: "plain", kinds: ["direct"], like: { direct: "payments" } },
    "Erc3009Collector.sol",
  ),
  {
    without: "the payer zero in what is signed",
    file: "Erc3009Collector.sol",
    kinds: ["authorize"],
    like: RIGHT,
    change: ["signed.payer = address(0);", ""],
  },
  {
    without: "the rest for the payer",
    file: "Erc3009Collector.sol",
    terms: "plain",
    kinds: ["authorize"],
    like: RIGHT,
    change: ["token.safeTransfer(paymentInfo.payer,", "token.safeTransfer(tokenStore,"],
  },
  refusal(
    "the escrow's word for a refund",
    "if (msg.sender != authCaptureEscrow) revert",
    { terms: "plain", kinds: ["direct"], like: { direct: "refunds" } },
    "RefundCollector.sol",
  ),
  refusal(
    "the operator of refunds",
    "if (paymentInfo.operator != operator) revert",
    { terms: "odd's", kinds: ["charge", "refund"], like: RIGHT },
    "RefundCollector.sol",
  ),
  refusal(
    "refunds without fees",
    "if (paymentInfo.maxFeeBps != 0) revert",
    { terms: "withFees", kinds: ["charge", "refund"], like: RIGHT },
    "RefundCollector.sol",
  ),
]

/** Which contract of a mutant's folder is another one; the others are the true ones. */
export const contractOf = ({ file }: Mutant): File => COLLECTORS.find(name => name === file) ?? "AuthCaptureEscrow.sol"

const SEEDS: Record<string, number> = {
  "the caller": 8,
  "a payment once": 2,
  "the last second of refunds": 25,
  "one call at a time": 3,
  "what was refunded taken from what can be": 24,
  "the receiver of fees": 11,
  "the operator of refunds": 3,
  "refunds without fees": 3,
}

/** The seed of the calls: one whose first run notices the mutant, found by trying. With seed 1 it took up to all of twenty. */
export const seedOf = ({ without }: Mutant): number => SEEDS[without] ?? 1

/**
 * The sources of all mutants, each in a folder named by its number, beside what they share; throws where a text is not found
 * just once.
 */
export function mutantSources(sources: Record<string, string>): Record<string, string> {
  const shared = { "EscrowTypes.sol": sources["EscrowTypes.sol"] ?? "" }
  const mutated = MUTANTS.flatMap(mutant => {
    const { without, file, change } = mutant
    const [from, to] = change
    const i = MUTANTS.indexOf(mutant)
    const files: readonly File[] = contractOf(mutant) === "AuthCaptureEscrow.sol" ? FILES : [file]
    return files.map((name): [string, string] => {
      const source = (sources[name] ?? "").replaceAll('"./EscrowTypes.sol"', '"EscrowTypes.sol"')
      const parts = source.split(from)
      if (name === file && parts.length !== 2)
        throw new Error(`${without}: the source has it ${parts.length - 1} times`)
      return [`${i}/${name}`, name === file ? parts.join(to) : source]
    })
  })
  return { ...shared, ...Object.fromEntries(mutated) }
}
