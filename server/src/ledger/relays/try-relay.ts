/**
 * Relays: payouts of the relay lane, which submit a holder's authorization and move its money into a deposit. A relay
 * is simulated before it is accepted. A buyer waits for the relay, so a relay that can't succeed is cancelled
 * immediately with the reason, and never held for long.
 */
import { sql } from "kysely"
import { encodeFunctionData, type Hex, parseAbi } from "viem"
import type { SignedBy } from "../../platform/chain/check-signatures.ts"
import { askAny } from "../../platform/chain/endpoints.ts"
import { firstFees, trialFees } from "../../platform/chain/fees.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { hexNumber, type RpcCall, type RpcResult } from "../../platform/chain/rpc.ts"
import { dataParts, quorumOf, sharedWalletState } from "../../platform/chain/wallet-state.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import { payoutKinds } from "../../platform/db/payout-kinds.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import { chainClock } from "../../platform/jobs/chain-clock.ts"
import { payoutEnds } from "../../platform/metrics.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import { watch } from "../deposits/make-deposits.ts"
import { depositSums } from "../deposits/sum-deposits.ts"
import { verifySoon } from "../scanner/queries.ts"
import {
  agreedTrial,
  askEach,
  askTogether,
  failedTrial,
  reportDisagreement,
  type Trial,
} from "../txmanager/simulate-on-each.ts"
import { OTHER_WALLET, orphanedReserves, reclaimedCalls, TAKEN_BACK } from "./find-orphaned-reserves.ts"
import { TOO_LATE } from "./read-relay-status.ts"

/**
 * The highest gas limits of relays. With a key's signature a relay takes about 100,000 gas. A contract's signature
 * takes any amount, and a passkey that is checked in Solidity takes 350,000. A signature that takes more than this
 * limit is not worth its gas. The relay of a contract wallet gets its simulated gas plus a quarter, so that the
 * contract can't burn much more than it used in the simulation.
 */
export const RELAY_GAS = { key: 200_000n, contract: 700_000n }
/**
 * The highest gas limits of an escrow's reservation. A reservation also moves the money on, stores what is held and,
 * for an operator's first payment, deploys the contract that holds the money. A contract wallet's reservation never
 * gets the gas limit of a key's reservation, because the limit distinguishes the two.
 */
export const RESERVE_GAS = { key: payoutKinds.reserve.gasOfKey, contract: 1_000_000n }

const REASON_LENGTH = 120
/** The reason that the buyer sees when the gas budget of the merchant, or of all merchants, is spent. */
export const NO_BUDGET = "The service relays no more payments for this merchant today."
/** The reason that the buyer sees when the budget for contract wallets is spent. */
export const NO_CONTRACT_BUDGET = "The service relays no more payments of contract wallets on this network today."

const tokenAbi = parseAbi([
  "function authorizationState(address, bytes32) view returns (bool)",
  "function balanceOf(address) view returns (uint256)",
])

const read = (network: Network, data: Hex): RpcCall => ({
  method: "eth_call",
  params: [{ to: network.token.address, data }, "latest"],
})

/** Builds the call that reads how much of the token an address holds. */
export const balanceCall = (network: Network, address: Address): RpcCall =>
  read(network, encodeFunctionData({ abi: tokenAbi, functionName: "balanceOf", args: [address] }))

/** Builds the call that reads whether a payer's nonce was used or cancelled. */
export const stateCall = (network: Network, payer: Address, nonce: Hash): RpcCall =>
  read(network, encodeFunctionData({ abi: tokenAbi, functionName: "authorizationState", args: [payer, nonce] }))

/** Adds a quarter to what the simulation used, because the cost of a signature differs a little between blocks. */
const withMargin = (gas: bigint): bigint => (gas * 5n) / 4n
const least = (a: bigint, b: bigint): bigint => (a < b ? a : b)

