/**
 * Writes the first claims of payments, each with its relay. Those that come at the same time are one transaction: ten requests
 * cost what one does.
 */
import type { InsertObject } from "kysely"
import { type Context, inTransaction, type TxContext } from "../context.ts"
import type { Database, Row } from "../db/schema.ts"
import { gatherBy } from "../jobs/gather.ts"
import { type RelayRow, writeRelays } from "../payouts/accept-relay.ts"

/** A payment's row and its relay's, as they are to be written. */
export interface NewClaim {
  relay: RelayRow
  settlement: InsertObject<Database, "settlements"> & Pick<Row<"settlements">, "payer" | "nonce">
}

/** How a claim ended: with its row, as `lost` where another request was quicker, or with what the database refused it for. */
type Written = { row: Row<"settlements"> } | { lost: true } | { error: unknown }

/** Claims in one transaction: with more, a statement would have too many values. */
const CLAIMS_AT_ONCE = 100

/** Writes a payment's claim and its relay, both or neither; undefined where another request was quicker. */
export async function writeFirstClaim(ctx: Context, claim: NewClaim): Promise<Row<"settlements"> | undefined> {
  const written = (await gathered(ctx, claim)) ?? { lost: true }
  if ("error" in written) throw written.error
  return "row" in written ? written.row : undefined
}

const gathered = gatherBy(async (ctx: Context, claims: readonly NewClaim[]): Promise<Map<NewClaim, Written>> => {
  // In one order, so that two processes that write the same claims do not deadlock.
  const ordered = [...claims].sort((a, b) => (orderOf(a) < orderOf(b) ? -1 : 1))
  const written = new Map<NewClaim, Written>()
  for (let start = 0; start < ordered.length; start += CLAIMS_AT_ONCE)
    for (const [claim, each] of await writeSome(ctx, ordered.slice(start, start + CLAIMS_AT_ONCE)))
      written.set(claim, each)
  return written
})

const orderOf = ({ settlement: { payer, nonce } }: NewClaim): string => `${payer} ${nonce}`

async function writeSome(ctx: Context, claims: readonly NewClaim[]): Promise<Map<NewClaim, Written>> {
  try {
    return await inTransaction(ctx, ctx => writeAll(ctx, claims))
  } catch (error) {
    const [alone, ...others] = claims
    if (alone && others.length === 0) return new Map([[alone, error === forestalled ? { lost: true } : { error }]])
    if (!isOfOne(error)) throw error
    // One claim's fault is not the others'.
    const each = new Map<NewClaim, Written>()
    for (const claim of claims) for (const [key, written] of await writeSome(ctx, [claim])) each.set(key, written)
    return each
  }
}

/**
 * Whether one claim can be the reason: its row exists, or the database refuses its values. A database that is locked or gone would refuse
 * each alone too, after as long a wait for each.
 */
const isOfOne = (error: unknown): boolean =>
  error === forestalled || /^(22|23|40P01$|P0001$)/.test(`${(error as { code?: unknown })?.code ?? ""}`)

/** A relay was written and its claim was not: neither may stay. */
const forestalled = new Error("another request was quicker")

async function writeAll(ctx: TxContext, claims: readonly NewClaim[]): Promise<Map<NewClaim, Written>> {
  const made = await writeRelays(
    ctx,
    claims.map(({ relay }) => relay),
  )
  const ours = claims.filter(({ relay }) => made.has(relay.id))
  const rows =
    ours.length === 0
      ? []
      : await ctx.db
          .insertInto("settlements")
          .values(ours.map(({ settlement }) => settlement))
          .onConflict(conflict => conflict.doNothing())
          .returningAll()
          .execute()
  if (rows.length < ours.length) throw forestalled
  const byPayout = new Map(rows.map(row => [row.payout_id, row]))
  return new Map(
    claims.map((claim): [NewClaim, Written] => {
      const row = byPayout.get(claim.relay.id)
      return [claim, row ? { row } : { lost: true }]
    }),
  )
}
