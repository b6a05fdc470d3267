/**
 * Changes the split of a paywall, product or link. Each change emits an event, and needs the wallet's approval while
 * the wallet lock is on.
 */
import type { FastifyRequest } from "fastify"
import { type Approval, approvedByWallet } from "../../account/identity/check-wallet-lock.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import { checkPart } from "../../platform/http/admit-member.ts"
import { hasRight } from "../../platform/http/rights.ts"
import { percentOf } from "../../platform/money/percent.ts"
import { emitSplitChanged } from "./emit-split-changed.ts"
import { recipientsOf } from "./manage-splits.ts"
import type { Recipient } from "./split.ts"

/** Describes the recipients, or the merchant if there is no split. */
export const recipientMessage = (recipients: readonly Recipient[]): string =>
  recipients.length === 0
    ? "the merchant alone"
    : recipients.map(({ address, percentE4 }) => `${checksummed(address)} ${percentOf(percentE4)}%`).join(", ")

/**
 * Emits the event when a paywall, product, link or subscription gets another split, or none. Does nothing if the split
 * stays the same. `productId` means that only payments for that product go to the split.
 */
export async function emitAttached(
  ctx: TxContext,
  merchantId: string,
  resourceId: string,
  before: string | null,
  after: string | null,
  productId: string | null = null,
): Promise<void> {
  if (before === after) return
  const recipients = after === null ? [] : ((await recipientsOfSplit(ctx, merchantId, after)) ?? [])
  const change = after === null ? "detached" : "attached"
  await emitSplitChanged(ctx, merchantId, { change, splitId: after ?? before, resourceId, productId, recipients })
}

/**
 * A change of the split of a resource. `after` is undefined if the split stays the same. `of` names the changed part of
 * the resource.
 */
export interface SplitChange {
  of?: string
  before: string | null
  after: string | null | undefined
}

/**
 * Throws `ROLE_REQUIRED` if a member without the right `payouts` would change who is paid. While the wallet lock is on,
 * requires the payout wallet's approval for each change of a split that `read` returns. `resource` is an id, or the
 * name of what is created. The change itself refuses another merchant's split. Call this outside a transaction, and
 * call the approval's `hold` first inside the transaction.
 */
export async function approveSplits(
  ctx: Context,
  request: Pick<FastifyRequest, "headers" | "member">,
  merchantId: string,
  resource: string,
  read: (ctx: TxContext) => Promise<SplitChange[]>,
): Promise<Approval> {
  if (request.member && !hasRight(request.member.role, "payouts"))
    for (const { before, after } of await read(ctx))
      if (after !== undefined && after !== before) checkPart(request, "payouts")
  return await approvedByWallet(ctx, request, merchantId, async ctx => {
    const from: string[] = []
    const to: string[] = []
    for (const { of, before, after } of await read(ctx)) {
      if (after === undefined || after === before) continue
      const words = [await splitMessage(ctx, merchantId, before), await splitMessage(ctx, merchantId, after)]
      const [present, next] = words.map(each => each && (of === undefined ? each : `${of}: ${each}`))
      if (present === undefined || next === undefined) continue
      from.push(present)
      to.push(next)
    }
    if (to.length === 0) return undefined
    return { words: { action: "Attach split", subject: resource, from: from.join("; "), to: to.join("; ") } }
  })
}

/** Approves the one split that the request names, as {@link approveSplits} does. */
export const approveAttachment = (
  ctx: Context,
  request: Pick<FastifyRequest, "headers" | "member">,
  merchantId: string,
  resource: string,
  before: (ctx: TxContext) => Promise<string | null>,
  after: string | null | undefined,
): Promise<Approval> =>
  approveSplits(ctx, request, merchantId, resource, async ctx =>
    after === undefined ? [] : [{ before: await before(ctx), after }],
  )

/** The `before` of a new resource, which had no split. */
export const noSplit = async (): Promise<null> => null

async function splitMessage(ctx: TxContext, merchantId: string, splitId: string | null): Promise<string | undefined> {
  if (splitId === null) return recipientMessage([])
  const recipients = await recipientsOfSplit(ctx, merchantId, splitId)
  return recipients && `${splitId}: ${recipientMessage(recipients)}`
}

async function recipientsOfSplit(
  ctx: TxContext,
  merchantId: string,
  splitId: string,
): Promise<Recipient[] | undefined> {
  const split = await ctx.db
    .selectFrom("splits")
    .select("set_id")
    .where("id", "=", splitId)
    .where("merchant_id", "=", merchantId)
    .executeTakeFirst()
  return split && (await recipientsOf(ctx, [split.set_id])).get(split.set_id)
}
