/**
 * Compares escrows with what the chain stores about their payments, at one finalized block. Only our relay wallet can
 * change an escrow, except that a payer may reclaim the rest after the authorization has ended. So a difference means
 * that someone else uses the wallet's key, or that rows were altered.
 */
import { sql } from "kysely"
import { ask, awake, type Endpoint } from "../../platform/chain/endpoints.ts"
import { type PaymentState, paymentStateCall, readPaymentState } from "../../platform/chain/escrow.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import { multicall, readMulticall } from "../../platform/chain/multicall.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { Quorum } from "../../platform/chain/quorum.ts"
import { quorumOf } from "../../platform/chain/wallet-state.ts"
import type { Context } from "../../platform/context.ts"
import type { Finding } from "./report.ts"

const ESCROWS_PER_CALL = 500
/** An escrow that ended longer ago than this is no longer compared. */
const ENDED_MS = 7 * 86_400_000

/** An escrow with the sums of its calls up to the compared block, in base units. */
interface Booked {
  session_id: string
  escrow: Address
  /** The relay wallet. No other address may call the escrow for this payment. */
  operator: Address
  auth_id: Hash
  authorized: bigint
  captured: bigint
  voided: bigint
  refunded: bigint
  /** The amount that the payer reclaimed, according to an earlier reading of the chain. */
  reclaimed: bigint
  /** Whether the payer may already reclaim the rest. */
  over: boolean
}

/** The result of the comparison. */
export interface ComparedEscrows {
  /** The first proven difference for each relay wallet. */
  findings: Map<Address, Finding>
  /** A sentence about the first difference that was not proven. */
  unproven?: string
}

/**
 * Compares every changeable escrow of a network, `pageSize` per call. Returns the proven difference for each relay
 * wallet, and one difference that was not proven. A finding about an earlier wallet, whose key may have leaked, says
 * nothing about the current one.
 */
export async function checkEscrows(
  ctx: Context,
  network: Network,
  quorum: Quorum,
  pageSize = ESCROWS_PER_CALL,
): Promise<ComparedEscrows> {
  const compared: ComparedEscrows = { findings: new Map() }
  let after = ""
  for (;;) {
    const page = await bookedBy(ctx, network, quorum, { after, limit: pageSize })
    await comparePage(ctx, network, quorum, page, compared)
    const last = page.at(-1)
    if (page.length < pageSize || !last) return compared
    after = last.session_id
  }
}

async function comparePage(
  ctx: Context,
  network: Network,
  quorum: Quorum,
  page: readonly Booked[],
  found: ComparedEscrows,
): Promise<void> {
  const reported = await statesByEndpoint(ctx, network, page, quorum.finalized)
  for (const [i, escrow] of page.entries()) {
    const states = reported.flatMap(each => each[i] ?? [])
    const differing = states.filter(state => !agrees(escrow, state))
    const agreeing = states.length - differing.length
    const holds = states.filter(state => state.capturableAmount > 0n)
    if (escrow.reclaimed > 0n && holds.length >= quorumOf(network) && holds.length === states.length)
      await withdrawReclaim(ctx, escrow, quorum.finalized)
    if (found.findings.has(escrow.operator)) continue
    if (differing.length === 0 && agreeing >= quorumOf(network)) continue
    const words = wordsFor(escrow, differing[0], quorum.finalized)
    const isProven = differing.length >= quorumOf(network) && differing.every(state => isSame(state, differing[0]))
    // A call may have become final since its row was read.
    if (isProven && agreeing < differing.length && (await stands(ctx, network, quorum, escrow)))
      found.findings.set(escrow.operator, { table: "escrows", id: escrow.session_id, words })
    else if (differing.length > 0 || agreeing < quorumOf(network)) found.unproven ??= words
  }
}

