/**
 * Sells access to paywalls. One sender's transfers add up, each payment grants access, and a reorg that removes a
 * payment revokes that access. Settlement locks the `access` row of (paywall, sender).
 */
// I/O: each method uses the context that it is given. The type of that context comes with Sellable.
import { classify } from "../../ledger/settlement/classify.ts"
import { withoutPublic } from "../../ledger/settlement/find-public-approvals.ts"
import { notifyPaid, sessionNotice } from "../../ledger/settlement/notify-paid.ts"
import { type Sellable, withoutRests } from "../../ledger/settlement/sellable.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { mayBuy } from "../../platform/chain/may-buy.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { AccessPart } from "./access-part.ts"
import { endClaimed, failSubmissions, returnSubmissions, reverseSubmissions } from "./end-submissions.ts"
import { giveAccess, takeAccess } from "./give-access.ts"
import {
  authorizedAt,
  countedAlone,
  DUE_PER_BATCH,
  dueSenders,
  lockDueTransfers,
  moreIsComing,
  openTransfers,
  standingPayments,
  submittedOf,
  versionsOf,
} from "./load-open-transfers.ts"
import { notifyPayment } from "./notify-payment.ts"
import { type AccessPlan, planAccess } from "./plan-access.ts"
import { type Folded, foldAccess, lockAccess } from "./read-access.ts"

/** The `Sellable` for access to paywalls. */
export const accessSales: Sellable<AccessPart, AccessPlan> = {
  prefix: "pw",
  notFound: "PAYWALL_NOT_FOUND",
  purpose: "grant",
  paidOnce: false,

  due: dueSenders,

  async groupOf(_ctx, { resource_id, payer }) {
    return { resourceId: resource_id, senders: [payer] }
  },

  async hold(ctx, group) {
    const { resourceId, senders } = group
    const folded = new Map<Address, Folded | undefined>()
    for (const payer of senders) folded.set(payer, await lockAccess(ctx, resourceId, payer))
    const paywall = await ctx.db
      .selectFrom("paywalls")
      .selectAll()
      .where("id", "=", resourceId)
      .executeTakeFirstOrThrow()
    const { merchant_id, chain_id } = paywall
    const network = networkOf(ctx.chain, chain_id)
    const due = await lockDueTransfers(ctx, group)
    const versions = await versionsOf(ctx, resourceId)
    const owner = { merchant_id, chain_id, resource_id: resourceId }
    const parts: AccessPart[] = []
    for (const payer of senders) {
      const standing = await standingPayments(ctx, resourceId, payer, due)
      const isMore = due.length === DUE_PER_BATCH
      parts.push({ owner, network, payer, group, paywall, versions, standing, isMore, folded: folded.get(payer) })
    }
    return { parts, due }
  },

  async plan(ctx, { paywall: { id }, network, payer, group, versions, isMore }, screened) {
    const rows = withoutRests(await openTransfers(ctx, group, payer, network))
    // This reads all payments of the payer, so it runs only if some transfer is reported by only one endpoint.
    const alone = rows.some(row => row.single_source) ? await countedAlone(ctx, network, id, payer) : 0n
    const { free, again } = await withoutPublic(ctx, rows)
    const hashes = rows.map(row => row.tx_hash)
    const plan = planAccess({
      payer,
      network,
      versions,
      submitted: await submittedOf(ctx, id, payer, hashes),
      authorized: await authorizedAt(ctx, id, payer, hashes),
      transfers: classify(ctx, network, free, screened, alone),
      screening: screened.get(payer) ?? "unknown",
      isMoreComing: rows.length > 0 && (await moreIsComing(ctx, id, payer)),
      now: ctx.now(),
    })
    return { ...plan, again: new Map([...plan.again, ...again]), isMore }
  },

  async onPaid(ctx, part, payment, hashes) {
    // The merchant may accept payments that can't give anyone access.
    if (mayBuy(part.network, part.payer)) await giveAccess(ctx, part, payment, hashes)
    else await notifyPaid(ctx, part.network, payment.id)
  },

  async onReversed(ctx, { paywall, payer, network }, { id }) {
    await takeAccess(ctx, id)
    await reverseSubmissions(ctx, paywall.id, payer, id)
    await notifyPayment(ctx, network, id, "reversed")
  },

  async finish(ctx, { paywall, payer, standing, folded }, { failed, reversed }, paid) {
    for (const { hashes, failure } of failed) await failSubmissions(ctx, paywall.id, payer, hashes, failure)
    await endClaimed(ctx, paywall.id, payer)
    // If there were earlier payments, a grant may have been revoked, so all grants must be folded.
    const before = standing.length === 0 && reversed.length === 0 ? folded : undefined
    await foldAccess(ctx, paywall.id, payer, { before, granted: paid.length })
  },

  async onDecided(ctx, { paywall, payer }, payment) {
    if (payment.status === "granted") await foldAccess(ctx, paywall.id, payer)
    else await returnSubmissions(ctx, payment)
  },

  async describe(ctx, payment) {
    const paywall = await ctx.db
      .selectFrom("paywalls")
      .select("description")
      .where("id", "=", payment.resource_id)
      .executeTakeFirstOrThrow()
    return { ...sessionNotice(payment), paywallId: payment.resource_id, description: paywall.description }
  },
}
