/**
 * Judges due payouts before they get a nonce: whether the money is there, whether a party is sanctioned, and whether
 * the call would succeed. This step reads and returns verdicts, and writes nothing to payouts.
 */
import { sql } from "kysely"
import type { Hex } from "viem"
import { successesIn } from "../../platform/chain/authorization-batch.ts"
import { type Fees, trialFees } from "../../platform/chain/fees.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { withRevertName } from "../../platform/chain/revert-name.ts"
import { hexNumber, type RpcCall, type RpcResult } from "../../platform/chain/rpc.ts"
import { screen } from "../../platform/chain/screen-addresses.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { lowGas } from "./hold-payouts.ts"
import type { Judged, Lane, Payout, Verdict } from "./lane.ts"
import { agreedTrial, askEach, failedTrial, reportDisagreement, type Trial } from "./simulate-on-each.ts"
import { gasOf } from "./unsigned-attempt.ts"
import { batchCall, groupIntoTransactions } from "./write-batches.ts"

/** How long a payout waits while no sanctions source responds. */
const UNSCREENED_WAIT_MS = 30_000
/** How long a payout waits while the endpoints neither run its call nor report that the call fails. */
const UNTRIED_WAIT_MS = 5_000

/** The verdict on a call that must wait until an earlier call of the same payer is mined. */
const OVERDRAWN: Verdict = { kind: "wait", ms: 2_000 }

/** The fees and the balance with which a simulation runs. */
export interface TrialFunds {
  fees: Fees
  /** The wallet's balance, in wei. */
  balance: bigint
}

/** Judges each payout once. Only payouts with the verdict `sign` may be signed. */
export async function screenAndSimulate(
  ctx: Context,
  lane: Lane,
  wallet: Row<"wallets">,
  payouts: readonly Payout[],
  terms: TrialFunds,
): Promise<Judged[]> {
  if (payouts.length === 0) return []
  const screened = await screenPayouts(ctx, lane, payouts)
  const clear = screened.flatMap(({ payout, verdict }) => (verdict.kind === "sign" ? [payout] : []))
  const refused = screened.filter(({ verdict }) => verdict.kind !== "sign")
  const short = await shortOf(
    ctx,
    lane,
    refused.map(({ payout }) => payout),
  )
  return [
    ...refused.map(each => (short.has(each.payout.id) ? { ...each, verdict: SHORT } : each)),
    ...(await simulate(ctx, lane, wallet, clear, terms)),
  ]
}

/**
 * The verdict on a payout whose money is gone, instead of a hold. `giveNonces` checks payouts that are about to be
 * signed.
 */
const SHORT: Verdict = { kind: "short" }

/** Returns the ids of payouts whose money a reorg removed. */
async function shortOf(ctx: Context, { keepsBooks }: Lane, payouts: readonly Payout[]): Promise<Set<string>> {
  // If the lane moves no money out of deposits, each call brings the money that it moves.
  if (!keepsBooks || payouts.length === 0) return new Set()
  const { rows } = await sql<{ id: string }>`select i.id from payouts i
    where i.id in (${sql.join(payouts.map(({ id }) => sql`${id}::uuid`))}) and not has_money(i)`.execute(ctx.db)
  return new Set(rows.map(({ id }) => id))
}

async function screenPayouts(ctx: Context, lane: Lane, payouts: readonly Payout[]): Promise<Judged[]> {
  if (payouts.length === 0) return []
  const parties = await lane.partiesOf(ctx, payouts)
  const screened = await screen(ctx, [...new Set([...parties.values()].flat())], lane.name)
  const vetted = await lane.vet(ctx, payouts)
  const judged: Judged[] = []
  for (const payout of payouts) {
    const own = parties.get(payout.id) ?? []
    const listed = own.find(party => screened.get(party) === "listed")
    const isClear = own.length > 0 && own.every(party => screened.get(party) === "clear")
    const verdict: Verdict =
      vetted.get(payout.id) ??
      (listed !== undefined
        ? await lane.listed(ctx, payout, listed)
        : isClear
          ? { kind: "sign" }
          : { kind: "wait", ms: UNSCREENED_WAIT_MS })
    judged.push({ payout, verdict })
  }
  return judged
}

/** Runs each call on every endpoint, with the gas price and gas limit with which it will be signed. */
async function simulate(
  ctx: Context,
  lane: Lane,
  wallet: Row<"wallets">,
  payouts: readonly Payout[],
  terms: TrialFunds,
): Promise<Judged[]> {
  const transactions = groupIntoTransactions(ctx, payouts)
  const batches = transactions.filter(({ length }) => length > 1)
  const single = transactions.flatMap(each => (each.length === 1 ? each : []))
  const [inBatch, alone] = await Promise.all([
    succeedingTogether(ctx, lane, wallet, batches, terms),
    simulateAlone(ctx, lane, wallet, single, terms),
  ])
  const together = batches.flat()
  const signed = together.filter(({ id }) => inBatch.has(id))
  // Simulating a call alone shows why it fails. If it succeeds alone, an earlier call of the same payer in the batch
  // spends the money that it needs.
  const others = together.filter(({ id }) => !inBatch.has(id))
  const payers = new Set(signed.map(({ payer }) => payer))
  const isOverdrawn = ({ payout, verdict }: Judged) => verdict.kind === "sign" && payers.has(payout.payer)
  const judged = await simulateAlone(ctx, lane, wallet, others, terms)
  return [
    ...signed.map((payout): Judged => ({ payout, verdict: { kind: "sign", inBatch: true } })),
    ...alone,
    ...judged.map(each => (isOverdrawn(each) ? { ...each, verdict: OVERDRAWN } : each)),
  ]
}

