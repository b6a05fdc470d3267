/** What can happen to the rows that figures are made of, and what the figures must then be, without the database. */
import { createHash, randomUUID } from "node:crypto"
import fc from "fast-check"
import { sql } from "kysely"
import type { Address, Hash } from "../src/platform/chain/hex.ts"
import { inTransaction, type TxContext } from "../src/platform/context.ts"
import { foldDeltas } from "../src/products/insight/fold-deltas.ts"
import { paperNetwork } from "./paper-network.ts"
import type { TestService } from "./service.ts"

/** Both changes of the clocks of St. John's and of Lord Howe, in 2026. */
export const changes = ["2026-03-08T05:30Z", "2026-11-01T04:30Z", "2026-04-04T15:00Z", "2026-10-03T15:30Z"].map(
  Date.parse,
)
export const zones = ["UTC", "Asia/Kolkata", "Asia/Kathmandu", "America/St_Johns", "Australia/Lord_Howe"]
const NEAR_MS = 30 * 3_600_000
/** A token that the service knows nothing of. */
const FOREIGN = `0x${"f0".repeat(20)}` as Address
const payer = `0x${"b".repeat(40)}` as Address

/** An entry that the figures must count: `from` is when a payment came in that a reorg removed at `at`. */
export interface Counted {
  figure: string
  token: Address | ""
  at: number
  amount: bigint
  count: number
  from?: number
}

const value = fc.bigInt({ min: 1n, max: 10n ** 24n })
const token = fc.constantFrom(paperNetwork.token.address, FOREIGN)
/** Hours to either side of the change of clocks that the whole run is about. */
const at = fc.integer({ min: -NEAR_MS, max: NEAR_MS })

/** One thing that happens; times are in milliseconds from a change of clocks. */
export const happening = fc.oneof(
  fc.record({ kind: fc.constant("transfer" as const), value, token, at, isSeenFirst: fc.boolean() }),
  fc.record({
    kind: fc.constant("reorg" as const),
    which: fc.nat(30),
    how: fc.constantFrom("gone", "moved", "back", "grown"),
    at,
    later: at,
  }),
  fc.record({
    kind: fc.constant("payout" as const),
    of: fc.constantFrom("share", "sweep", "return", "reserve", "capture", "void", "refund"),
    value,
    token,
    at,
    later: at,
    end: fc.constantFrom("mined", "final", "reorged", "failed", "found to have failed"),
  }),
  fc.record({
    kind: fc.constant("outflow" as const),
    reason: fc.constantFrom("recovery", "given_back", "unknown"),
    value,
    token,
    at,
    fate: fc.constantFrom("stays", "carried out", "forgotten"),
  }),
  fc.record({ kind: fc.constant("reclaim" as const), value, more: fc.boolean(), at }),
  fc.record({
    kind: fc.constant("checkout" as const),
    at,
    paidAfter: fc.option(fc.nat(NEAR_MS)),
    isReversed: fc.boolean(),
    later: at,
  }),
  fc.record({ kind: fc.constant("fold" as const), how: fc.constantFrom("once", "killed", "by two") }),
)
export type Happening = typeof happening extends fc.Arbitrary<infer T> ? T : never

const figures: Record<string, string> = {
  share: "shares",
  sweep: "swept",
  return: "returned",
  reserve: "reserved",
  capture: "captured",
  void: "released",
  refund: "refunded",
  recovery: "recovered",
  given_back: "returned",
  unknown: "unknown",
}

/** Whose rows these are. */
interface Shop {
  service: TestService
  merchantId: string
  deposit: { id: bigint; address: Address }
}

/** Lets a payout be in a database without the payment and the promise that it is of. */
export async function loosen({ db }: TxContext): Promise<void> {
  for (const name of ["payouts_check8", "payouts_return_of", "payouts_reserved"])
    await sql.raw(`alter table payouts drop constraint ${name}`).execute(db)
}

