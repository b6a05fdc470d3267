/**
 * Creates receiving addresses. Each address is known before anything is deployed there, and belongs to one thing for
 * sale.
 */
import { randomBytes } from "node:crypto"
import { type RawBuilder, sql } from "kysely"
import { addressOfTerms, type Payee, payeesHash } from "../../platform/chain/deposit-terms.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import { gatherBy } from "../../platform/db/gather.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"

/** The parties to which a receiving address commits. */
export interface Parties {
  /** The merchant's payout address. */
  owner: Address
  /**
   * The address whose signature approves returns to payers. The factory's own address means that the service returns
   * money without a signature.
   */
  approver: Address
  /** The recipients of a split; null means that the owner gets everything. */
  recipientSetId: bigint | null
}

/** The terms of a receiving address, and its purpose. */
interface DepositTerms extends Parties {
  /** The id of the resource that is sold at the address. */
  resourceId: string
  /** After this time anyone may send what is left at the address to the owner. */
  opensAt: Date
  /** How long the address is watched at first, in milliseconds. */
  watchedMs: number
}

/** Creates a receiving address. */
export async function makeDeposit(ctx: TxContext, network: NetworkInfo, terms: DepositTerms): Promise<Row<"deposits">> {
  const [row] = await makeDeposits(ctx, [{ network, ...terms }])
  if (!row) throw new Error("a receiving address was not created")
  return row
}

/** Creates receiving addresses, in one statement. */
export async function makeDeposits(
  ctx: TxContext,
  all: readonly (DepositTerms & { network: NetworkInfo })[],
): Promise<Row<"deposits">[]> {
  if (all.length === 0) return []
  const sets = await payeesOfSets(
    ctx,
    all.flatMap(each => each.recipientSetId ?? []),
  )
  const rows = all.map(({ network, ...terms }) =>
    depositRow(ctx, network, terms, terms.recipientSetId === null ? [] : (sets.get(terms.recipientSetId) ?? [])),
  )
  return await ctx.db.insertInto("deposits").values(rows).returningAll().execute()
}

/** Builds the row of a new receiving address. `payees` are the recipients in the address's recipient set, in order. */
export function depositRow(
  ctx: TxContext,
  network: NetworkInfo,
  { resourceId, owner, approver, recipientSetId, opensAt, watchedMs }: DepositTerms,
  payees: readonly Payee[],
) {
  const now = ctx.now()
  const salt = `0x${randomBytes(32).toString("hex")}` as Hash
  const openAfter = BigInt(Math.floor(opensAt.getTime() / 1_000))
  const factory = network.depositFactory
  const hash = payeesHash(payees)
  return {
    chain_id: network.chainId,
    address: addressOfTerms(factory, salt, { owner, approver, payeesHash: hash, openAfter }),
    factory,
    salt,
    owner,
    approver,
    payees_hash: hash,
    recipient_set_id: recipientSetId,
    open_after_s: openAfter,
    resource_id: resourceId,
    created_at: now,
    watched_until: new Date(now.getTime() + watchedMs),
  }
}

/** Creates a paywall's or bundle's receiving address. The money there can go only to these parties. */
export const makeStandingDeposit = (
  ctx: TxContext,
  network: NetworkInfo,
  resourceId: string,
  parties: Parties,
): Promise<Row<"deposits">> => {
  const opensAt = new Date(ctx.now().getTime() + OPEN_AFTER_MS)
  return makeDeposit(ctx, network, { resourceId, ...parties, opensAt, watchedMs: 0 })
}

/** Returns a set's recipients in the order to which an address commits, or an empty list without a set. */
export const payeesOf = async (ctx: TxContext, setId: bigint | null): Promise<Payee[]> =>
  setId === null ? [] : ((await payeesOfSets(ctx, [setId])).get(setId) ?? [])

/** Returns the recipients of these sets, by set id, in the order to which an address commits. */
export async function payeesOfSets(ctx: TxContext, setIds: readonly bigint[]): Promise<Map<bigint, Payee[]>> {
  if (setIds.length === 0) return new Map()
  const rows = await ctx.db
    .selectFrom("recipients")
    .select(["set_id", "address", "percent_e4 as percentE4"])
    .where("set_id", "in", [...new Set(setIds)])
    .orderBy("set_id")
    .orderBy("position")
    .execute()
  const sets = Map.groupBy(rows, row => row.set_id)
  return new Map(
    [...sets].map(([id, payees]) => [id, payees.map(({ address, percentE4 }) => ({ address, percentE4 }))]),
  )
}

/**
 * After this time anyone may send what is left at a paywall's or bundle's address to the owner. Before that, the
 * paywall or bundle gets a new address.
 */
const OPEN_AFTER_MS = 365 * 86_400_000
/** An address is replaced this long before anyone may recover the money there. */
export const RENEW_BEFORE_S = 60 * 86_400
/** A recently replaced address may still be paid, so it is watched for this long. */
export const COOLING_MS = 2 * 3_600_000

/** Someone who views what is sold at an address may be about to pay, so the address is watched for this long. */
const WATCH_MS = 3_600_000

/**
 * SQL: whether anyone requested what is sold at a deposit after the deposit was created. A deposit is watched for an
 * hour after its creation and after each request.
 */
export const wasAskedFor = (deposit: "d" | "w" | "deposits"): RawBuilder<boolean> =>
  sql<boolean>`(${sql.ref(`${deposit}.watched_until`)} > ${sql.ref(`${deposit}.created_at`)} + interval '1 hour')`

/** The condition on `deposits` for rows that {@link watch} would update. */
export const watchEnds = (now: Date): RawBuilder<boolean> =>
  sql<boolean>`(not watched or watched_until < ${new Date(now.getTime() + WATCH_MS / 2)}::timestamptz)`

/**
 * Watches the addresses of these resources, or extends the watch. Writes only at first, and again when half of the
 * watch has passed.
 */
export async function watch(ctx: Context, ...resources: string[]): Promise<void> {
  const now = ctx.now()
  // The rows are always locked in the same order, because two processes that watch the same resources could otherwise
  // deadlock.
  const ending = ctx.db
    .selectFrom("deposits")
    .select("id")
    .where(sql<boolean>`resource_id = any(${sqlArray("text", resources)})`)
    .where(sql<boolean>`(${watchEnds(now)} or not ${wasAskedFor("deposits")})`)
    .orderBy("id")
    .forNoKeyUpdate()
  await ctx.db
    .updateTable("deposits")
    .set({ watched: true, watched_until: new Date(now.getTime() + WATCH_MS) })
    .where("id", "in", ending)
    .execute()
}

/**
 * Watches a resource's address while a client waits for the resource. Clients that start at the same time share a
 * statement.
 */
export const keepWatched = (ctx: Context, resource: string): Promise<unknown> => watchTogether(ctx, resource)

const watchTogether = gatherBy(async (ctx: Context, resources: readonly string[]) => {
  await watch(ctx, ...resources)
  return new Map<string, never>()
})