/** Returns the ids of the payouts in these batches for which endpoints agree on success. */
async function succeedingTogether(
  ctx: Context,
  lane: Lane,
  wallet: Row<"wallets">,
  batches: readonly (readonly [Payout, ...Payout[]])[],
  terms: TrialFunds,
): Promise<Set<string>> {
  if (batches.length === 0) return new Set()
  const calls = batches.map(payouts => trialCall(wallet, batchCall(payouts), terms))
  const answers = await askEach(lane.chain, calls, ctx.signal)
  const succeeding = batches.flatMap((payouts, n) => {
    // A whole batch has no outcome if the contract is not deployed, or if the endpoint itself failed.
    const outcomes = answers.map(results => outcomesIn(results?.[n], payouts.length))
    return payouts.filter((_, i) => {
      const trials = outcomes.flatMap(each => each[i] ?? [])
      return agreedTrial(lane.chain, trials)?.[0].outcome === "succeeds"
    })
  })
  return new Set(succeeding.map(({ id }) => id))
}

/**
 * Returns one endpoint's outcome for each call of a batch. Returns an empty list unless the endpoint answers for
 * exactly that many calls.
 */
function outcomesIn(result: RpcResult | undefined, count: number): Trial[] {
  if (!result?.ok) return []
  try {
    const successes = successesIn(result.value)
    if (successes.length !== count) return []
    return successes.map(succeeded => ({ outcome: succeeded ? "succeeds" : "fails" }))
  } catch {
    return []
  }
}

async function simulateAlone(
  ctx: Context,
  lane: Lane,
  wallet: Row<"wallets">,
  all: readonly Payout[],
  terms: TrialFunds,
): Promise<Judged[]> {
  // Nodes do not simulate a call that sends more than the wallet has, and each reports this in different words.
  const poor = all.filter(({ value }) => value > terms.balance)
  const payouts = poor.length === 0 ? all : all.filter(({ value }) => value <= terms.balance)
  const judged: Judged[] = poor.map(payout => ({ payout, verdict: lowGas(wallet) }))
  if (payouts.length === 0) return judged
  const calls = payouts.map(payout =>
    trialCall(wallet, { ...payout, to: payout.to_address, gas: gasOf(payout) }, terms),
  )
  const reads = lane.arrivalReads(payouts)
  const answers = await askEach(lane.chain, [...calls, ...reads.values()], ctx.signal)
  const held = new Map([...reads.keys()].map((id, i) => [id, answers.map(results => results?.[calls.length + i])]))
  const unseen = held.size > 0 ? await lane.unseenAt(ctx, held) : new Set<bigint>()
  const outcomes = payouts.map((payout, i) => {
    const trials = answers.flatMap(results => trialOf(results?.[i]))
    return { payout, trials, agreed: agreedTrial(lane.chain, trials)?.[0] }
  })
  const doubtful = outcomes.filter(({ agreed }) => agreed?.outcome !== "succeeds")
  const short = await shortOf(
    ctx,
    lane,
    doubtful.map(({ payout }) => payout),
  )
  for (const { payout, trials, agreed } of outcomes) {
    // The scan that finds the money runs immediately, because this payout counts as changed.
    if (payout.deposit_id !== null && unseen.has(payout.deposit_id))
      judged.push({ payout, verdict: { kind: "wait", ms: UNTRIED_WAIT_MS } })
    else if (short.has(payout.id)) judged.push({ payout, verdict: SHORT })
    else if (agreed?.outcome === "succeeds") judged.push({ payout, verdict: { kind: "sign" } })
    else if (agreed) judged.push({ payout, verdict: await lane.fails(ctx, payout, agreed.error) })
    else {
      reportDisagreement(ctx, lane.chain, lane.name, trials, payout.id)
      judged.push({ payout, verdict: { kind: "wait", ms: UNTRIED_WAIT_MS } })
    }
  }
  return judged
}

const trialCall = (
  { address: from }: Row<"wallets">,
  { to, data, gas, value = 0n }: { to: Address; data: Hex; gas: bigint; value?: bigint },
  { fees, balance }: TrialFunds,
): RpcCall => ({
  method: "eth_call",
  params: [
    {
      from,
      to,
      data,
      gas: hexNumber(gas),
      ...(value > 0n ? { value: hexNumber(value) } : {}),
      ...trialFees(fees, gas, balance - value),
    },
    "latest",
  ],
})

/** Returns one endpoint's result; an empty list if the endpoint itself failed. */
function trialOf(result: RpcResult | undefined): (Trial & { error: string })[] {
  if (result?.ok) return [{ outcome: "succeeds", error: "" }]
  if (!result || !failedTrial.test(result.error)) return []
  return [{ outcome: "fails", error: withRevertName(result.error, result.data) }]
}
