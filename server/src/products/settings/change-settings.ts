/** Changes a merchant's own settings: its name, its e-mail address and its payout addresses. */
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
import { ApiError, type ErrorDetail, invalid } from "../../platform/errors.ts"
import { zoneNamed } from "../../platform/http/zone.ts"
import { newId } from "../../platform/ids.ts"
import { dueNow, laterNow } from "../../platform/jobs/due-now.ts"

/** How long a new payout address waits in live mode before it takes effect, so that its owner can notice it. */
const LIVE_DELAY_MS = 24 * 3_600_000
const LIVE_DELAY = sql`make_interval(secs => ${LIVE_DELAY_MS / 1_000})`

export interface SettingsChange {
  name?: string
  email?: string | null
  walletLock?: boolean
  approver?: Approver
  /** The name of a time zone; null for that of each browser. */
  timeZone?: string | null
  /** An ISO 4217 currency code. */
  currency?: string
  /** Whether listeners may be created in live mode; false ends those that exist there. */
  liveListeners?: boolean
  /** The addresses as received, by network name. */
  payoutAddresses: Record<string, string>
}

interface Target {
  network: NetworkInfo
  address: Address
}

/** Whether the payout address of this network signed. */
const speaksFor = (signer: Signer | undefined, network: NetworkInfo, address: Address): boolean =>
  signer?.address === address && (signer.byKey || signer.chainId === network.chainId)

/** Parses the requested payout addresses; throws `VALIDATION_ERROR` with every fault. */
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
 * Changes the settings, all or nothing. Must be called inside a transaction. A new payout address moves its network's
 * paywalls to new receiving addresses. In live mode it takes effect after 24 hours, unless `signer` is the replaced
 * address. A new approver moves every paywall immediately.
 */
export async function changeSettings(
  ctx: TxContext,
  merchantId: string,
  change: SettingsChange,
  signer?: Signer,
): Promise<void> {
  const targets = await readTargets(ctx, change.payoutAddresses)
  if (change.currency !== undefined) await checkCurrency(ctx, change.currency)
  const timeZone = typeof change.timeZone === "string" ? await knownZone(ctx, change.timeZone) : change.timeZone
  // The merchant's row serves as the lock, because concurrent changes must not interleave.
  await lockMerchant(ctx.db, merchantId)
  const approver = await approverNow(ctx, merchantId)
  await mailChange(ctx, merchantId, change, targets)
  if (
    [
      change.name,
      change.email,
      change.walletLock,
      change.approver,
      change.currency,
      change.liveListeners,
      timeZone,
    ].some(each => each !== undefined)
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
        ...(timeZone === undefined ? {} : { time_zone: timeZone }),
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
    // Withdrawing a change emits an event too, because the last event must describe the current state.
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

/**
 * Mails the current owners and admins about the changes that a thief would make first, before these changes are made.
 */
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
      "If none of you did this, first revoke this merchant's API keys and sessions, then undo the change.",
    ],
    path: "/settings",
  })
}

/** Throws `VALIDATION_ERROR` if this service has no rates for the currency. */
async function checkCurrency(ctx: TxContext, currency: string): Promise<void> {
  if (currency === "USD") return
  const { rows } = await sql<{
    unit: string
  }>`select distinct unit from rates where char_length(unit) = 3 order by 1`.execute(ctx.db)
  const known = rows.map(({ unit }) => unit)
  if (known.includes(currency)) return
  const message =
    known.length === 0
      ? "must be USD, because this service has no rates of other currencies. Its operator sets RATES"
      : `must be USD or a currency whose rates this service has: ${known.join(", ")}`
  throw new ApiError("VALIDATION_ERROR", [{ path: "currency", message }])
}

/** Returns the zone's name in the database's spelling. Throws `VALIDATION_ERROR` for a zone that is not known. */
async function knownZone(ctx: TxContext, asked: string): Promise<string> {
  const name = zoneNamed(asked)
  // Reports count months in the database, which has a list of its own: some systems leave old names out of it.
  const { rows } = await sql`select from pg_timezone_names where name = ${name ?? ""}`.execute(ctx.db)
  if (name !== undefined && rows.length > 0) return name
  throw invalid("timeZone", "must be the name of a time zone of the IANA database, such as Asia/Kolkata, or null")
}

/** Who approves returns at addresses that the merchant gets from now on. */
export async function approverNow(ctx: TxContext, merchantId: string): Promise<Approver> {
  const { approver } = await ctx.db
    .selectFrom("merchants")
    .select("approver")
    .where("id", "=", merchantId)
    .executeTakeFirstOrThrow()
  return approverOr(ctx, approver)
}

/**
 * Withdraws pending payout addresses that no wallet signed. Otherwise they would take effect despite the wallet lock.
 */
async function dropPending(ctx: TxContext, merchantId: string, signed: ReadonlySet<number>): Promise<void> {
  for (const { chain_id: chainId, address, pending_address: pending } of await payoutAddresses(ctx, merchantId)) {
    if (!pending || signed.has(chainId)) continue
    // Networks that are not served now are included, because the address would take effect when they are served
    // again.
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
 * Emits the event immediately, although a change in live mode takes effect a day later. The merchant has that day to
 * withdraw the change.
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

/** Writes a payout address. `bySelf`: the replaced address approved the new one, which then inherits its age. */
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
 * Applies the payout addresses whose wait is over, and returns how many. A process with a wrong clock can only
 * lengthen the wait. Must be called inside a transaction.
 */
export async function applyPendingPayoutAddresses(ctx: TxContext): Promise<number> {
  // The first condition can use the index. The second condition can't, because the database's time changes while a
  // statement runs.
  const isDue = sql<boolean>`pending_at <= ${ctx.now()} and pending_at <= ${dueNow(ctx.now())}`
  const due = await ctx.db.selectFrom("payout_addresses").select("merchant_id").distinct().where(isDue).execute()
  let applied = 0
  for (const { merchant_id } of due) {
    // The merchant's row is locked first, as everywhere, because the merchant may be withdrawing the change.
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
