/** Shows the public parts of a session, and where it is paid. */
import { pausedDeposits, pausedWhile } from "../../ledger/payouts/check-paused.ts"
import { type Address, checksummed } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import { escrowRow, escrowsOf } from "../escrow/load-escrow.ts"
import type { OwnState, SessionState, ShownSession } from "./queries.ts"
import { messageOf } from "./session-rules.ts"

/**
 * The public view of a session. `returned`: how much its merchant returned, in base units. While payments are paused,
 * its message asks nobody to pay.
 */
export function shownOf(ctx: TxContext, session: ShownSession, { address: payTo, paused }: PaidAt, returned = 0n) {
  const { name: chain, chainId, token } = networkOf(ctx.chain, session.chain_id)
  return {
    status: session.status,
    exception: session.exception,
    message: shownMessage(ctx, session, paused),
    amount: formatAmount(session.amount, token.decimals),
    amountReceived: formatAmount(session.received, token.decimals),
    amountReturned: formatAmount(returned, token.decimals),
    currency: session.currency,
    chain,
    chainId,
    token: { address: checksummed(token.address), decimals: token.decimals, symbol: token.symbol },
    payTo: payTo && checksummed(payTo),
    paused,
    description: session.description,
    redirectUrl: session.redirect_url,
    txHash: session.tx_hash,
    expiresAt: session.expires_at.toISOString(),
  }
}

/**
 * A session's current message. Its row changes only once all blocks up to the expiry are read, but money sent in the
 * meantime is already late.
 */
function shownMessage(ctx: TxContext, session: ShownSession, paused: boolean): string {
  const { token } = networkOf(ctx.chain, session.chain_id)
  const isAsked = session.status === "pending" || session.exception === "underpaid"
  if (isTimeOver(ctx, session) && !isOver(session) && isAsked) return TIME_OVER
  if (paused && !isOver(session)) return PAUSED
  // The row has no message between a submission and its settlement.
  return session.message ?? messageOf({ ...session, inFlight: session.status === "verifying" }, token)
}

/** Whether money sent to a session now is late. A deleted session's time to pay ends with its deletion. */
export const isTimeOver = (ctx: TxContext, { expires_at }: Pick<Row<"checkout_sessions">, "expires_at">): boolean =>
  ctx.now() > expires_at

const TIME_OVER =
  "The time to pay has ended: do not send money now. Money sent earlier is still found and counted. When the network has been read up to that time, this says whether anything arrived; start a new checkout only then."

/** The URL of a session's payment page. */
export const sessionUrl = (ctx: TxContext, id: string): string => `${ctx.settings.baseUrl}/pay/${id}`

const PAUSED =
  "Payments on this network are paused: do not send money now. Money sent earlier is still found and counted."

/** Whether a session has ended: neither `pending` nor `verifying`. */
export const isOver = ({ status }: Pick<Row<"checkout_sessions">, "status">): boolean =>
  status !== "pending" && status !== "verifying"

/** Where a session is paid, and whether payments there are paused. */
export interface PaidAt {
  /** Its receiving address; null if a signature reserves money in an escrow. */
  address: Address | null
  escrow: Row<"escrows"> | undefined
  paused: boolean
}

/** Where a session is paid, according to its state; throws if the session has neither an address nor an escrow. */
export async function paidAtOfState(
  ctx: TxContext,
  { session, deposit, halted }: SessionState | OwnState,
): Promise<PaidAt> {
  const network = networkOf(ctx.chain, session.chain_id)
  const paused = pausedWhile(ctx, halted)
  if (deposit) return { address: deposit.address, escrow: undefined, paused: paused(network, deposit) }
  const escrow = await escrowRow(ctx.db, session.id)
  if (!escrow) throw new Error("a session has no receiving address")
  return { address: null, escrow, paused: paused(network, { factory: network.depositFactory, older_factory: false }) }
}

/** Where each of these sessions is paid, by session id. */
export async function paidAtOf(
  ctx: TxContext,
  sessions: readonly Row<"checkout_sessions">[],
): Promise<Map<string, PaidAt>> {
  const ids = sessions.map(({ id }) => id)
  if (ids.length === 0) return new Map()
  const rows = await ctx.db
    .selectFrom("deposits")
    .select(["resource_id", "chain_id", "factory", "older_factory", "address"])
    .where("resource_id", "in", ids)
    .execute()
  const paused = await pausedDeposits(ctx)
  const escrows = [...(await escrowsOf(ctx, sessions)).values()].map((escrow): [string, PaidAt] => {
    const network = networkOf(ctx.chain, escrow.chain_id)
    const ours = { factory: network.depositFactory, older_factory: false }
    return [escrow.session_id, { address: null, escrow, paused: paused(network, ours) }]
  })
  return new Map([
    ...rows.map((row): [string, PaidAt] => [
      row.resource_id,
      { address: row.address, escrow: undefined, paused: paused(networkOf(ctx.chain, row.chain_id), row) },
    ]),
    ...escrows,
  ])
}
