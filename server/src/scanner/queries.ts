/** SQL of the scan: what it scans for, and what it found. */
import { type RawBuilder, sql } from "kysely"
import type { Address } from "../chain/hex.ts"
import type { NetworkInfo } from "../chain/networks.ts"
import type { Transfer } from "../chain/transfers.ts"
import type { Context, TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { sqlArray } from "../db/sql-array.ts"
import { statusMessage } from "./submission-faults.ts"

export interface WatchedDeposit {
  id: bigint
  address: Address
  /** The id of the resource that is sold there. */
  resource: string
  /** Whether it is in the scan of the logs. */
  watched: boolean
  /** The block up to which its transfers are known, if the scan has to catch up first. */
  watchedNumber: bigint | null
}

const depositsOn = (ctx: Context, chainId: number) =>
  ctx.db
    .selectFrom("deposits")
    .select(["id", "address", "resource_id as resource", "watched", "watched_number as watchedNumber"])
    .where("chain_id", "=", chainId)
    .orderBy("id")

/** The receiving addresses of a network that are in the scan of the logs. */
export const watchedDeposits = (ctx: Context, chainId: number): Promise<WatchedDeposit[]> =>
  depositsOn(ctx, chainId).where("watched", "=", true).execute()

/**
 * Returns the deposits that have one of these addresses, or belong to one of these resources, in the order they were
 * made.
 */
export async function depositsAmong(
  ctx: Context,
  chainId: number,
  addresses: readonly Address[],
  resources: readonly string[],
): Promise<WatchedDeposit[]> {
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
 * Records that the transfers of these addresses are known up to a block; with `undefined`, that the ordinary scan
 * covers them again.
 */
export async function watchedUpTo(ctx: TxContext, ids: readonly bigint[], number: bigint | undefined): Promise<void> {
  if (number === undefined) {
    await sql`update deposits set watched_number = null where id in (${sql.join(ids)}) and watched`.execute(ctx.db)
    return
  }
  await sql`update deposits set watched_number = greatest(watched_number, ${number}::bigint)
    where id in (${sql.join(ids)}) and watched and watched_number is not null`.execute(ctx.db)
}

/** Returns the submissions whose receipt is due to be read. */
export const dueSubmissions = (ctx: Context, chainId: number, limit: number): Promise<Row<"submissions">[]> =>
  ctx.db
    .selectFrom("submissions")
    .selectAll()
    .where("chain_id", "=", chainId)
    .where("run_at", "<=", ctx.now())
    .orderBy("run_at")
    .limit(limit)
    .execute()

/** Transfers whose block is not finalized yet. */
export const unfinalTransfers = (ctx: TxContext, chainId: number): Promise<Row<"transfers">[]> =>
  ctx.db
    .selectFrom("transfers")
    .selectAll()
    .where("chain_id", "=", chainId)
    .where("state", "in", ["seen", "confirmed"])
    .orderBy("id")
    .execute()

const ROWS_PER_STATEMENT = 500

/**
 * SQL: whether a report is about another transfer than the row. A block's hash fixes its content, so a row that was
 * agreed on differs only if it is in another block now; a row that one endpoint alone reported can be wrong in
 * anything.
 */
const isOther = sql<boolean>`(transfers.block_hash <> excluded.block_hash or (transfers.single_source and
  (transfers.block_time, transfers.log_index, transfers.value, transfers.from_address) <>
  (excluded.block_time, excluded.log_index, excluded.value, excluded.from_address)))`

/**
 * Stores transfers as seen. A known transfer that is unchanged stays as it is. One that changed (a transaction that
 * runs again in another block can move other amounts, and from another sender), or was gone, is seen again. A transfer
 * that only one of two endpoints has (`isSingle`) changes nothing that is known, and an agreed one replaces it.
 * Finalized ones never change. Returns the receiving addresses where something changed.
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
            // A transfer that needed a second endpoint can count now.
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

/** Makes the resources that are sold at these addresses, or have these ids, due for settlement. */
export async function wakeSold(
  ctx: TxContext,
  deposits: readonly bigint[],
  resources: readonly string[],
): Promise<void> {
  if (deposits.length + resources.length > 0) for (const kind of ctx.sells) await kind.wake?.(ctx, deposits, resources)
}

/**
 * Marks transfers as confirmed and due for settlement, if they are still in the block that was read; `isSingle` if only
 * one of two endpoints says so.
 */
export async function confirmTransfers(
  ctx: TxContext,
  standing: readonly Row<"transfers">[],
  isSingle: boolean,
): Promise<void> {
  await eachStatement(standing, rows =>
    sql`update transfers t set state = 'confirmed', suspect_at = null, run_at = ${ctx.now()}, single_source = ${isSingle}
      from (values ${rows}) as standing (id, block_hash)
      where t.id = standing.id and t.state = 'seen' and t.block_hash = standing.block_hash`.execute(ctx.db),
  )
}

/** Marks confirmed transfers as final if they are still in the block that was read. */
export async function finalizeTransfers(ctx: TxContext, standing: readonly Row<"transfers">[]): Promise<void> {
  await eachStatement(standing, rows =>
    sql`update transfers t set state = 'final', suspect_at = null from (values ${rows}) as standing (id, block_hash)
      where t.id = standing.id and t.state = 'confirmed' and t.block_hash = standing.block_hash`.execute(ctx.db),
  )
}

async function eachStatement(
  rows: readonly Row<"transfers">[],
  run: (values: RawBuilder<unknown>) => Promise<unknown>,
): Promise<void> {
  for (let start = 0; start < rows.length; start += ROWS_PER_STATEMENT)
    await run(
      sql.join(
        rows.slice(start, start + ROWS_PER_STATEMENT).map(row => sql`(${row.id}::bigint, ${row.block_hash}::text)`),
      ),
    )
}

/**
 * Links submissions and the transfers that they name: the submission needs no receipt any more (one that had been given
 * up is checked again), and a confirmed transfer is settled now.
 */
export async function linkSubmissions(ctx: TxContext, network: NetworkInfo, message: string): Promise<void> {
  // A paywall's access belongs to the sender, so the submitter must be the sender; anybody may pay a checkout.
  const named = sql`s.chain_id = t.chain_id and s.tx_hash = t.tx_hash and d.id = t.deposit_id
    and s.resource_id = d.resource_id and (not s.by_sender or s.address = t.from_address)
    and t.chain_id = ${network.chainId} and t.token = ${network.token.address}`
  await sql`update submissions s set run_at = null, status = 'verifying', reason = null, message = ${message},
      block_number = t.block_number, updated_at = ${ctx.now()}
    from transfers t, deposits d where ${named} and t.state <> 'gone'
      and ((s.status = 'verifying' and s.run_at is not null) or (s.status = 'failed' and s.reason = 'not_found'))`.execute(
    ctx.db,
  )
  await sql`update transfers t set run_at = ${ctx.now()}
    from submissions s, deposits d where ${named} and s.status = 'verifying' and t.state in ('confirmed', 'final')
      and (t.run_at is null or t.run_at > ${ctx.now()})`.execute(ctx.db)
  // A submission whose transfer is gone, or got another sender when it was mined again, needs its receipt again.
  await sql`update submissions s set run_at = ${ctx.now()} where s.chain_id = ${network.chainId} and s.status = 'verifying'
      and s.run_at is null and not exists (select from transfers t, deposits d where ${named} and t.state <> 'gone')`.execute(
    ctx.db,
  )
}

/** A submission that is due now, for the first time or again. */
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
 * Makes a network due for verification soon. Call it outside a transaction, because the verification locks this row
 * while it writes.
 */
export async function verifySoon(ctx: Context, chainId: number): Promise<void> {
  const now = ctx.now()
  await ctx.db
    .updateTable("cursors")
    .set({ run_at: now })
    .where("chain_id", "=", chainId)
    .where("run_at", ">", now)
    .execute()
  await ctx.wakes.wake("verify")
}
