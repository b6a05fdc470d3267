/** Reads an escrow with its calls, and folds them. */
import { sql } from "kysely"
import type { TxContext } from "../../platform/context.ts"
import { gatherRows } from "../../platform/db/gather.ts"
import type { Db } from "../../platform/db/open.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { type Call, type FoldedEscrow, foldEscrow } from "./fold-escrow.ts"

/**
 * A session whose `capture` is not `direct`, and its escrow. `S` is the type of the session, with the columns that
 * were read.
 */
export interface Escrowed<S = Row<"checkout_sessions">> {
  session: S
  escrow: Row<"escrows">
}

/** The columns of a call that its escrow needs, without the calldata, which is long. */
const COLUMNS = [
  "payouts.id",
  "payouts.kind",
  "payouts.amount",
  "payouts.state",
  "payouts.succeeded",
  "payouts.payer",
  "payouts.wallet",
  "payouts.nonce",
  "payouts.tx_hash",
  "payouts.block_number",
  "payouts.block_hash",
  "payouts.held_reason",
  "payouts.held_detail",
  "payouts.created_at",
  "payouts.updated_at",
] as const
type Column = (typeof COLUMNS)[number] extends `payouts.${infer Name}` ? Name : never

/** A call's columns, and whether the scan found its block deep enough (`scanner/count-deep-calls.ts`). */
type CallRow = Pick<Row<"payouts">, Column & keyof Row<"payouts">> & Call

/** An escrow with its calls and their fold. */
export interface CurrentEscrow<S = Row<"checkout_sessions">> extends Escrowed<S> {
  /** In creation order, without captures, voids and refunds that were cancelled unsigned. */
  calls: CallRow[]
  folded: FoldedEscrow
}

/** Returns the escrows of sessions, by session. */
export async function escrowsOf(
  ctx: TxContext,
  sessions: readonly Pick<Row<"checkout_sessions">, "id" | "capture">[],
): Promise<Map<string, Row<"escrows">>> {
  const ids = sessions.filter(({ capture }) => capture !== "direct").map(({ id }) => id)
  if (ids.length === 0) return new Map()
  const rows = await ctx.db.selectFrom("escrows").selectAll().where("session_id", "in", ids).execute()
  return new Map(rows.map(row => [row.session_id, row]))
}

/** A session's escrow, for requests that wait for its state. */
export const escrowRow = gatherRows(async (db: Db, ids: readonly string[]) => {
  const rows = await db
    .selectFrom("escrows")
    .selectAll()
    .where(sql<boolean>`session_id = any(${sqlArray("text", ids)})`)
    .execute()
  return new Map(rows.map(row => [row.session_id, row]))
})

/**
 * Locks a session, then its escrow. Code that decides about an escrow's calls holds both locks. Whoever holds them
 * adds payouts but never waits for a payout's lock, because the trigger that wakes an escrow runs under that lock
 * (`withdraw-call.ts`). Undefined for a direct or unknown session.
 */
export async function lockEscrow(ctx: TxContext, sessionId: string): Promise<Escrowed | undefined> {
  const session = await ctx.db
    .selectFrom("checkout_sessions")
    .selectAll()
    .where("id", "=", sessionId)
    .where("capture", "<>", "direct")
    .forNoKeyUpdate()
    .executeTakeFirst()
  if (!session) return undefined
  const escrow = await ctx.db
    .selectFrom("escrows")
    .selectAll()
    .where("session_id", "=", sessionId)
    .forNoKeyUpdate()
    .executeTakeFirstOrThrow()
  return { session, escrow }
}

/** Returns an escrow's state according to the rows of its calls; exact while the escrow is locked. */
export async function standingOfEscrow<S extends Pick<Row<"checkout_sessions">, "expires_at">>(
  ctx: TxContext,
  { session, escrow }: Escrowed<S>,
): Promise<CurrentEscrow<S>> {
  const calls = (await callsOf(ctx.db, escrow.session_id)) ?? []
  const facts = { calls, reclaimed: escrow.reclaimed, expiresAt: session.expires_at }
  return { session, escrow, calls, folded: foldEscrow(facts, ctx.now()) }
}

const callsOf = gatherRows(async (db: Db, ids: readonly string[]): Promise<Map<string, CallRow[]>> => {
  const rows = await db
    .selectFrom("payouts")
    .select("payouts.escrow_id")
    .select(COLUMNS)
    .leftJoin("counted_calls", "counted_calls.payout_id", "payouts.id")
    .select("counted_calls.block_hash as counted_in")
    .where(sql<boolean>`payouts.escrow_id = any(${sqlArray("text", ids)})`)
    .where(sql<boolean>`(payouts.kind = 'reserve' or payouts.state <> 'cancelled' or payouts.nonce is not null)`)
    .orderBy("payouts.created_at")
    .orderBy("payouts.id")
    .execute()
  const called = ({ counted_in, escrow_id: _, ...row }: (typeof rows)[number]) => ({
    ...row,
    kind: row.kind as Call["kind"],
    deep: counted_in !== null && counted_in === row.block_hash,
  })
  return new Map([...Map.groupBy(rows, row => row.escrow_id ?? "")].map(([id, of]) => [id, of.map(called)]))
})
