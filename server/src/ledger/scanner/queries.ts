/** SQL of the scan: the addresses to scan, and the transfers that were found. */
import { sql } from "kysely"
import { ADDRESS_LENGTH, type Address, type Hash } from "../../platform/chain/hex.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { Transfer } from "../../platform/chain/transfers.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { bringBack } from "../deposits/put-away.ts"
import type { SellingTx } from "../settlement/sellable.ts"
import { statusMessage } from "./submission-faults.ts"

export interface WatchedDeposit {
  id: bigint
  address: Address
  /** The id of the resource that is sold at the deposit's address. */
  resource: string
}

const depositsOn = (ctx: Context, chainId: number) =>
  ctx.db
    .selectFrom("deposits")
    .select(["id", "address", "resource_id as resource"])
    .where("chain_id", "=", chainId)
    .orderBy("id")

/** Returns a network's receiving addresses that are in the log scan. Reads only the 42 characters of each address. */
export async function watchedAddresses(ctx: Context, chainId: number): Promise<Address[]> {
  const { rows } = await sql<{ all: string | null }>`select string_agg(address, '' order by id) as all from deposits
    where chain_id = ${chainId} and watched`.execute(ctx.db)
  const all = rows[0]?.all ?? ""
  return Array.from({ length: all.length / ADDRESS_LENGTH }, (_, i): Address => {
    return all.slice(i * ADDRESS_LENGTH, (i + 1) * ADDRESS_LENGTH) as Address
  })
}

/** A deposit whose scan has to catch up from block `watchedNumber`. */
export type BehindDeposit = Pick<WatchedDeposit, "id" | "address"> & { watchedNumber: bigint }

/** Returns at most `limit` deposits whose scan stopped after block `after`, and not later than block `before`. */
export async function depositsBehind(
  ctx: Context,
  chainId: number,
  { before, after, limit }: { before: bigint; after: bigint; limit: number },
): Promise<BehindDeposit[]> {
  const { rows } = await sql<BehindDeposit>`select id, address, watched_number as "watchedNumber" from deposits
    where chain_id = ${chainId} and watched and watched_number > ${after} and watched_number <= ${before}
    order by watched_number, id limit ${limit}`.execute(ctx.db)
  return rows
}

/**
 * Returns the deposits that have one of these addresses or belong to one of these resources, in the order of creation.
 */
export async function depositsAmong(
  ctx: Context,
  chainId: number,
  addresses: readonly Address[],
  resources: readonly string[],
): Promise<WatchedDeposit[]> {
  // Brings back the checkouts at these addresses, because a checkout with a payment or a request is no longer put away.
  if (addresses.length > 0) await bringBack(ctx, { addresses: [...new Set(addresses)] })
  const among = (values: readonly string[]) => sql`any(${sqlArray("text", new Set(values))})`
  const found = [
    ...(addresses.length > 0
      ? await depositsOn(ctx, chainId)
          .where(sql<boolean>`address = ${among(addresses)}`)
          .execute()
      : []),
    ...(resources.length > 0
      ? await depositsOn(ctx, chainId)
          .where(sql<boolean>`resource_id = ${among(resources)}`)
          .execute()
      : []),
  ]
  return found.sort((a, b) => (a.id < b.id ? -1 : 1))
}

/**
 * Records up to which block these addresses' transfers are known. `undefined` means that the ordinary scan covers the
 * addresses again.
 */
export async function watchedUpTo(ctx: TxContext, ids: readonly bigint[], number: bigint | undefined): Promise<void> {
  if (number === undefined) {
    await sql`update deposits set watched_number = null where id = any(${sqlArray("bigint", ids)}) and watched`.execute(
      ctx.db,
    )
    return
  }
  await sql`update deposits set watched_number = greatest(watched_number, ${number}::bigint)
    where id = any(${sqlArray("bigint", ids)}) and watched and watched_number is not null`.execute(ctx.db)
}

/**
 * Returns the submissions whose receipt is due. Anyone may submit any number of hashes that have no transaction, one
 * for each of their addresses. So paywalls take turns, and at each paywall new submissions take turns with those that
 * were already looked up.
 */
