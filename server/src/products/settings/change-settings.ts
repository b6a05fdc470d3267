/** A merchant's own settings: its name, e-mail, and where its money goes on each network. */
import { sql } from "kysely"
import { payoutAddresses, type Signer } from "../../account/identity/read-payout-addresses.ts"
import { refusalsOf } from "../../account/identity/refuse-addresses.ts"
import { endListenersOf } from "../../account/listeners/manage-listeners.ts"
import { isMailing, mailMembers } from "../../account/notifications/write-mails.ts"
import { emit } from "../../account/webhooks/emit.ts"
import { type Approver, approverOr } from "../../ledger/deposits/find-parties.ts"
import { moveDeposits } from "../../ledger/deposits/move-deposits.ts"
import { type Address, checksummed, NOT_AN_ADDRESS, parseAddress } from "../../platform/chain/hex.ts"
import { chainName, type NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import { lockMerchant } from "../../platform/db/lock-merchant.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError, type ErrorDetail } from "../../platform/errors.ts"
import { newId } from "../../platform/ids.ts"
import { dueNow, laterNow } from "../../platform/jobs/due-now.ts"

/** In live mode a new payout address waits this long before it takes effect, and its owner can see it. */
const LIVE_DELAY_MS = 24 * 3_600_000
const LIVE_DELAY = sql`make_interval(secs => ${LIVE_DELAY_MS / 1_000})`

export interface SettingsChange {
  name?: string
  email?: string | null
  walletLock?: boolean
  approver?: Approver
  /** A currency of ISO 4217. */
  currency?: string
  /** Whether listeners can be made in live mode; false ends those that there are there. */
  liveListeners?: boolean
  /** Addresses as received, by network name. */
  payoutAddresses: Record<string, string>
}

interface Target {
  network: NetworkInfo
  address: Address
}

/** Whether a signature is one of the payout address of a network. */
const speaksFor = (signer: Signer | undefined, network: NetworkInfo, address: Address): boolean =>
  signer?.address === address && (signer.byKey || signer.chainId === network.chainId)

/** The requested payout addresses, or a `VALIDATION_ERROR` that lists every fault. */
export async function readTargets(ctx: TxContext, asked: Record<string, string>): Promise<Target[]> {
  const faults: ErrorDetail[] = []
  const targets: Target[] = []
  for (const [name, text] of Object.entries(asked)) {
    const path = `payoutAddresses.${name}`
    const network = ctx.chain.networks.find(each => each.name === name)
    const address = parseAddress(text)
    const fault = !network
      ? `must name a network of this service: ${ctx.chain.networks.map(each => each.name).join(", ")}`
      : address
        ? (await refusalsOf(ctx, [address])).get(address)
        : NOT_AN_ADDRESS
    if (fault) faults.push({ path, message: fault })
    else if (network && address) targets.push({ network, address })
  }
  if (faults.length > 0) throw new ApiError("VALIDATION_ERROR", faults)
  return targets
}

/**
 * Changes the settings, all or nothing; call it inside a transaction. A new payout address gives every paywall of that
 * network a new receiving address: in live mode after 24 hours, or at once where `signer` is the address that it
 * replaces. A change of the approver gives every paywall a new address at once.
 */
export async function changeSettings(
  ctx: TxContext,
  merchantId: string,
  change: SettingsChange,
  signer?: Signer,
): Promise<void> {
  const targets = await readTargets(ctx, change.payoutAddresses)
  if (change.currency !== undefined) await checkCurrency(ctx, change.currency)
  // The merchant's row is the lock: two changes at once must not interleave.
  await lockMerchant(ctx.db, merchantId)
  const approver = await approverNow(ctx, merchantId)
  await mailChange(ctx, merchantId, change, targets)
  if (
    [change.name, change.email, change.walletLock, change.approver, change.currency, change.liveListeners].some(
      each => each !== undefined,
    )
  )
    await ctx.db
      .updateTable("merchants")
      .set({
        ...(change.name === undefined ? {} : { name: change.name }),
        ...(change.walletLock === undefined ? {} : { wallet_lock: change.walletLock }),
        ...(change.email === undefined ? {} : { email: change.email }),
        ...(change.approver === undefined ? {} : { approver: change.approver }),
        ...(change.currency === undefined ? {} : { currency: change.currency }),
        ...(change.liveListeners === undefined ? {} : { live_listeners: change.liveListeners }),
      })
      .where("id", "=", merchantId)
      .execute()
  if (change.liveListeners === false && ctx.settings.mode === "live") await endListenersOf(ctx, merchantId)
  const present = await payoutAddresses(ctx, merchantId)
  for (const { network, address } of targets) {
    const before = present.find(row => row.chain_id === network.chainId)
    const isLater = ctx.settings.mode === "live" && before !== undefined && before.address !== address
    const bySelf = before !== undefined && speaksFor(signer, network, before.address)
    const waits = isLater && !bySelf
    // A withdrawn change emits an event too: the last event must describe the current state.
    if (address !== before?.address || before.pending_address)
      await notifyChange(ctx, merchantId, network, {
        address,
        before: before?.address,
        inMs: waits ? LIVE_DELAY_MS : 0,
      })
    if (waits)
      await ctx.db
        .updateTable("payout_addresses")
        .set({ pending_address: address, pending_at: sql<Date>`${laterNow(ctx.now())} + ${LIVE_DELAY}` })
        .where("merchant_id", "=", merchantId)
        .where("chain_id", "=", network.chainId)
        .execute()
    else await setPayoutAddress(ctx, merchantId, network, address, before, bySelf)
  }
  if ((await approverNow(ctx, merchantId)) !== approver)
    for (const network of ctx.chain.networks) await moveDeposits(ctx, merchantId, network)
  const named = new Set(targets.map(({ network }) => network.chainId))
  if (signer) await dropPending(ctx, merchantId, named)
}

/** Mails what a thief would change first, to the owners and admins as they are before it. */
async function mailChange(
  ctx: TxContext,
  merchantId: string,
  change: SettingsChange,
  targets: readonly Target[],
): Promise<void> {
  if (!isMailing(ctx)) return
  const before = await ctx.db
    .selectFrom("merchants")
    .select(["email", "wallet_lock", "approver"])
    .where("id", "=", merchantId)
    .executeTakeFirstOrThrow()
  const addresses = await payoutAddresses(ctx, merchantId)
  const lines = targets.flatMap(({ network, address }) => {
    const old = addresses.find(row => row.chain_id === network.chainId)?.address
    return old === address
      ? []
      : [`Payout address on ${network.name}: ${old ? checksummed(old) : "none"} -> ${checksummed(address)}`]
  })
  if (change.email !== undefined && change.email !== before.email) lines.push("The contact e-mail address was changed.")
  if (change.walletLock !== undefined && change.walletLock !== before.wallet_lock)
    lines.push(`The wallet lock was switched ${change.walletLock ? "on" : "off"}.`)
  if (change.approver !== undefined && change.approver !== before.approver)
    lines.push("The approver of returns was changed.")
  if (lines.length === 0) return
  await mailMembers(ctx, merchantId, "security", {
    key: `settings ${newId("evt")}`,
    subject: "Your security settings were changed",
    lines: [
      ...lines,
      "",
      "If nobody of you did this, revoke the API keys and sessions of this merchant first, then take it back.",
    ],
    path: "/settings",
  })
}

/** Throws a `VALIDATION_ERROR` for a currency whose rates this service does not have. */
async function checkCurrency(ctx: TxContext, currency: string): Promise<void> {
  if (currency === "USD") return
  const { rows } = await sql<{
    unit: string
  }>`select distinct unit from rates where char_length(unit) = 3 order by 1`.execute(ctx.db)
  const known = rows.map(({ unit }) => unit)
  if (known.includes(currency)) return
  const message =
    known.length === 0
      ? "must be USD: this service has no rates of other currencies. Its operator sets RATES"
      : `must be USD or a currency whose rates this service has: ${known.join(", ")}`
  throw new ApiError("VALIDATION_ERROR", [{ path: "currency", message }])
}

/** Who approves returns at the addresses that the merchant gets from now on. */
export async function approverNow(ctx: TxContext, merchantId: string): Promise<Approver> {
  const { approver } = await ctx.db
    .selectFrom("merchants")
    .select("approver")
    .where("id", "=", merchantId)
    .executeTakeFirstOrThrow()
  return approverOr(ctx, approver)
}

/**
 * Withdraws the pending payout addresses that no wallet signed: they would otherwise take effect in spite of the wallet
 * lock.
 */
async function dropPending(ctx: TxContext, merchantId: string, signed: ReadonlySet<number>): Promise<void> {
  for (const { chain_id: chainId, address, pending_address: pending } of await payoutAddresses(ctx, merchantId)) {
    if (!pending || signed.has(chainId)) continue
    // For every network, including networks that are not served now: the address would take effect when the network is
    // served again.
    await notifyChange(ctx, merchantId, { name: chainName(chainId) }, { address, before: address, inMs: 0 })
    await ctx.db
      .updateTable("payout_addresses")
      .set({ pending_address: null, pending_at: null })
      .where("merchant_id", "=", merchantId)
      .where("chain_id", "=", chainId)
      .execute()
  }
}

/**
 * The event is emitted at once, though in live mode the change takes effect a day later: a merchant that does not want
 * it has that day to withdraw it.
 */
const notifyChange = (
  ctx: TxContext,
  merchantId: string,
  network: { name: string },
  { address, before, inMs }: { address: Address; before: Address | undefined; inMs: number },
) =>
  emit(ctx, {
    merchantId,
    type: "settings.payout_address_changed",
    orderKey: `settings ${network.name}`,
    isWithdrawal: address === before,
    data: {
      merchantId,
      chain: network.name,
      payoutAddress: checksummed(address),
      previousAddress: before ? checksummed(before) : null,
      effectiveAt: new Date(ctx.now().getTime() + inMs).toISOString(),
    },
  })

/** `bySelf`: approved by the address that it replaces. The new address takes over its age. */
async function setPayoutAddress(
  ctx: TxContext,
  merchantId: string,
  network: NetworkInfo,
  address: Address,
  before: Row<"payout_addresses"> | undefined,
  bySelf = false,
) {
  const since = before && (bySelf || address === before.address) ? before.since : ctx.now()
  const pending = { pending_address: null, pending_at: null }
  const row = { merchant_id: merchantId, chain_id: network.chainId, address, since, ...pending }
  await ctx.db
    .insertInto("payout_addresses")
    .values(row)
    .onConflict(conflict => conflict.columns(["merchant_id", "chain_id"]).doUpdateSet(row))
    .execute()
  if (address !== before?.address) await moveDeposits(ctx, merchantId, network)
}

/**
 * Applies the pending payout addresses whose wait is over; returns how many. A process whose clock is wrong makes the wait
 * longer, and never shorter. Call it inside a transaction.
 */
export async function applyPendingPayoutAddresses(ctx: TxContext): Promise<number> {
  // The first condition is the index's: the database's time changes while a statement runs.
  const isDue = sql<boolean>`pending_at <= ${ctx.now()} and pending_at <= ${dueNow(ctx.now())}`
  const due = await ctx.db.selectFrom("payout_addresses").select("merchant_id").distinct().where(isDue).execute()
  let applied = 0
  for (const { merchant_id } of due) {
    // The merchant's row is locked first, as everywhere: the merchant may have withdrawn the change meanwhile.
    await lockMerchant(ctx.db, merchant_id)
    const rows = ctx.db.selectFrom("payout_addresses").selectAll().where("merchant_id", "=", merchant_id)
    for (const row of await rows.where(isDue).execute()) {
      const network = ctx.chain.networks.find(each => each.chainId === row.chain_id)
      if (!network || !row.pending_address) continue
      await setPayoutAddress(ctx, merchant_id, network, row.pending_address, row)
      applied++
    }
  }
  return applied
}
