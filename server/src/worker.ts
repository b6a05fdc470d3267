/** The worker: the list of all background loops. */

import { forgetDevices } from "./account/devices/queries.ts"
import { forgetExpiredNonces } from "./account/identity/make-nonces.ts"
import { forgetRetiredKeys } from "./account/identity/use-signing-keys.ts"
import { endLeftListeners } from "./account/listeners/manage-listeners.ts"
import { sendMails } from "./account/notifications/send-mails.ts"
import { forgetOldMails } from "./account/notifications/write-mails.ts"
import { forgetOldRequests } from "./account/requests/queries.ts"
import { forgetEnded } from "./account/sessions/queries.ts"
import { forgetExpiredInvitations } from "./account/team/invite-members.ts"
import { forgetOldEvents, runDeliveries } from "./account/webhooks/deliver-events.ts"
import { forgetExpiredSecrets } from "./account/webhooks/manage-secrets.ts"
import { measureBacklog } from "./account/webhooks/measure-backlog.ts"
import { openSender } from "./account/webhooks/send.ts"
import { skipRest } from "./account/webhooks/skip-deliveries.ts"
import { lanesOf } from "./lanes.ts"
import { renewDeposits } from "./ledger/deposits/move-deposits.ts"
import { sweepDue } from "./ledger/payouts/make-payouts.ts"
import { ratesRound } from "./ledger/rates/fetch-rates.ts"
import { receiptRound } from "./ledger/receipts/make-batches.ts"
import { storageOf } from "./ledger/receipts/zerog/storage.ts"
import { storageLane } from "./ledger/receipts/zerog/storage-lane.ts"
import { storeFilesRound } from "./ledger/receipts/zerog/store-files.ts"
import { storeCallsRound } from "./ledger/receipts/zerog/write-store-calls.ts"
import { checkBooks } from "./ledger/reconciliation/check-books.ts"
import { reconcileRound } from "./ledger/reconciliation/reconcile.ts"
import { watchOutflows } from "./ledger/reconciliation/watch-outflows.ts"
import { findPreempted } from "./ledger/relays/find-preempted.ts"
import { tendRelays } from "./ledger/relays/try-relay.ts"
import { checkDormantDeposits, makeDepositsDormant, thinOut } from "./ledger/scanner/check-dormant-deposits.ts"
import { checkPutAway } from "./ledger/scanner/check-put-away.ts"
import { foreignTokenRound } from "./ledger/scanner/scan-foreign-tokens.ts"
import { ensureCursor, msUntilDue, withinInterval } from "./ledger/scanner/scan-round.ts"
import { notifyDuePayments } from "./ledger/settlement/notify-paid.ts"
import type { SellingContext } from "./ledger/settlement/sellable.ts"
import { verifyRound } from "./ledger/settlement/verify-payments.ts"
import { recheckBudgets } from "./ledger/txmanager/check-gas-budget.ts"
import { reportWaiting } from "./ledger/txmanager/report-alarms.ts"
import { payoutRound } from "./ledger/txmanager/run-round.ts"
import { alarmsNow } from "./operations/doctor/list-alarms.ts"
import { waitingAlarms } from "./operations/doctor/waiting-alarms.ts"
import type { Network } from "./platform/chain/networks.ts"
import { type Context, inTransaction, wallTime } from "./platform/context.ts"
import { forgetExpiredKeys } from "./platform/http/run-idempotently.ts"
import { type Loop, runLoop } from "./platform/jobs/run.ts"
import { forgetOldChanges } from "./products/changes/queries.ts"
import { eraseOld } from "./products/erasure/erase-old.ts"
import { advanceEscrows } from "./products/escrow/advance-escrows.ts"
import { foldDeltas } from "./products/insight/fold-deltas.ts"
import { findNotices } from "./products/notices/find-notices.ts"
import { applyPendingPayoutAddresses } from "./products/settings/change-settings.ts"
import { advanceSubscriptions } from "./products/subscriptions/advance-subscriptions.ts"
import { findCarriedOut } from "./products/x402/find-carried-out.ts"

const HOUSEKEEPING_MS = 60_000
/** The longest sleep: a lost wake-up delays work by at most this long. */
const MAX_SLEEP_MS = 5_000
const WAKE_GAP_MS = 5_000
/**
 * A timer may fire a millisecond early. Without this margin, the scan would not be due yet, and would wait out its gap
 * a second time.
 */
