/** Reads the state of a checkout for its payer. */
import { bringBack } from "../../ledger/deposits/put-away.ts"
import type { Hash } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import { type Context, reading, type TxContext } from "../../platform/context.ts"
import { ApiError } from "../../platform/errors.ts"
import { paidStatuses, shownToPayer } from "../escrow/show-escrow.ts"
import { type OwnState, ownState, type SessionState, sessionState } from "./queries.ts"
import { isTimeOver, paidAtOfState, shownOf } from "./show-session.ts"

/**
 * A session's state for anyone with its id, and the context that read it; throws `SESSION_NOT_FOUND`. Rows that were
 * put away are restored. `txHash` names the submission to report, by default the newest.
 */
export async function readState(ctx: Context, id: string, txHash?: Hash): Promise<[TxContext, SessionState]> {
  let read: TxContext = ctx
  const state = await orBroughtBack(ctx, id, async () => {
    read = await reading(ctx)
    return await sessionState(read.db, { id, txHash, now: ctx.now(), chain: ctx.chain })
  })
  return [read, state]
}

/** A merchant's own session, read from the primary database; throws `SESSION_NOT_FOUND`. */
export async function readOwn(ctx: Context, id: string, merchantId: string): Promise<OwnState> {
  const state = await orBroughtBack(ctx, id, () => ownState(ctx.db, { id, now: ctx.now(), chain: ctx.chain }))
  if (state.session.merchant_id !== merchantId) throw new ApiError("SESSION_NOT_FOUND")
  return state
}

async function orBroughtBack<S>(ctx: Context, id: string, read: () => Promise<S | "put away" | undefined>): Promise<S> {
  let state = await read()
  if (state === "put away") {
    await bringBack(ctx, { ids: [id] })
    state = await read()
  }
  if (state === undefined || state === "put away") throw new ApiError("SESSION_NOT_FOUND")
  return state as S
}

/** Builds the answer of `GET /api/pay/status/:id`. */
export async function statusOf(ctx: TxContext, state: SessionState) {
  const { session, submission } = state
  const network = networkOf(ctx.chain, session.chain_id)
  const { confirmations } = network
  const paidAt = await paidAtOfState(ctx, state)
  // An escrow's money is not at any of our addresses.
  const shown = shownOf(ctx, session, paidAt, session.capture === "direct" ? state.returned : 0n)
  const { payTo, ...withoutPayTo } = shown
  const { escrow, paused } = paidAt
  const isDone = paidStatuses.includes(session.status)
  return {
    sessionId: session.id,
    ...withoutPayTo,
    ...(paused || payTo === null || (!isDone && isTimeOver(ctx, session)) ? {} : { payTo }),
    capture: session.capture,
    ...(escrow ? shownToPayer(network, session, escrow, { payable: !paused && ctx.now() < session.expires_at }) : {}),
    redirectUrl: isDone ? shown.redirectUrl : null,
    payerFields: session.payer_fields ?? [],
    confirmations: depthOf(state.above),
    requiredConfirmations: Number(confirmations),
    submission: submission
      ? {
          txHash: submission.tx_hash,
          status: submission.status,
          reason: submission.reason,
          message: submission.message,
        }
      : null,
  }
}

/**
 * The number of blocks from the block of the transfer or reservation to the newest, both included; 0 if there is
 * none.
 */
function depthOf(above: bigint | null): number {
  const depth = above === null ? 0n : above + 1n
  return Number(depth < 0n ? 0n : depth)
}
