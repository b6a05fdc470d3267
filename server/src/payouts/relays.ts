/**
 * What is particular to relays, the intents that carry a holder's authorization out: they are tried before they are
 * promised, and who could be made to wait for one that can't be carried out is told at once, so they are never held for
 * long; and what they move comes into a deposit.
 */
import { sql } from "kysely"
import { encodeFunctionData, type Hex, parseAbi } from "viem"
import { type SignedBy, validBeforeOf } from "../chain/authorizations.ts"
import { askAny } from "../chain/endpoints.ts"
import { firstFees, trialFees } from "../chain/fees.ts"
import type { Address, Hash } from "../chain/hex.ts"
import type { Network } from "../chain/networks.ts"
import { hexNumber, type RpcCall, type RpcResult } from "../chain/rpc.ts"
import { lookAtWallet, quorumOf } from "../chain/wallet-state.ts"
import type { Context, TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { depositSums } from "../deposits/balance.ts"
import { warm } from "../deposits/deposits.ts"
import { ApiError } from "../errors.ts"
import { payoutEnds } from "../metrics.ts"
import { formatAmount } from "../money/amount.ts"
import { lookSoon } from "../scanner/queries.ts"
import { agreedTrial, askEach, reportDisagreement, type Trial } from "./trials.ts"

/**
 * The highest gas limits of relays. A key's signature takes some 100,000; a contract's as much as the contract likes, a
 * passkey checked in Solidity 350,000: beyond this limit nobody's signature is worth its gas. The relay of a contract wallet
 * gets as much as its trial took and a quarter more, so that it can't burn what it did not show.
 */
export const RELAY_GAS = { key: 200_000n, contract: 700_000n }

const REASON_LENGTH = 120
const DAY_MS = 86_400_000
/** Relays of one session, and of one payer in a day, that failed on chain: each cost gas, and after them he pays his own. */
export const MAX_REVERTED = 3
/** Why nothing is relayed where a gas budget has no room: the merchant's, or all merchants'. */
export const NO_BUDGET = "Nothing more is relayed for this merchant today."
/** The same of contract wallets, which have a budget of their own. */
export const NO_CONTRACT_BUDGET = "Nothing more is relayed for contract wallets on this network today."

/** The words of nodes for a call that fails by itself. */
export const failedTrial = /revert|vm (execution|exception)|evm error|out ?of ?gas|gas required|invalid opcode/i

const tokenAbi = parseAbi([
  "function authorizationState(address, bytes32) view returns (bool)",
  "function balanceOf(address) view returns (uint256)",
])

const read = (network: Network, data: Hex): RpcCall => ({
  method: "eth_call",
  params: [{ to: network.token.address, data }, "latest"],
})

/** How much of the token an address holds. */
export const balanceCall = (network: Network, address: Address): RpcCall =>
  read(network, encodeFunctionData({ abi: tokenAbi, functionName: "balanceOf", args: [address] }))

/** Whether the token has a nonce of a payer as used or cancelled. */
const stateCall = (network: Network, payer: Address, nonce: Hash): RpcCall =>
  read(network, encodeFunctionData({ abi: tokenAbi, functionName: "authorizationState", args: [payer, nonce] }))

/** A quarter more than a trial took: what a signature costs differs a little from block to block. */
const withMargin = (gas: bigint): bigint => (gas * 5n) / 4n
const least = (a: bigint, b: bigint): bigint => (a < b ? a : b)

/**
 * The gas limit of the relay of an authorization that the chain would carry out at this moment, by a trial run from the
 * relay wallet at the price that it will pay. Otherwise why not, in a sentence; `used` when its nonce is spent, `unseen` when
 * money lies at the receiving address that the scan has not found yet. A `CHAIN_UNAVAILABLE` when no node tells.
 */
export async function tryRelay(
  ctx: Context,
  network: Network,
  relay: {
    wallet: Address
    deposit: Pick<Row<"deposits">, "id" | "address">
    payer: Address
    nonce: Hash
    amount: bigint
    data: Hex
    by: SignedBy
  },
): Promise<"used" | "unseen" | { words: string } | { gas: bigint; maxFee: bigint }> {
  const { wallet: from, deposit, payer, nonce, amount, data, by } = relay
  const gas = RELAY_GAS[by]
  const { market, balance = 0n } = await lookAtWallet(network, from, ctx.signal)
  const fees = market && firstFees(market, ctx.settings.payoutMaxFee)
  const call = {
    ...{ from, to: network.token.address, data, gas: hexNumber(gas) },
    ...(fees && trialFees(fees, gas, balance)),
  }
  const calls = [
    stateCall(network, payer, nonce),
    { method: "eth_call", params: [call, "latest"] },
    balanceCall(network, deposit.address),
    ...(by === "contract" ? [{ method: "eth_estimateGas", params: [call] }] : []),
  ]
  const answers = await askEach(network, calls, ctx.signal)
  const trials = answers.flatMap(results => trialOf(results, by) ?? [])
  const agreed = agreedTrial(network, trials)
  if (!agreed) {
    reportDisagreement(ctx, network, "relay", trials)
    throw new ApiError("CHAIN_UNAVAILABLE")
  }
  const [{ outcome, error }] = agreed
  if (outcome === "used") return "used"
  const held = answers.map(results => results?.[2])
  if ((await unseenAt(ctx, network, new Map([[deposit.id, held]]))).size > 0) return "unseen"
  if (outcome === "fails") return { words: await whyRefused(ctx, network, payer, amount, error ?? "") }
  const maxFee = fees?.maxFee ?? 0n
  if (by === "key") return { gas, maxFee }
  // The most that any of them tells: too little would have it fail, and it takes no more than its limit.
  const took = agreed.map(each => each.took ?? 0n).reduce((a, b) => (a > b ? a : b))
  return { gas: least(gas, withMargin(took)), maxFee }
}

/** What one endpoint says of an authorization: `error` is the node's, `took` the gas of a call that succeeds, where it was estimated. */
interface RelayTrial extends Trial {
  error?: string
  took?: bigint
}

/** An endpoint's word on the calls of {@link tryRelay}; undefined where it had a bad moment. */
function trialOf(results: RpcResult[] | undefined, by: SignedBy): RelayTrial | undefined {
  const [used, trial, , estimate] = results ?? []
  if (!used?.ok || !trial || (!trial.ok && !failedTrial.test(trial.error))) return undefined
  if (wordOf(used) === 1n) return { outcome: "used" }
  if (!trial.ok) return { outcome: "fails", error: trial.error }
  if (by === "key") return { outcome: "succeeds" }
  if (estimate && !estimate.ok && failedTrial.test(estimate.error)) return { outcome: "fails", error: estimate.error }
  const took = estimate && quantityOf(estimate)
  return took === undefined ? undefined : { outcome: "succeeds", took }
}

/** The quantity that a node answered; undefined where it answered none. */
const quantityOf = (told: RpcResult): bigint | undefined =>
  told.ok && typeof told.value === "string" && /^0x[0-9a-f]{1,64}$/i.test(told.value) ? BigInt(told.value) : undefined

/** The number that a call returned; undefined when it returned none. */
const wordOf = (told: RpcResult | undefined): bigint | undefined =>
  told?.ok && typeof told.value === "string" && /^0x[0-9a-f]{64}$/i.test(told.value) ? BigInt(told.value) : undefined

/**
 * Of deposits, with each endpoint's answer to {@link balanceCall}, those that hold more than the rows explain: the buyer has
 * paid by hand a moment ago, and would pay twice. Of three or more endpoints two must say so, of fewer one.
 */
export async function unseenAt(
  ctx: Context,
  network: Network,
  held: ReadonlyMap<bigint, readonly (RpcResult | undefined)[]>,
): Promise<Set<bigint>> {
  const sums = await depositSums(ctx, network.token.address, [...held.keys()])
  const known = [...sums].map(([id, { came, went }]) => ({ id, known: came - went }))
  const enough = network.endpoints.length > 2 ? 2 : 1
  const tellMore = (id: bigint, known: bigint) => (held.get(id) ?? []).filter(told => (wordOf(told) ?? known) > known)
  return new Set(known.filter(({ id, known }) => tellMore(id, known).length >= enough).map(({ id }) => id))
}

/** In a sentence that a payer understands, why a token did not move `amount` for the payer; `error` is the node's word. */
export async function whyRefused(
  ctx: Context,
  network: Network,
  payer: Address,
  amount: bigint,
  error: string,
): Promise<string> {
  const { symbol, decimals } = network.token
  const [told] = await askAny(network.endpoints, [balanceCall(network, payer)], ctx.signal).catch((): RpcResult[] => [])
  const balance = wordOf(told)
  const text = (value: bigint) => formatAmount(value, decimals)
  if (balance !== undefined && balance < amount)
    return `The wallet holds ${text(balance)} of ${text(amount)} ${symbol}.`
  if (/blacklist/i.test(error)) return `The issuer of ${symbol} has blocked this wallet.`
  if (/used or cancel/i.test(error)) return "The authorization was used, or taken back by its wallet."
  // A contract's that was approved before: the token gives the contract no more gas than the relay has.
  if (/invalid signature|out ?of ?gas|gas required/i.test(error))
    return `${symbol} does not take this wallet's signature.`
  const reason = error.replace(/^.*revert(ed)?:?\s*/i, "").slice(0, REASON_LENGTH)
  return reason === ""
    ? `${symbol} refuses the transfer.`
    : `${symbol} refuses the transfer: ${reason.replace(/\.$/, "")}.`
}

/**
 * Of transfers `t` with claims `c`: what counts, or will when it is deep enough, screened or settled; not what was left out
 * for good, sent back, or accepted beside what paid.
 */
const isArriving = sql`t.state <> 'gone' and not exists (select from payments p where p.id = c.payment_id
  and (p.status = 'returned' or p.exception = 'sanctioned' or (p.status = 'granted' and p.beside)))`

/** What counts at a deposit, or will, in base units of the token. */
export async function arrivingAt(ctx: TxContext, depositId: bigint, token: Address): Promise<bigint> {
  const { rows } = await sql<{ sum: bigint }>`
    select coalesce(sum(t.value), 0)::numeric(78,0) as sum from transfers t left join claims c on c.transfer_id = t.id
    where t.deposit_id = ${depositId} and t.token = ${token} and ${isArriving}`.execute(ctx.db)
  return rows[0]?.sum ?? 0n
}

/**
 * Of these relays those that pay no longer just what their session lacks, as it was paid in another way meanwhile, was accepted
 * as it is, or its link is used up: carried out, they would take money that nobody asked for.
 */
export async function outpaid(ctx: TxContext, relays: readonly Row<"intents">[]): Promise<Set<string>> {
  if (relays.length === 0) return new Set()
  const { rows } = await sql<{ id: string }>`
    select i.id from intents i join deposits d on d.id = i.deposit_id join checkout_sessions s on s.id = d.session_id
      left join payment_links l on l.id = s.link_id
    where i.id in (${sql.join(relays.map(row => sql`${row.id}::uuid`))}) and (s.status = 'confirmed' or l.uses >= l.max_uses or s.amount - i.amount <> (
      select coalesce(sum(t.value), 0) from transfers t left join claims c on c.transfer_id = t.id
      where t.deposit_id = i.deposit_id and t.token = i.token and ${isArriving}))`.execute(ctx.db)
  return new Set(rows.map(row => row.id))
}

/**
 * Of these payers those whose relays failed on chain too often in a day: a contract wallet can have all of its fail, at our
 * cost alone, in as many sessions as it likes.
 */
export async function failingPayers(ctx: TxContext, payers: readonly Address[]): Promise<Set<Address>> {
  const rows = await ctx.db
    .selectFrom("intents")
    .select("payer")
    .where("payer", "in", [...payers])
    .where("succeeded", "=", false)
    .where("updated_at", ">", new Date(ctx.now().getTime() - DAY_MS))
    .groupBy("payer")
    .having(eb => eb(eb.fn.countAll(), ">=", MAX_REVERTED))
    .execute()
  return new Set(rows.flatMap(row => row.payer ?? []))
}

/** Ends a relay that has no nonce, with the reason in a sentence. Its authorization may be submitted again. */
export async function cancelRelay(ctx: Context, row: Row<"intents">, reason: string): Promise<void> {
  const cancelled = await ctx.db
    .updateTable("intents")
    .set({ state: "cancelled", held_reason: null, held_detail: reason, updated_at: ctx.now() })
    .where("id", "=", row.id)
    .where("state", "in", ["queued", "held"])
    .executeTakeFirst()
  if (cancelled.numUpdatedRows === 0n) return
  ctx.log.info({ intentId: row.id, reason }, "a relay is cancelled")
  const network = ctx.chain.networks.find(each => each.chainId === row.chain_id)
  payoutEnds.inc({ network: network?.name ?? "", wallet: "relay", end: "cancelled" })
}

/** Ends the relays whose time is over, and keeps the receiving addresses of the others in the scan. */
export async function tendRelays(ctx: Context, network: Network): Promise<void> {
  const over = await ctx.db
    .selectFrom("intents")
    .selectAll()
    .where("chain_id", "=", network.chainId)
    .where("lane", "=", "relay")
    .where("state", "in", ["queued", "held"])
    .where("relay_by", "<=", ctx.now())
    .execute()
  for (const row of over) await cancelRelay(ctx, row, "It could not be carried out before its time was over.")
  if (over.length > 0) await lookSoon(ctx, network.chainId)
  const open = await sql<{ resource: string }>`
    select coalesce(d.session_id, d.paywall_id) as resource from intents i join deposits d on d.id = i.deposit_id
    where i.chain_id = ${network.chainId} and i.lane = 'relay' and i.state in ('queued', 'held', 'assigned', 'mined')`.execute(
    ctx.db,
  )
  for (const { resource } of open.rows) await warm(ctx, resource)
}

/**
 * Of relays those whose authorization anyone can still carry out: their transaction is public, it reverted for good, and
 * `validBefore` is not over. Whoever pays in another way meanwhile may pay twice.
 */
export const replayable = <R extends Pick<Row<"intents">, "state" | "data">>(
  ctx: TxContext,
  relays: readonly R[],
): R[] =>
  relays.filter(({ state, data }) => state === "reverted" && validBeforeOf(data) * 1_000n > BigInt(ctx.now().getTime()))

/** The time from which none of these relays' authorizations can be carried out any more; undefined without any. */
export function replayableUntil(relays: readonly Pick<Row<"intents">, "data">[]): string | undefined {
  if (relays.length === 0) return undefined
  const last = relays.map(({ data }) => validBeforeOf(data)).reduce((a, b) => (a > b ? a : b))
  return new Date(Number.parseInt(`${last * 1_000n}`, 10)).toISOString()
}

/**
 * Of these relays those whose authorization can't move money any more, as the token has its nonce as used or cancelled by
 * every endpoint that answers. A `CHAIN_UNAVAILABLE` when fewer answer than must agree: who signs another authorization by
 * the word of one that lies may pay twice.
 */
export async function voided(ctx: Context, network: Network, relays: readonly Row<"intents">[]): Promise<Set<string>> {
  const asked = relays.flatMap(({ id, payer, auth_nonce: nonce }) => (payer && nonce ? [{ id, payer, nonce }] : []))
  if (asked.length === 0) return new Set()
  const calls = asked.map(({ payer, nonce }) => stateCall(network, payer, nonce))
  const quorum = quorumOf(network)
  const answers = await askEach(network, calls, ctx.signal)
  const states = answers.flatMap(results => {
    const words = results?.map(wordOf)
    return words?.every(word => word !== undefined) ? [words] : []
  })
  if (states.length < quorum) throw new ApiError("CHAIN_UNAVAILABLE")
  return new Set(asked.filter((_, i) => states.every(words => words[i] === 1n)).map(({ id }) => id))
}

/**
 * How the relays of a deposit stand: whether one may yet bring money that is not among the transactions `inSight`, what
 * became of the last one where that failed and the payer has tried nothing else since, until when a failed one can still be
 * carried out by anyone, and the transactions of all.
 */
export async function relayStanding(
  ctx: TxContext,
  depositId: bigint,
  inSight: ReadonlySet<Hash>,
): Promise<{ open: boolean; failure: string | null; replayableUntil: string | undefined; hashes: Set<Hash> }> {
  const relays = await ctx.db
    .selectFrom("intents")
    .innerJoin("deposits", "deposits.id", "intents.deposit_id")
    .select(eb => [
      "intents.state",
      "intents.tx_hash",
      "intents.held_detail",
      "intents.data",
      eb
        .exists(
          eb
            .selectFrom("submissions")
            .select("submissions.id")
            .whereRef("submissions.session_id", "=", "deposits.session_id")
            .whereRef("submissions.submitted_at", ">", "intents.updated_at"),
        )
        .as("outdated"),
    ])
    .where("intents.deposit_id", "=", depositId)
    .where("intents.kind", "=", "authorize")
    .orderBy("intents.created_at", "desc")
    .orderBy("intents.id")
    .execute()
  const open = relays.some(
    ({ state, tx_hash: hash }) =>
      ["queued", "held", "assigned"].includes(state) ||
      (["mined", "final"].includes(state) && hash !== null && !inSight.has(hash)),
  )
  const until = replayableUntil(replayable(ctx, relays))
  const hashes = new Set(relays.flatMap(({ tx_hash: hash }) => hash ?? []))
  const [last] = relays
  return {
    open,
    failure: open || !last || last.outdated ? null : failureOf(last, until),
    replayableUntil: until,
    hashes,
  }
}

/** Why a relay that ended has paid nothing, in sentences; null for one that paid. */
function failureOf(
  { state, held_detail: detail }: Pick<Row<"intents">, "state" | "held_detail">,
  until: string | undefined,
): string | null {
  const words =
    state === "cancelled"
      ? (detail ?? "It was not carried out.")
      : state === "reverted"
        ? "The transfer that was authorized failed on chain."
        : null
  if (words === null || until !== undefined) return words
  return `${words} Nothing was paid by it: sign again, or send the payment yourself.`
}