let rows = 0
const newHash = () => `0x${createHash("sha256").update(`row ${++rows}`).digest("hex")}` as Hash

/** Lets all of this happen around `change`; returns what the figures must count. */
export async function live(shop: Shop, change: number, all: readonly Happening[]): Promise<Counted[]> {
  const counted: Counted[] = []
  const transfers: { id: bigint; entry: Counted }[] = []
  for (const each of all) {
    if (each.kind === "fold") await fold(shop.service, each.how)
    if (each.kind === "transfer") {
      const entry = { figure: "received", token: each.token, at: change + each.at, amount: each.value, count: 1 }
      transfers.push({ id: await receive(shop, entry, each.isSeenFirst), entry })
      counted.push(entry)
    }
    const moved = each.kind === "reorg" ? transfers[each.which % Math.max(1, transfers.length)] : undefined
    if (each.kind === "reorg" && moved)
      counted.push(...(await reorg(shop, moved, each.how, change + each.at, change + each.later)))
    if (each.kind === "payout") counted.push(...(await pay(shop, each, change)))
    if (each.kind === "outflow") counted.push(...(await flowOut(shop, each, change + each.at)))
    if (each.kind === "reclaim") counted.push(await reclaim(shop, each.value, each.more, change + each.at))
    if (each.kind === "checkout") counted.push(...(await checkOut(shop, each, change)))
  }
  return counted
}

class Killed extends Error {}

async function fold({ ctx }: TestService, how: "once" | "killed" | "by two" | string): Promise<void> {
  if (how === "by two") await Promise.all([foldDeltas(ctx), foldDeltas(ctx)])
  if (how === "once") await foldDeltas(ctx)
  if (how === "killed")
    await inTransaction(ctx, async ctx => {
      await foldDeltas(ctx)
      throw new Killed()
    }).catch(error => {
      if (!(error instanceof Killed)) throw error
    })
}

async function receive({ service, deposit }: Shop, entry: Counted, isSeenFirst: boolean): Promise<bigint> {
  const { db } = service.ctx
  const time = new Date(entry.at)
  const { id } = await db
    .insertInto("transfers")
    .values({
      chain_id: paperNetwork.chainId,
      tx_hash: newHash(),
      token: entry.token as Address,
      to_address: deposit.address,
      k: 0,
      deposit_id: deposit.id,
      from_address: payer,
      value: entry.amount,
      block_number: 1n,
      block_hash: newHash(),
      log_index: 0,
      block_time: time,
      state: isSeenFirst ? "seen" : "confirmed",
      created_at: time,
    })
    .returning("id")
    .executeTakeFirstOrThrow()
  const set = (state: "confirmed" | "final") =>
    db.updateTable("transfers").set({ state }).where("id", "=", id).execute()
  if (isSeenFirst) await set("confirmed")
  await set("final")
  return id
}

/** Takes a transfer back at `at`, or lets it be mined again, then or at once, in a block of the time `later`. */
async function reorg(
  { service }: Shop,
  transfer: { id: bigint; entry: Counted },
  how: string,
  at: number,
  later: number,
): Promise<Counted[]> {
  const { id, entry } = transfer
  const { db } = service.ctx
  const set = (changes: object) => db.updateTable("transfers").set(changes).where("id", "=", id).execute()
  const { state } = await db.selectFrom("transfers").select("state").where("id", "=", id).executeTakeFirstOrThrow()
  const isGone = state === "gone"
  if (how === "moved" || how === "grown") {
    if (isGone) return []
    entry.at = later
    if (how === "grown") entry.amount += 1n
    // As it is when another block at the same height has it, which is then deep enough.
    if (how === "moved") await set({ state: "seen" })
    await set({ state: "confirmed", block_time: new Date(later), value: entry.amount })
    return []
  }
  const found: Counted[] = []
  if (!isGone) {
    await goneAt(service.ctx, id, new Date(at))
    found.push({ ...entry, figure: "reversed", at: Math.max(at, entry.at), from: entry.at })
  }
  if (how === "gone") return found
  // From now on it is another entry.
  transfer.entry = { ...entry, at: later }
  await set({ state: "seen", block_time: new Date(later) })
  await set({ state: "confirmed" })
  return [...found, transfer.entry]
}