/** Reads the escrows, except those that have an unfinished call which may be in a block up to the finalized one. */
async function bookedBy(
  ctx: Context,
  network: Network,
  quorum: Quorum,
  { only, after = "", limit }: { only?: string; after?: string; limit: number },
): Promise<Booked[]> {
  const { finalized } = quorum
  await quorum.learn([finalized], [])
  // The chain's clock decides when a payer may reclaim the rest.
  const at = quorum.blockAt(finalized)?.block.time ?? ctx.now()
  const sumOf = (kind: string) =>
    sql`coalesce((select sum(i.amount) from payouts i where i.escrow_id = e.session_id and i.kind = ${kind}
      and i.state = 'final' and i.block_number <= ${finalized}), 0)::numeric(78,0)`
  const { rows } = await sql<Booked>`
    select e.session_id, e.escrow, e.operator, e.auth_id, ${sumOf("reserve")} as authorized, ${sumOf("capture")} as captured,
      ${sumOf("void")} as voided, ${sumOf("refund")} as refunded, e.reclaimed, e.authorization_expiry <= ${at} as over
    from escrows e where e.chain_id = ${network.chainId} and e.auth_id is not null
      and e.refund_expiry > ${new Date(ctx.now().getTime() - ENDED_MS)} and ${only === undefined ? sql`true` : sql`e.session_id = ${only}`}
      and not exists (select from payouts i where i.escrow_id = e.session_id
        and (i.state = 'assigned' or (i.state = 'mined' and i.block_number <= ${finalized})))
      and e.session_id > ${after}
    order by e.session_id limit ${limit}`.execute(ctx.db)
  return rows
}

/**
 * Whether the chain agrees with the rows. After the authorization's end, the rest may be gone because the payer
 * reclaimed it.
 */
function agrees(
  {
    authorized,
    captured,
    voided,
    refunded,
    over,
  }: Pick<Booked, "authorized" | "captured" | "voided" | "refunded" | "over">,
  state: PaymentState,
): boolean {
  const capturable = authorized - captured - voided
  const isTaken = over && state.capturableAmount === 0n
  return (
    state.hasCollectedPayment === authorized > 0n &&
    (state.capturableAmount === capturable || isTaken) &&
    state.refundableAmount === captured - refunded
  )
}

/**
 * Cancels a reclaim that never happened: at a later final block the escrow still holds the money, so an endpoint once
 * gave a wrong answer. The escrow is due again, and then releases the money.
 */
async function withdrawReclaim(ctx: Context, { session_id: sessionId, reclaimed }: Booked, at: bigint): Promise<void> {
  // The reclaim was read at a final block that the scan knows. At an older block, the escrow still holds the money
  // anyway.
  const withdrawn = await ctx.db
    .updateTable("escrows")
    .set({ reclaimed: 0n, run_at: ctx.now() })
    .where("session_id", "=", sessionId)
    .where("reclaimed", "=", reclaimed)
    .where(
      sql<boolean>`exists (select from cursors c where c.chain_id = escrows.chain_id and c.finalized_number <= ${at})`,
    )
    .executeTakeFirst()
  if (withdrawn.numUpdatedRows === 0n) return
  ctx.log.error(
    { sessionId, amount: `${reclaimed}` },
    "a payer's withdrawal of reserved money was recorded, but the escrow still holds the money",
  )
}

const isSame = (a: PaymentState, b: PaymentState | undefined): boolean =>
  a.hasCollectedPayment === b?.hasCollectedPayment &&
  a.capturableAmount === b.capturableAmount &&
  a.refundableAmount === b.refundableAmount

async function stands(ctx: Context, network: Network, quorum: Quorum, before: Booked): Promise<boolean> {
  const [now] = await bookedBy(ctx, network, quorum, { only: before.session_id, limit: 1 })
  return (
    now !== undefined &&
    now.authorized === before.authorized &&
    now.captured === before.captured &&
    now.voided === before.voided &&
    now.refunded === before.refunded
  )
}

/**
 * Returns these payments' states from each endpoint that has the block; undefined for a payment that the endpoint did
 * not report.
 */
async function statesByEndpoint(
  ctx: Context,
  network: Network,
  escrows: readonly Booked[],
  at: bigint,
): Promise<(PaymentState | undefined)[][]> {
  if (escrows.length === 0) return []
  const reads = escrows.map(({ escrow: to, auth_id: id }) => ({ to, data: paymentStateCall(id) }))
  const statesOf = async (endpoint: Endpoint) => {
    const [result] = (await ask(endpoint, [multicall(reads, at)], ctx.signal)) ?? []
    if (!result?.ok) return []
    try {
      return readMulticall(result.value).map(data => data && readPaymentState(data))
    } catch {
      return []
    }
  }
  return await Promise.all(awake(network.endpoints).map(statesOf))
}

function wordsFor(
  { session_id: id, auth_id: authId, authorized, captured, voided, refunded }: Booked,
  state: PaymentState | undefined,
  at: bigint,
): string {
  const said = `the rows of the escrow ${id} say ${authorized} authorized, ${captured} captured, ${voided} voided and ${refunded} refunded`
  const chain = state
    ? `the chain has ${state.capturableAmount} to capture and ${state.refundableAmount} to refund of ${authId}`
    : `too few endpoints report the payment ${authId}`
  return `${said}; at block ${at} ${chain}`
}
