/**
 * What the escrow and its collectors must do, written a second time as a model: it says for each call whether it succeeds and
 * what moves. The property tests drive random calls through both and compare. Pure.
 */
import type { PaymentInfo } from "../server/src/platform/chain/escrow.ts"
import type { EscrowVersion } from "../server/src/platform/chain/escrow-deployments.ts"
import { type Address, ZERO_ADDRESS } from "../server/src/platform/chain/hex.ts"

/** Who pulls: the collectors of the service, or one that delivers `delta` more than it should, of its own tokens. */
export type Via = { by: "payments" | "refunds" } | { by: "oddPayments" | "oddRefunds"; delta: bigint }

/** What a contract is asked to do. Fees are in the version's unit: base units, in v1.0 hundredths of a percent. */
export type Call =
  | { kind: "authorize"; info: PaymentInfo; amount: bigint; via: Via }
  | { kind: "charge"; info: PaymentInfo; amount: bigint; via: Via; fee: bigint; feeReceiver: Address }
  | { kind: "capture"; info: PaymentInfo; amount: bigint; fee: bigint; feeReceiver: Address }
  | { kind: "void" | "reclaim"; info: PaymentInfo }
  | { kind: "refund"; info: PaymentInfo; amount: bigint; via: Via }
  /** Asked of a collector or a store past the escrow. */
  | { kind: "direct"; of: "payments" | "refunds" | "store"; info: PaymentInfo; amount: bigint }
  /** A payment whose collector delivers nothing, but authorizes another payment meanwhile. */
  | { kind: "nested"; info: PaymentInfo; inner: PaymentInfo; amount: bigint }

/** What does not change. */
export interface World {
  version: EscrowVersion
  /** Whose payments the refund collector refunds. */
  operator: Address
  /** Who allowed the refund collector everything. */
  merchant: Address
  /** The collector that may deliver too much or too little. */
  odd: Record<"oddPayments" | "oddRefunds", Address>
  storeOf: (operator: Address) => Address
}

/** What calls change. */
export interface State {
  balances: Map<Address, bigint>
  /** By the salt, which every payment has for itself. */
  payments: Map<bigint, { capturable: bigint; refundable: bigint }>
  /** The payments whose signature was used. */
  signed: Set<bigint>
}

class Refused extends Error {}

const refuse = (isWrong: boolean): void => {
  if (isWrong) throw new Refused()
}

/** Whether a call by `sender` at `time` (Unix seconds) succeeds; then it has changed `state`, and otherwise not at all. */
export function succeeds(world: World, state: State, sender: Address, time: number, call: Call): boolean {
  const before = structuredClone(state)
  try {
    carryOut(world, state, sender, time, call)
    return true
  } catch (error) {
    if (!(error instanceof Refused)) throw error
    Object.assign(state, before)
    return false
  }
}

function carryOut(world: World, state: State, sender: Address, time: number, call: Call): void {
  const { info, kind } = call
  refuse(kind === "direct" || kind === "nested")
  refuse(sender !== (kind === "reclaim" ? info.payer : info.operator))
  const store = world.storeOf(info.operator)
  const payment = state.payments.get(info.salt) ?? { capturable: 0n, refundable: 0n }
  if ("amount" in call) refuse(call.amount <= 0n)
  if (kind === "authorize" || kind === "charge") {
    refuse(call.amount > info.maxAmount || state.payments.has(info.salt) || time >= info.preApprovalExpiry)
    refuse(info.preApprovalExpiry > info.authorizationExpiry || info.authorizationExpiry > info.refundExpiry)
    refuse(info.maxFeeBps > 10_000 || info.minFeeBps > info.maxFeeBps)
    pull(world, state, time, info, call.amount, call.via, "Payments")
    payment[kind === "authorize" ? "capturable" : "refundable"] = call.amount
  }
  if (kind === "capture") {
    refuse(time >= info.authorizationExpiry || call.amount > payment.capturable)
    payment.capturable -= call.amount
    payment.refundable += call.amount
  }
  if (kind === "capture" || kind === "charge") {
    const fee = feeOf(world.version, info, call.amount, call.fee, call.feeReceiver)
    move(state, store, call.feeReceiver, fee)
    move(state, store, info.receiver, call.amount - fee)
  }
  if (kind === "void" || kind === "reclaim") {
    refuse(payment.capturable === 0n || (kind === "reclaim" && time < info.authorizationExpiry))
    move(state, store, info.payer, payment.capturable)
    payment.capturable = 0n
  }
  if (kind === "refund") {
    refuse(time >= info.refundExpiry || call.amount > payment.refundable)
    pull(world, state, time, info, call.amount, call.via, "Refunds")
    move(state, store, info.payer, call.amount)
    payment.refundable -= call.amount
  }
  state.payments.set(info.salt, payment)
}

/** The fee in base units. */
function feeOf(version: EscrowVersion, info: PaymentInfo, amount: bigint, fee: bigint, receiver: Address): bigint {
  const part = (bps: bigint) => (amount * bps) / 10_000n
  const least = BigInt(info.minFeeBps)
  const most = BigInt(info.maxFeeBps)
  if (version === "v1.0") refuse(fee < least || fee > most)
  else refuse(fee < part(least) || fee > part(most))
  refuse(fee > 0n && receiver === ZERO_ADDRESS)
  refuse(info.feeReceiver !== ZERO_ADDRESS && receiver !== info.feeReceiver)
  return version === "v1.0" ? part(fee) : fee
}

/** Tokens go into the operator's store. */
function pull(
  world: World,
  state: State,
  time: number,
  info: PaymentInfo,
  amount: bigint,
  via: Via,
  what: "Payments" | "Refunds",
): void {
  const store = world.storeOf(info.operator)
  refuse(!via.by.endsWith(what) && via.by !== what.toLowerCase())
  if ("delta" in via) {
    refuse(via.delta !== 0n)
    move(state, world.odd[via.by], store, amount)
  } else if (via.by === "payments") {
    refuse(state.signed.has(info.salt) || time >= info.preApprovalExpiry)
    refuse((state.balances.get(info.payer) ?? 0n) < info.maxAmount)
    state.signed.add(info.salt)
    move(state, info.payer, store, amount)
  } else {
    refuse(info.operator !== world.operator || info.maxFeeBps !== 0 || info.receiver !== world.merchant)
    move(state, info.receiver, store, amount)
  }
}

function move(state: State, from: Address, to: Address, amount: bigint): void {
  if (amount === 0n) return
  const held = state.balances.get(from) ?? 0n
  refuse(held < amount)
  state.balances.set(from, held - amount)
  state.balances.set(to, (state.balances.get(to) ?? 0n) + amount)
}
