/** The state of a checkout as its payer sees it. */
import type { Hash } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import { paidStatuses, shownToPayer } from "../escrow/show-escrow.ts"
import {
  aboveReservation,
  aboveTransfer,
  returnedKey,
  returnedOf,
  sessionRow,
  submissionKey,
  submissionShown,
} from "./queries.ts"
import { isTimeOver, paidAtOfSession, shownOf } from "./show-session.ts"

/** A session by its id, for anyone who has that; `SESSION_NOT_FOUND`. */
export async function sessionShown(ctx: TxContext, id: string): Promise<Row<"checkout_sessions">> {
  const row = await sessionRow(ctx.db, id)
  if (!row) throw new ApiError("SESSION_NOT_FOUND")
  return row
}

/** The answer of `GET /api/pay/status/:id`. `txHash` names the submission to report, by default the newest. */
export async function statusOf(ctx: TxContext, session: Row<"checkout_sessions">, txHash?: Hash) {
  const { id } = session
  const network = networkOf(ctx.chain, session.chain_id)
  const [paidAt, above, submission, returned] = await Promise.all([
    paidAtOfSession(ctx, session),
    session.capture === "direct" ? aboveTransfer(ctx.db, id) : aboveReservation(ctx.db, id),
    submissionOf(ctx, id, txHash),
    // An escrow's money is at no address of ours.
    session.capture === "direct" ? returnedOf(ctx.db, returnedKey(id, network.token.address)) : undefined,
  ])
  const { confirmations } = network
  const shown = shownOf(ctx, session, paidAt, returned)
  const { payTo, ...withoutPayTo } = shown
  const { escrow, paused } = paidAt
  const isDone = paidStatuses.includes(session.status)
  return {
    sessionId: id,
    ...withoutPayTo,
    ...(paused || payTo === null || (!isDone && isTimeOver(ctx, session)) ? {} : { payTo }),
    capture: session.capture,
    ...(escrow ? shownToPayer(network, session, escrow, { payable: !paused && ctx.now() < session.expires_at }) : {}),
    redirectUrl: isDone ? shown.redirectUrl : null,
    payerFields: session.payer_fields ?? [],
    confirmations: depthOf(above),
    requiredConfirmations: Number(confirmations),
    submission,
  }
}

/** The depth of the transfer or reservation that is below these blocks, its own block counted; 0 without one. */
function depthOf(above: bigint | undefined): number {
  const depth = above === undefined ? 0n : above + 1n
  return Number(depth < 0n ? 0n : depth)
}

/** The submission of this hash, or else the newest; null where there is none. */
async function submissionOf(ctx: TxContext, sessionId: string, txHash: Hash | undefined) {
  const row = await submissionShown(ctx.db, submissionKey(sessionId, txHash))
  return row ? { txHash: row.tx_hash, status: row.status, reason: row.reason, message: row.message } : null
}