export const dueSubmissions = (ctx: Context, chainId: number, limit: number): Promise<Row<"submissions">[]> =>
  ctx.db
    .selectFrom("submissions")
    .selectAll()
    .where("chain_id", "=", chainId)
    .where("run_at", "<=", ctx.now())
    .orderBy(sql`row_number() over (partition by resource_id, attempts > 0 order by run_at)`)
    .orderBy("run_at")
    .limit(limit)
    .execute()

/**
 * Returns the ids of submissions among these that name a stored transfer in the settlement token which is neither final
 * nor gone.
 */
export async function explainedSubmissions(
  ctx: Context,
  network: NetworkInfo,
  ids: readonly bigint[],
): Promise<Set<bigint>> {
  const { rows } = await sql<{ id: bigint }>`select s.id from submissions s where s.id = any(${sqlArray("bigint", ids)})
    and exists (select from transfers t join deposits d on d.id = t.deposit_id where t.chain_id = s.chain_id
      and t.tx_hash = s.tx_hash and t.token = ${network.token.address} and t.state in ('seen', 'confirmed')
      and d.resource_id = s.resource_id and (not s.by_sender or t.from_address = s.address))`.execute(ctx.db)
  return new Set(rows.map(row => row.id))
}

/**
 * The most rows in a statement. The embedded database runs statements in this process, so a long one would block it.
 */
const ROWS_PER_STATEMENT = 200

/**
 * SQL: whether a report differs from the stored row. A block's hash fixes its content, so an agreed row differs only if
 * its transfer is now in another block. A row that only one endpoint reported can be wrong in any column.
 */
const isOther = sql<boolean>`(transfers.block_hash <> excluded.block_hash or (transfers.single_source and
  (transfers.block_time, transfers.log_index, transfers.value, transfers.from_address) <>
  (excluded.block_time, excluded.log_index, excluded.value, excluded.from_address)))`

/**
 * Stores transfers in the state `seen`. A known transfer that did not change keeps its state. A transfer that changed
 * or was gone returns to `seen`, because a reorged transaction can move other amounts, from another sender. A transfer
 * that only one of two endpoints has (`isSingle`) changes no known transfer, and an agreed one replaces it. Final
 * transfers never change. Returns the receiving addresses where something changed.
 */
export async function storeTransfers(
  ctx: TxContext,
  network: NetworkInfo,
  transfers: readonly (Transfer & { depositId: bigint; blockTime: Date; isSingle: boolean })[],
): Promise<bigint[]> {
  const changed: bigint[] = []
  for (let start = 0; start < transfers.length; start += ROWS_PER_STATEMENT) {
    const rows = await ctx.db
      .insertInto("transfers")
      .values(
        transfers.slice(start, start + ROWS_PER_STATEMENT).map(transfer => ({
          chain_id: network.chainId,
          tx_hash: transfer.txHash,
          token: transfer.token,
          to_address: transfer.to,
          k: transfer.k,
          deposit_id: transfer.depositId,
          from_address: transfer.from,
          value: transfer.value,
          block_number: transfer.blockNumber,
          block_hash: transfer.blockHash,
          log_index: transfer.logIndex,
          block_time: transfer.blockTime,
          single_source: transfer.isSingle,
          state: "seen" as const,
          created_at: ctx.now(),
        })),
      )
      .onConflict(conflict =>
        conflict
          .columns(["chain_id", "tx_hash", "token", "to_address", "k"])
          .doUpdateSet(eb => ({
            block_number: eb.ref("excluded.block_number"),
            block_hash: eb.ref("excluded.block_hash"),
            block_time: eb.ref("excluded.block_time"),
            log_index: eb.ref("excluded.log_index"),
            value: eb.ref("excluded.value"),
            from_address: eb.ref("excluded.from_address"),
            single_source: eb.ref("excluded.single_source"),
            state: sql`case when transfers.state = 'gone' or ${isOther} then 'seen' else transfers.state end`,
            suspect_at: sql`case when transfers.state = 'gone' or ${isOther} then null else transfers.suspect_at end`,
            // A transfer that lacked a second endpoint can count now.
            run_at: sql`case when transfers.state = 'confirmed' and not ${isOther} then ${ctx.now()} else transfers.run_at end`,
          }))
          .where(
            sql<boolean>`transfers.state <> 'final' and not excluded.single_source
              and (transfers.state = 'gone' or transfers.single_source or ${isOther})`,
          ),
      )
      .returning("deposit_id")
      .execute()
    changed.push(...rows.map(row => row.deposit_id))
  }
  return changed
}