/** The database notes the time itself; here it is given. */
async function goneAt({ db }: TxContext, id: bigint, at: Date): Promise<void> {
  await sql`alter table transfers disable trigger transfers_set_facts`.execute(db)
  await db.updateTable("transfers").set({ state: "gone", reorged_at: at }).where("id", "=", id).execute()
  await sql`alter table transfers enable trigger transfers_set_facts`.execute(db)
}

type Payout = Extract<Happening, { kind: "payout" }>

async function pay(shop: Shop, { of, value, token, at, later, end }: Payout, change: number): Promise<Counted[]> {
  const { db } = shop.service.ctx
  const isOfEscrow = !["share", "sweep", "return"].includes(of)
  const id = randomUUID()
  await db
    .insertInto("payouts")
    .values({
      id,
      chain_id: paperNetwork.chainId,
      kind: of as "share",
      source_key: id,
      merchant_id: shop.merchantId,
      ...(isOfEscrow ? { escrow_id: await escrow(shop, value, new Date(change)) } : { deposit_id: shop.deposit.id }),
      token,
      recipient: payer,
      amount: value,
      to_address: payer,
      data: "0x00",
      reserved: false,
      relay_by: isOfEscrow ? new Date(change) : null,
      state: "assigned",
      wallet: payer,
      nonce: BigInt(++rows),
      ...(of === "reserve" ? { payer, auth_nonce: newHash(), auth_digest: newHash() } : {}),
      run_at: new Date(change),
      created_at: new Date(change),
      updated_at: new Date(change),
    })
    .execute()
  const block = { tx_hash: newHash(), block_number: 1n, block_hash: newHash() }
  const set = (changes: object, ms: number) =>
    db
      .updateTable("payouts")
      .set({ ...changes, updated_at: new Date(ms) })
      .where("id", "=", id)
      .execute()
  const mined = { state: "mined", succeeded: end !== "failed", ...block }
  await set(mined, change + at)
  const entry = { figure: figures[of] ?? "", token, at: change + at, amount: value, count: 1 }
  if (end === "failed" || end === "found to have failed") {
    await set({ succeeded: false }, change + later)
    await set({ state: "reverted" }, change + later)
    return []
  }
  if (end === "reorged") {
    await set(
      { state: "assigned", succeeded: null, tx_hash: null, block_number: null, block_hash: null },
      change + later,
    )
    // What a void moves is all that is left when it is mined.
    if (of === "void") entry.amount += 5n
    await set({ ...mined, amount: entry.amount }, change + later)
    entry.at = change + later
  }
  if (end !== "mined") await set({ state: "final" }, change + later)
  return [entry]
}

type Outflow = Extract<Happening, { kind: "outflow" }>

async function flowOut(shop: Shop, { reason, value, token, fate }: Outflow, at: number): Promise<Counted[]> {
  const { db } = shop.service.ctx
  const { id } = await db
    .insertInto("outflows")
    .values({
      chain_id: paperNetwork.chainId,
      deposit_id: shop.deposit.id,
      merchant_id: shop.merchantId,
      reason: reason as "unknown",
      tx_hash: newHash(),
      token,
      recipient: payer,
      amount: value,
      block_number: 1n,
      block_hash: newHash(),
      log_index: 0,
      block_time: new Date(at),
      created_at: new Date(at),
    })
    .returning("id")
    .executeTakeFirstOrThrow()
  if (fate === "stays") return [{ figure: figures[reason] ?? "", token, at, amount: value, count: 1 }]
  if (fate === "forgotten") {
    await db.deleteFrom("outflows").where("id", "=", id).execute()
    return []
  }
  const [entry] = await pay(shop, { kind: "payout", of: "return", value, token, at: 0, later: 0, end: "final" }, at)
  const payout = db.selectFrom("payouts").select("id").orderBy("nonce", "desc").limit(1)
  await db.updateTable("outflows").set({ payout_id: payout }).where("id", "=", id).execute()
  return entry ? [entry] : []
}

