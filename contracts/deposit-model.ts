/**
 * What the deposit contracts must do, written a second time as a model: it says for each call whether it succeeds and what
 * moves. The property tests drive random calls through both and compare. Pure.
 */
import type { Hex } from "viem"
import {
  addressOfTerms,
  type Payee,
  payeesHash,
  type TermsArgument,
} from "../server/src/platform/chain/deposit-terms.ts"
import type { GiveBack } from "../server/src/platform/chain/give-back.ts"
import { type Address, ZERO_ADDRESS } from "../server/src/platform/chain/hex.ts"

/** How a token treats a transfer. */
type Manner = "plain" | "silent" | "refusing" | "taxing"

/** What a contract is asked to do. Terms and lists may be anybody's: an attacker sends what it likes. */
export type Call =
  | { kind: "release"; salt: Hex; terms: TermsArgument; payees: Payee[]; token: Address; to: Address; amount: bigint }
  | { kind: "giveBack"; salt: Hex; terms: TermsArgument; message: Omit<GiveBack, "deposit">; signed: Signed }
  | { kind: "recover"; salt: Hex; terms: TermsArgument; token: Address }
  | { kind: "pause" | "unpause" }
  | { kind: "setOperator"; next: Address }
  /** Asked of a deposit or of the code behind all, not of the factory. */
  | { kind: "send"; target: Address; token: Address; to: Address; amount: bigint }
  | { kind: "sendEther"; target: Address; to: Address }

/** Whose key signed what; the signer of a contract wallet is the wallet. */
interface Signed {
  by: Address
  chainId: number
  factory: Address
  message: GiveBack
}

/** What does not change. */
export interface World {
  chainId: number
  factory: Address
  implementation: Address
  guardian: Address
  tokens: Map<Address, Manner>
  /** Accounts that take ether. */
  takesEther: Set<Address>
}

/** What calls change. */
export interface State {
  operator: Address
  paused: boolean
  used: Set<string>
  inPlace: Set<Address>
  /** Balances by `token account`; ether is the token zero. */
  balances: Map<string, bigint>
  /** What a token calls in the middle of its next transfer. */
  armed: Map<Address, Call>
}

class Refused extends Error {}

const refuse = (isWrong: boolean): void => {
  if (isWrong) throw new Refused()
}
const key = (token: Address, account: Address) => `${token} ${account}`

/** The balance of an account in a token's base units; of ether, with the token zero, in wei. */
export const balanceIn = (state: State, token: Address, account: Address): bigint =>
  state.balances.get(key(token, account)) ?? 0n

/** Adds to a balance, or takes from it. */
function add(state: State, token: Address, account: Address, amount: bigint): void {
  state.balances.set(key(token, account), balanceIn(state, token, account) + amount)
}

/** Whether a call by `sender` at `time` (Unix seconds) succeeds; then it has changed `state`, and otherwise not at all. */
export function succeeds(world: World, state: State, sender: Address, time: bigint, call: Call): boolean {
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

function carryOut(world: World, state: State, sender: Address, time: bigint, call: Call): void {
  switch (call.kind) {
    case "release": {
      refuse(state.paused || sender !== state.operator)
      const named =
        payeesHash(call.payees) === call.terms.payeesHash && call.payees.some(each => each.address === call.to)
      refuse(call.to !== call.terms.owner && !named)
      pay(world, state, time, addressOfTerms(world.factory, call.salt, call.terms), call.token, call.to, call.amount)
      return
    }
    case "giveBack": {
      const deposit = addressOfTerms(world.factory, call.salt, call.terms)
      const { token, to, amount, nonce, deadline } = call.message
      const byOperator = call.terms.approver === world.factory
      const approved = byOperator ? sender === state.operator && !state.paused : isApproved(world, call, deposit)
      refuse(time > deadline || !approved || state.used.has(`${deposit} ${nonce}`))
      state.used.add(`${deposit} ${nonce}`)
      pay(world, state, time, deposit, token, to, amount)
      return
    }
    case "recover": {
      const deposit = addressOfTerms(world.factory, call.salt, call.terms)
      const { token, terms } = call
      if (token !== ZERO_ADDRESS) refuse(time <= terms.openAfter || !world.tokens.has(token))
      pay(world, state, time, deposit, token, terms.owner, balanceIn(state, token, deposit))
      return
    }
    case "pause":
    case "unpause":
      refuse(sender !== world.guardian || state.paused === (call.kind === "pause"))
      state.paused = call.kind === "pause"
      return
    case "setOperator":
      refuse(sender !== world.guardian || call.next === ZERO_ADDRESS)
      state.operator = call.next
      return
    default:
      // Where no code is, a call does nothing and does not fail.
      refuse(state.inPlace.has(call.target) || call.target === world.implementation)
  }
}

/** Whether the deposit's approver signed exactly this, for this factory on this chain. */
function isApproved(world: World, call: Call & { kind: "giveBack" }, deposit: Address): boolean {
  const { by, chainId, factory, message } = call.signed
  const asked: GiveBack = { ...call.message, deposit }
  return (
    by === call.terms.approver &&
    chainId === world.chainId &&
    factory === world.factory &&
    (Object.keys(asked) as (keyof GiveBack)[]).every(field => asked[field] === message[field])
  )
}

/** Money leaves a deposit, which is in place from then on. */
function pay(
  world: World,
  state: State,
  time: bigint,
  deposit: Address,
  token: Address,
  to: Address,
  amount: bigint,
): void {
  refuse([ZERO_ADDRESS, deposit, world.factory, token].includes(to))
  state.inPlace.add(deposit)
  const manner = token === ZERO_ADDRESS ? "plain" : world.tokens.get(token)
  refuse(token === ZERO_ADDRESS && !world.takesEther.has(to))
  const inner = state.armed.get(token)
  if (inner) {
    state.armed.delete(token)
    succeeds(world, state, token, time, inner)
  }
  refuse(manner === undefined || manner === "refusing" || balanceIn(state, token, deposit) < amount)
  add(state, token, deposit, -amount)
  add(state, token, to, manner === "taxing" ? amount - amount / 10n : amount)
}