const MARGIN_MS = 10
/** Shares are mined by the dozen, so payments that wait for them are checked at most once a second. */
const NOTIFY_GAP_MS = 1_000
const PAYOUT_GAP_MS = 250
/** Buyers wait for relays. */
const RELAY_GAP_MS = 20
const FAILED_RELAYS_GAP_MS = 1_000
const ESCROW_GAP_MS = 250
const SUBSCRIPTION_GAP_MS = 250
/**
 * Deltas that are not folded yet are read together with the figures, so folding may wait: one row then covers more
 * deltas.
 */
const FIGURES_GAP_MS = 10_000

/** All loops of this installation. */
export function loopsOf(ctx: SellingContext): Loop<SellingContext>[] {
  if (!ctx.settings.relaySigner)
    ctx.log.warn("none of RELAY_PRIVATE_KEY, RELAY_KEYSTORE and RELAY_SIGNER is set: no authorizations are relayed")
  const ofNetworks = ctx.chain.networks.flatMap(network => [
    ...scanLoops(ctx, network),
    ...payoutLoops(ctx, network),
    ...bookLoops(ctx, network),
    receiptLoop(ctx, network),
  ])
  return [
    ...ofNetworks,
    ...storageLoops(ctx),
    notifyPaid,
    ...escrows,
    subscriptions,
    figures,
    backlog,
    rates,
    ...mail,
    retention,
    housekeeping,
  ]
}

const scanLoops = ({ settings: { verifyIntervalMs } }: Context, network: Network): Loop<SellingContext>[] => [
  {
    name: `verify ${network.name}`,
    wokenBy: "verify",
    gapMs: Math.min(WAKE_GAP_MS, verifyIntervalMs),
    round: async ctx => {
      await ensureCursor(ctx, network)
      await withinInterval(ctx, network)
      await findCarriedOut(ctx, network)
      await verifyRound(ctx, network)
      return Math.min(MAX_SLEEP_MS, (await msUntilDue(ctx, network)) + MARGIN_MS)
    },
  },
  {
    name: `dormant ${network.name}`,
    wokenBy: "housekeeping",
    gapMs: 0,
    round: async ctx => {
      await makeDepositsDormant(ctx, network)
      await thinOut(ctx, network)
      await checkDormantDeposits(ctx, network)
      await checkPutAway(ctx, network)
      return HOUSEKEEPING_MS
    },
  },
  {
    name: `foreign tokens ${network.name}`,
    wokenBy: "housekeeping",
    gapMs: 0,
    round: ctx => foreignTokenRound(ctx, network),
  },
]

function payoutLoops({ settings }: Context, network: Network): Loop<SellingContext>[] {
  const lanes = lanesOf(settings, network).map(
    (lane): Loop<SellingContext> => ({
      name: `${lane.name}s ${network.name}`,
      wokenBy: "payouts",
      gapMs: lane.name === "relay" ? RELAY_GAP_MS : PAYOUT_GAP_MS,
      round: ctx => payoutRound(ctx, lane),
    }),
  )
  if (!settings.relaySigner) return lanes
  // Separate from the rounds of the relay wallet, because an endpoint that hangs on logs must not delay buyers.
  const failed: Loop<SellingContext> = {
    name: `failed relays ${network.name}`,
    wokenBy: "payments",
    gapMs: FAILED_RELAYS_GAP_MS,
    round: ctx => findPreempted(ctx, network),
  }
  return [...lanes, failed]
}

/** Separate from settlement, which waits for no receipt. */
const receiptLoop = ({ settings: { receipts } }: Context, network: Network): Loop<SellingContext> => ({
  name: `receipts ${network.name}`,
  wokenBy: "payments",
  gapMs: receipts.batchMs,
  round: ctx => receiptRound(ctx, network),
})

/** The loops with RECEIPT_STORE=0g: those of the wallet that pays there, and the one that uploads. */
function storageLoops({ settings }: Context): Loop<SellingContext>[] {
  const { storageSigner, receipts } = settings
  if (!receipts.zerog || !storageSigner) return []
  const storage = storageOf(receipts.zerog)
  const lane = storageLane(storage, storageSigner)
  return [
    { name: "storage", wokenBy: "payouts", gapMs: PAYOUT_GAP_MS, round: ctx => payoutRound(ctx, lane) },
    {
      name: "storage calls",
      wokenBy: "payments",
      gapMs: receipts.batchMs,
      round: ctx => storeCallsRound(ctx, storage, storageSigner.address),
    },
    // Separate from the wallet's calls, because nodes that do not answer must not delay transactions that are to be
    // paid.
    {
      name: "uploads",
      wokenBy: "payments",
      gapMs: receipts.batchMs,
      round: ctx => storeFilesRound(ctx, storage),
    },
  ]
}