/**
 * Simulates the relay of an authorization from the relay wallet, at the gas price that the wallet will pay. Returns the
 * relay's gas limit and highest cost in wei, or a sentence that says why the chain would refuse the relay. Returns
 * `used` if the nonce is used, and `unseen` if the receiving address holds money that the scan has not found. Throws
 * `CHAIN_UNAVAILABLE` if too few endpoints agree.
 */
export async function tryRelay(
  ctx: Context,
  network: Network,
  relay: {
    wallet: Address
    /** The receiving address, if money sent there manually would be the same payment. */
    deposit: Pick<Row<"deposits">, "id" | "address"> | undefined
    payer: Address
    nonce: Hash
    amount: bigint
    to: Address
    data: Hex
    by: SignedBy
    /** The most gas that the relay may take, by kind of signature. */
    limits: Record<SignedBy, bigint>
  },
): Promise<"used" | "unseen" | WhyRefused | { gas: bigint; most: bigint }> {
  const { wallet: from, deposit, payer, nonce, amount, to, data, by, limits } = relay
  const gas = limits[by]
  const { market, balance = 0n, dataFee } = await sharedWalletState(network, from, ctx.signal)
  const fees = market && firstFees(market, ctx.settings.payoutMaxFee)
  const call = {
    from,
    to,
    data,
    gas: hexNumber(gas),
    ...(fees && trialFees(fees, gas, balance)),
  }
  const calls = [
    { method: "eth_call", params: [call, "latest"] },
    ...(by === "contract" ? [{ method: "eth_estimateGas", params: [call] }] : []),
    ...(deposit ? [balanceCall(network, deposit.address)] : []),
  ]
  // A contract wallet controls how long its call keeps a node busy, so its call shares no exchange with other requests.
  const ask = (calls: readonly RpcCall[]) =>
    by === "key" ? askTogether(ctx, { chain: network, calls }) : askEach(network, calls, ctx.signal)
  let answers = await ask(calls)
  // A token refuses a used nonce, so only a failed call needs a request for the nonce's state.
  const isDoubtful = answers.some(results => results?.some(each => !each.ok && failedTrial.test(each.error)))
  if (isDoubtful) answers = await ask([...calls, stateCall(network, payer, nonce)])
  const trials = answers.flatMap(results => trialOf(results, by, isDoubtful ? results?.at(-1) : UNUSED) ?? [])
  const agreed = agreedTrial(network, trials)
  if (!agreed) {
    reportDisagreement(ctx, network, "relay", trials)
    throw new ApiError("CHAIN_UNAVAILABLE")
  }
  const [{ outcome, error }] = agreed
  if (outcome === "used") return "used"
  const held = answers.map(results => results?.[calls.length - 1])
  if (deposit && (await unseenAt(ctx, network, new Map([[deposit.id, held]]))).size > 0) return "unseen"
  if (outcome === "fails") return await whyRefused(ctx, network, payer, amount, error ?? "")
  const mostOf = (gas: bigint): bigint => gas * (fees?.maxFee ?? 0n) + dataParts(data) * dataFee
  if (by === "key") return { gas, most: mostOf(gas) }
  // Takes the highest estimate of the endpoints that agree. With too little gas a relay fails, and a relay never takes
  // more than its limit.
  const took = agreed.map(each => each.took ?? 0n).reduce((a, b) => (a > b ? a : b))
  const limit = least(gas, withMargin(took))
  return { gas: limit, most: mostOf(limit) }
}

/**
 * One endpoint's outcome for an authorization. `error` comes from the node, and `took` is the estimated gas of a
 * successful call.
 */
interface RelayTrial extends Trial {
  error?: string
  took?: bigint
}

/** A token's answer for a nonce that is neither used nor cancelled. */
const UNUSED: RpcResult = { ok: true, value: `0x${"0".repeat(64)}` }

/**
 * Returns one endpoint's outcome, from its results in {@link tryRelay} and its answer `used` about the nonce. Undefined
 * if the endpoint itself failed.
 */