/** The session of a new escrow that holds so much; the checkout is not counted. */
async function escrow({ service, merchantId }: Shop, authorized: bigint, time: Date): Promise<string> {
  const id = `cs_${newHash().slice(2, 26)}`
  const later = new Date(time.getTime() + 86_400_000)
  const common = { chain_id: paperNetwork.chainId, merchant_id: merchantId, created_at: time, updated_at: time }
  await service.ctx.db
    .insertInto("checkout_sessions")
    .values({
      ...common,
      id,
      amount: 1n,
      currency: "USDC",
      status: "authorized",
      capture: "manual",
      expires_at: later,
      agent: true,
    })
    .execute()
  const escrow = {
    ...common,
    session_id: id,
    token: paperNetwork.token.address,
    escrow: payer,
    collector: payer,
    version: "v1.1" as const,
    operator: payer,
    receiver: payer,
    payer,
    auth_id: newHash(),
    salt: newHash(),
    nonce: newHash(),
    pre_approval_expiry: later,
    authorization_expiry: later,
    refund_expiry: later,
    void_at: time,
    max_amount: authorized * 2n + 10n,
    authorized: authorized * 2n + 10n,
    authorized_at: time,
  }
  await service.ctx.db.insertInto("escrows").values(escrow).execute()
  return id
}

async function reclaim(shop: Shop, value: bigint, more: boolean, at: number): Promise<Counted> {
  const id = await escrow(shop, value, new Date(at))
  const set = (reclaimed: bigint, ms: number) =>
    shop.service.ctx.db
      .updateTable("escrows")
      .set({ reclaimed, updated_at: new Date(ms) })
      .where("session_id", "=", id)
      .execute()
  await set(value, at)
  // The books keep the time of the first.
  if (more) await set(value + 1n, at + 3_600_000)
  const amount = more ? value + 1n : value
  return { figure: "released", token: paperNetwork.token.address, at, amount, count: 1 }
}

type Checkout = Extract<Happening, { kind: "checkout" }>

async function checkOut(
  shop: Shop,
  { at, paidAfter, isReversed, later }: Checkout,
  change: number,
): Promise<Counted[]> {
  const { db } = shop.service.ctx
  const made = change + at
  const id = `cs_${newHash().slice(2, 26)}`
  const time = new Date(made)
  const common = { chain_id: paperNetwork.chainId, merchant_id: shop.merchantId, created_at: time, updated_at: time }
  await db
    .insertInto("checkout_sessions")
    .values({ ...common, id, amount: 1n, currency: "USDC", status: "pending", expires_at: time })
    .execute()
  const set = (changes: object, ms: number) =>
    db
      .updateTable("checkout_sessions")
      .set({ ...changes, updated_at: new Date(ms) })
      .where("id", "=", id)
      .execute()
  const entry = (figure: string, at: number, count: number) => ({ figure, token: "" as const, at, amount: 0n, count })
  const counted = [entry("checkouts", made, 1)]
  if (paidAfter === null) return counted
  const paid = made + paidAfter
  await set({ status: "verifying" }, paid)
  await set({ status: "confirmed", confirmed_at: new Date(paid), tx_hash: newHash() }, paid)
  counted.push(entry("paid", paid, 1), entry("converted", made, 1))
  if (!isReversed) return counted
  await set({ status: "expired", confirmed_at: null }, change + later)
  return [...counted, entry("paid", Math.max(paid, change + later), -1), entry("converted", made, -1)]
}