/** The comparisons run apart from the payout rounds, so that a failing one does not delay payouts. */
function bookLoops({ settings: { payoutSigner } }: Context, network: Network): Loop<SellingContext>[] {
  const wallet = payoutSigner?.address
  const reconcile: Loop<SellingContext> = {
    name: `books ${network.name}`,
    wokenBy: "housekeeping",
    gapMs: 0,
    round: ctx => reconcileRound(ctx, network, wallet),
  }
  if (!wallet) return [reconcile]
  const compareLogs: Loop<SellingContext> = {
    name: `logs ${network.name}`,
    wokenBy: "payouts",
    gapMs: PAYOUT_GAP_MS,
    round: ctx => checkBooks(ctx, network, wallet),
  }
  const watch: Loop = {
    name: `outflows ${network.name}`,
    wokenBy: "housekeeping",
    gapMs: 0,
    round: ctx => watchOutflows(ctx, network, wallet),
  }
  return [compareLogs, watch, reconcile]
}

const notifyPaid: Loop<SellingContext> = {
  name: "notify payments",
  wokenBy: "payments",
  gapMs: NOTIFY_GAP_MS,
  round: async ctx => {
    await notifyDuePayments(ctx)
    return MAX_SLEEP_MS
  },
}

const escrows = (["others", "over"] as const).map(
  (which): Loop<SellingContext> => ({
    name: which === "over" ? "escrows that are over" : "escrows",
    wokenBy: "payments",
    gapMs: ESCROW_GAP_MS,
    round: ctx => advanceEscrows(ctx, which),
  }),
)

const subscriptions: Loop<SellingContext> = {
  name: "subscriptions",
  wokenBy: "payments",
  gapMs: SUBSCRIPTION_GAP_MS,
  round: advanceSubscriptions,
}

const figures: Loop<SellingContext> = {
  name: "figures",
  wokenBy: "payments",
  gapMs: FIGURES_GAP_MS,
  round: async ctx => {
    await foldDeltas(ctx)
    return HOUSEKEEPING_MS
  },
}

const backlog: Loop<SellingContext> = {
  name: "webhook backlog",
  wokenBy: "housekeeping",
  gapMs: 0,
  round: measureBacklog,
}

const rates: Loop<SellingContext> = {
  name: "rates",
  wokenBy: "housekeeping",
  gapMs: 0,
  round: ratesRound,
}

const mail: Loop<SellingContext>[] = [
  {
    name: "mails",
    wokenBy: "housekeeping",
    gapMs: 0,
    round: async ctx => {
      await sendMails(ctx)
      return MAX_SLEEP_MS
    },
  },
  {
    name: "notices",
    wokenBy: "housekeeping",
    gapMs: 0,
    round: async ctx => {
      await findNotices(ctx, () => alarmsNow(ctx, []))
      return HOUSEKEEPING_MS
    },
  },
]

const retention: Loop<SellingContext> = {
  name: "retention of customers' data",
  wokenBy: "housekeeping",
  gapMs: 0,
  round: eraseOld,
}

const housekeeping: Loop<SellingContext> = {
  name: "housekeeping",
  wokenBy: "housekeeping",
  gapMs: 0,
  round: async ctx => {
    const { networks } = ctx.chain
    await inTransaction(ctx, applyPendingPayoutAddresses)
    await renewDeposits(ctx)
    for (const network of networks) await sweepDue(ctx, network)
    await reportWaiting(ctx, waitingAlarms)
    // Without a relay wallet, relays that were accepted earlier must expire.
    if (!ctx.settings.relaySigner) for (const network of networks) await tendRelays(ctx, network)
    await forgetExpiredKeys(ctx)
    await forgetExpiredNonces(ctx)
    await forgetEnded(ctx)
    await forgetDevices(ctx)
    await forgetExpiredInvitations(ctx)
    await forgetRetiredKeys(ctx)
    await forgetExpiredSecrets(ctx)
    await forgetOldEvents(ctx)
    await forgetOldChanges(ctx)
    await forgetOldRequests(ctx)
    await forgetOldMails(ctx)
    await endLeftListeners(ctx)
    await skipRest(ctx)
    return HOUSEKEEPING_MS
  },
}

/** Runs all loops until `ctx.signal` aborts. Resolves when the last round has ended. */
export async function runWorker(ctx: SellingContext): Promise<void> {
  await recheckBudgets(ctx).catch(error =>
    ctx.log.error({ err: error }, "payouts held for a gas budget wait for their retry time"),
  )
  const deliveries = runDeliveries(ctx, openSender(ctx.settings.webhooks, { now: () => wallTime(ctx) }))
  await Promise.all([deliveries, ...loopsOf(ctx).map(loop => runLoop(ctx, loop))])
}