function trialOf(results: RpcResult[] | undefined, by: SignedBy, used: RpcResult | undefined): RelayTrial | undefined {
  const [trial, estimate] = results ?? []
  if (!used?.ok || !trial || (!trial.ok && !failedTrial.test(trial.error))) return undefined
  if (wordOf(used) === 1n) return { outcome: "used" }
  if (!trial.ok) return { outcome: "fails", error: trial.error }
  if (by === "key") return { outcome: "succeeds" }
  if (estimate && !estimate.ok && failedTrial.test(estimate.error)) return { outcome: "fails", error: estimate.error }
  const took = estimate && quantityOf(estimate)
  return took === undefined ? undefined : { outcome: "succeeds", took }
}

/** Returns the quantity in an answer; undefined if it has none. */
const quantityOf = (result: RpcResult): bigint | undefined =>
  result.ok && typeof result.value === "string" && /^0x[0-9a-f]{1,64}$/i.test(result.value)
    ? BigInt(result.value)
    : undefined

/** Returns the number that a call returned; undefined if it returned none. */
const wordOf = (result: RpcResult | undefined): bigint | undefined =>
  result?.ok && typeof result.value === "string" && /^0x[0-9a-f]{64}$/i.test(result.value)
    ? BigInt(result.value)
    : undefined

/**
 * Returns the deposits that hold more than was recorded, according to each endpoint's answer to {@link balanceCall}.
 * The buyer at such a deposit has just paid manually, and would pay twice. If there are three or more endpoints, two of
 * them must report this. Otherwise one is enough.
 */
export async function unseenAt(
  ctx: Context,
  network: Network,
  held: ReadonlyMap<bigint, readonly (RpcResult | undefined)[]>,
): Promise<Set<bigint>> {
  const sums = await depositSums(ctx, network.token.address, [...held.keys()])
  const known = [...sums].map(([id, { came, went }]) => ({ id, known: came - went }))
  const enough = network.endpoints.length > 2 ? 2 : 1
  const holdingMore = (id: bigint, known: bigint) =>
    (held.get(id) ?? []).filter(result => (wordOf(result) ?? known) > known)
  return new Set(known.filter(({ id, known }) => holdingMore(id, known).length >= enough).map(({ id }) => id))
}

/** The reason why a token refuses a transfer. */
export interface WhyRefused {
  /** A sentence for the payer. */
  words: string
  /** Whether the payer's balance is too low. */
  isShort: boolean
}

/** Returns why a token did not move `amount` base units for the payer. `error` comes from the endpoint. */
export async function whyRefused(
  ctx: Context,
  network: Network,
  payer: Address,
  amount: bigint,
  error: string,
): Promise<WhyRefused> {
  const { symbol, decimals } = network.token
  const [result] = await askAny(network.endpoints, [balanceCall(network, payer)], ctx.signal).catch(
    (): RpcResult[] => [],
  )
  const balance = wordOf(result)
  const text = (value: bigint) => formatAmount(value, decimals)
  if (balance !== undefined && balance < amount)
    return { words: `The wallet holds ${text(balance)} of ${text(amount)} ${symbol}.`, isShort: true }
  return { words: otherwise(symbol, error), isShort: false }
}

/** Returns why a token refuses a transfer that the payer's balance covers. */
function otherwise(symbol: string, error: string): string {
  if (/blacklist/i.test(error)) return `The issuer of ${symbol} has blocked this wallet.`
  if (/used or cancel/i.test(error)) return "The authorization was already used, or cancelled by its wallet."
  // The contract wallet approved in the simulation, but the token gives the wallet only as much gas as the relay has.
  if (/invalid signature|out ?of ?gas|gas required/i.test(error))
    return `${symbol} does not accept this wallet's signature.`
  const reason = error.replace(/^.*revert(ed)?:?\s*/i, "").slice(0, REASON_LENGTH)
  return reason === ""
    ? `${symbol} refuses the transfer.`
    : `${symbol} refuses the transfer: ${reason.replace(/\.$/, "")}.`
}