/** Makes the resources that are sold at these addresses, or that have these ids, due for settlement. */
export async function wakeSold(
  ctx: SellingTx,
  deposits: readonly bigint[],
  resources: readonly string[],
): Promise<void> {
  if (deposits.length + resources.length > 0) for (const kind of ctx.sells) await kind.wake?.(ctx, deposits, resources)
}

/**
 * Marks a transfer as confirmed that only one of two endpoints reports, if its block has not changed since it was read.
 */
export const confirmSingle = (ctx: TxContext, { id, block_hash }: Row<"transfers">) =>
  sql`update transfers set state = 'confirmed', suspect_at = null, run_at = ${ctx.now()}
    where id = ${id} and state = 'seen' and single_source and block_hash = ${block_hash}`.execute(ctx.db)

/** The due submissions of a round, and the transactions with transfers that are new or changed in it. */
export interface Met {
  submissions: readonly bigint[]
  hashes: ReadonlySet<Hash>
}

/**
 * Links submissions to the transfers that they name. A linked submission needs no receipt any more, even if the service
 * had stopped looking for one, and a confirmed transfer is settled now. Only what concerns the round is checked,
 * because submitting hashes that do not exist is free, and such submissions stay in the table.
 */
export async function linkSubmissions(
  ctx: TxContext,
  network: NetworkInfo,
  message: string,
  { submissions, hashes }: Met,
): Promise<void> {
  if (submissions.length + hashes.size === 0) return
  const isMet = sql`s.chain_id = ${network.chainId}
    and (s.id = any(${sqlArray("bigint", submissions)}) or s.tx_hash = any(${sqlArray("text", hashes)}))`
  // A paywall's access belongs to the sender, so the submitter must be the sender. Anyone may pay a checkout.
  const named = sql`s.chain_id = t.chain_id and s.tx_hash = t.tx_hash and d.id = t.deposit_id
    and s.resource_id = d.resource_id and (not s.by_sender or s.address = t.from_address)
    and t.chain_id = ${network.chainId} and t.token = ${network.token.address}`
  await sql`update submissions s set run_at = null, status = 'verifying', reason = null, message = ${message},
      block_number = t.block_number, updated_at = ${ctx.now()}
    from transfers t, deposits d where ${isMet} and ${named} and t.state <> 'gone'
      and ((s.status = 'verifying' and s.run_at is not null) or (s.status = 'failed' and s.reason = 'not_found'))`.execute(
    ctx.db,
  )
  await sql`update transfers t set run_at = ${ctx.now()}
    from submissions s, deposits d where ${isMet} and ${named} and s.status = 'verifying' and t.state in ('confirmed', 'final')
      and (t.run_at is null or t.run_at > ${ctx.now()})`.execute(ctx.db)
  // A submission needs its receipt again if its transfer is gone, or has another sender after it was mined again.
  await sql`update submissions s set run_at = ${ctx.now()} where ${isMet} and s.status = 'verifying'
      and s.run_at is null and not exists (select from transfers t, deposits d where ${named} and t.state <> 'gone')`.execute(
    ctx.db,
  )
}

/** The columns of a submission that is due now, whether for the first time or again. */
export const freshSubmission = (now: Date) => ({
  status: "verifying" as const,
  reason: null,
  message: statusMessage.verifying,
  attempts: 0,
  run_at: now,
  submitted_at: now,
  updated_at: now,
})

/**
 * Makes a network due for verification soon. Call this outside a transaction, because verification locks this row while
 * it writes.
 */
export async function verifySoon(ctx: Context, chainId: number): Promise<void> {
  const now = ctx.now()
  await sql`/* named: verify_soon */ update cursors set run_at = ${now}
    where chain_id = ${chainId} and run_at > ${now}`.execute(ctx.db)
  await ctx.wakes.wake("verify")
}