/**
 * SQL: whether a transfer `t` with claim `c` counts, or will count once it is deep enough, screened or settled. A
 * transfer that was refused for good, returned, or accepted as extra money does not count.
 */
export const isArriving = sql`t.state <> 'gone' and not exists (select from payments p where p.id = c.payment_id
  and (p.status = 'returned' or p.exception = 'sanctioned' or (p.status = 'granted' and p.beside)))`

/** Cancels a relay without a nonce, with a sentence as the reason. The relay's authorization may be submitted again. */
export async function cancelRelay(
  ctx: TxContext,
  row: Pick<Row<"payouts">, "id" | "chain_id">,
  reason: string,
): Promise<void> {
  const cancelled = await ctx.db
    .updateTable("payouts")
    .set({ state: "cancelled", held_reason: null, held_detail: reason, updated_at: ctx.now() })
    .where("id", "=", row.id)
    .where("state", "in", ["queued", "held"])
    .executeTakeFirst()
  if (cancelled.numUpdatedRows === 0n) return
  ctx.log.info({ payoutId: row.id, reason }, "a relay is cancelled")
  const network = ctx.chain.networks.find(each => each.chainId === row.chain_id)
  payoutEnds.inc({ network: network?.name ?? "", wallet: "relay", end: "cancelled" })
}

/**
 * Cancels relays that expired or that nobody can sign any more, and keeps watching the receiving addresses of open
 * relays.
 */
export async function tendRelays(ctx: Context, network: Network): Promise<void> {
  const over = await ctx.db
    .selectFrom("payouts")
    .selectAll()
    .where("chain_id", "=", network.chainId)
    .where("lane", "=", "relay")
    .where("state", "in", ["queued", "held"])
    .where("relay_by", "<=", chainClock(ctx, sql`${network.chainId}`))
    .execute()
  for (const row of over) await cancelRelay(ctx, row, TOO_LATE)
  const orphans = await orphanedReserves(ctx, network)
  for (const row of orphans) await cancelRelay(ctx, row, OTHER_WALLET)
  for (const row of await reclaimedCalls(ctx, network)) await cancelRelay(ctx, row, TAKEN_BACK)
  if (over.length + orphans.length > 0) await verifySoon(ctx, network.chainId)
  const open = await sql<{ resource: string }>`
    select distinct d.resource_id as resource from payouts i join deposits d on d.id = i.deposit_id
    where i.chain_id = ${network.chainId} and i.lane = 'relay' and i.state in ('queued', 'held', 'assigned', 'mined')`.execute(
    ctx.db,
  )
  if (open.rows.length > 0) await watch(ctx, ...open.rows.map(({ resource }) => resource))
}

/**
 * Returns the ids of relays whose authorization can't move money any more, because all responding endpoints report its
 * nonce as used or cancelled. Throws `CHAIN_UNAVAILABLE` if fewer endpoints than a quorum answer. If one endpoint's lie
 * made a buyer sign another authorization, the buyer could pay twice.
 */
export async function voided(
  ctx: Context,
  network: Network,
  relays: readonly Pick<Row<"payouts">, "id" | "payer" | "auth_nonce">[],
): Promise<Set<string>> {
  const asked = relays.flatMap(({ id, payer, auth_nonce: nonce }) => (payer && nonce ? [{ id, payer, nonce }] : []))
  if (asked.length === 0) return new Set()
  const calls = asked.map(({ payer, nonce }) => stateCall(network, payer, nonce))
  const needed = quorumOf(network)
  const answers = await askEach(network, calls, ctx.signal)
  const states = answers.flatMap(results => {
    const words = results?.map(wordOf)
    return words?.every(word => word !== undefined) ? [words] : []
  })
  if (states.length < needed) throw new ApiError("CHAIN_UNAVAILABLE")
  return new Set(asked.filter((_, i) => states.every(words => words[i] === 1n)).map(({ id }) => id))
}
