/**
 * Manages a merchant's splits. Recipients are stored as sets that never change. An edit creates a new set, and gives
 * every paywall and bundle with the split a new address that commits to this set. Money at the old address is still
 * divided according to the old set.
 */
import { refusalsOf } from "../../account/identity/refuse-addresses.ts"
import { parseAddress } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import { screen } from "../../platform/chain/screen-addresses.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError, invalid } from "../../platform/errors.ts"
import { asWritten } from "../../platform/http/json.ts"
import { newId } from "../../platform/ids.ts"
import { moveBundleDeposit } from "../deposits/make-bundle-deposit.ts"
import { moveDeposit } from "../deposits/move-deposits.ts"
import { emitSplitChanged } from "./emit-split-changed.ts"
import type { RecipientsInput, SplitChange, SplitCreate } from "./schema.ts"
import { isTooLow, type Recipient, readRecipients } from "./split.ts"

export type SplitWithRecipients = Row<"splits"> & { recipients: Recipient[] }

/**
 * Checks and screens the recipients of a request. Throws `VALIDATION_ERROR`, `INVALID_SPLIT` or `SANCTIONS_MATCH`. This
 * function queries a sanctions list, so call it outside any transaction. A recipient that can't be screened now is
 * screened before each payout.
 */
export async function checkedRecipients(ctx: Context, input: RecipientsInput): Promise<Recipient[]> {
  const written = input.map(each => ({ ...each, percent: asWritten(each, "percent") }))
  const refusals = await refusalsOf(
    ctx,
    written.flatMap(each => parseAddress(each.address) ?? []),
  )
  const { recipients, form, faults } = readRecipients(written, address => refusals.get(address))
  if (form.length > 0) throw new ApiError("VALIDATION_ERROR", form)
  if (faults.length > 0) throw new ApiError("INVALID_SPLIT", faults)
  const addresses = recipients.map(each => each.address)
  const screened = await screen(ctx, addresses, "split")
  if (addresses.some(address => screened.get(address) === "listed")) throw new ApiError("SANCTIONS_MATCH")
  return recipients
}

/** Creates a split. Call this inside a transaction. */
export async function createSplit(
  ctx: TxContext,
  merchantId: string,
  { name, description = null }: SplitCreate,
  recipients: Recipient[],
): Promise<SplitWithRecipients> {
  const now = ctx.now()
  const setId = await newSet(ctx, recipients)
  const row = await ctx.db
    .insertInto("splits")
    .values({
      id: newId("spl"),
      merchant_id: merchantId,
      name,
      description,
      set_id: setId,
      created_at: now,
      updated_at: now,
    })
    .returningAll()
    .executeTakeFirstOrThrow()
  await emitSplitChanged(ctx, merchantId, {
    change: "created",
    splitId: row.id,
    resourceId: null,
    recipients,
  })
  return { ...row, recipients }
}

/** Changes the given fields. New recipients share payments from now on. Call this inside a transaction. */
export async function changeSplit(
  ctx: TxContext,
  merchantId: string,
  id: string,
  { name, description }: SplitChange,
  recipients: Recipient[] | undefined,
): Promise<SplitWithRecipients> {
  const before = await lockSplit(ctx, merchantId, id)
  const setId = recipients ? await newSet(ctx, recipients) : before.set_id
  if (recipients) {
    await assertDivisible(ctx, id, recipients.length)
    await routeSold(ctx, id, setId)
  }
  const row = await ctx.db
    .updateTable("splits")
    .set({
      set_id: setId,
      updated_at: ctx.now(),
      ...(name === undefined ? {} : { name }),
      ...(description === undefined ? {} : { description }),
    })
    .where("id", "=", id)
    .returningAll()
    .executeTakeFirstOrThrow()
  if (recipients)
    await emitSplitChanged(ctx, merchantId, {
      change: "changed",
      splitId: id,
      resourceId: null,
      recipients,
    })
  return { ...row, recipients: (await recipientsOf(ctx, [setId])).get(setId) ?? [] }
}

/**
 * Deletes a split forever. From now on, only the merchant is paid for everything that had this split. Call this inside
 * a transaction.
 */
export async function deleteSplit(ctx: TxContext, merchantId: string, id: string): Promise<void> {
  await lockSplit(ctx, merchantId, id)
  await routeSold(ctx, id, null)
  await ctx.db.deleteFrom("splits").where("id", "=", id).execute()
  await emitSplitChanged(ctx, merchantId, {
    change: "deleted",
    splitId: id,
    resourceId: null,
    recipients: [],
  })
}

/**
 * Returns the merchant's split. Throws `NOT_FOUND` if there is no such split, and `FORBIDDEN` if it belongs to another
 * merchant.
 */
export async function readSplit(ctx: TxContext, merchantId: string, id: string): Promise<SplitWithRecipients> {
  const row = own(await ctx.db.selectFrom("splits").selectAll().where("id", "=", id).executeTakeFirst(), merchantId)
  return { ...row, recipients: (await recipientsOf(ctx, [row.set_id])).get(row.set_id) ?? [] }
}

async function lockSplit(ctx: TxContext, merchantId: string, id: string): Promise<Row<"splits">> {
  return own(
    await ctx.db.selectFrom("splits").selectAll().where("id", "=", id).forNoKeyUpdate().executeTakeFirst(),
    merchantId,
  )
}

function own(row: Row<"splits"> | undefined, merchantId: string): Row<"splits"> {
  if (!row) throw new ApiError("NOT_FOUND")
  if (row.merchant_id !== merchantId) throw new ApiError("FORBIDDEN")
  return row
}

/**
 * Returns the recipient set for a thing that gets this `splitId`; undefined without a split. A paywall's version, and
 * later a session, stores this set. Throws `VALIDATION_ERROR` for an unknown split, and `FORBIDDEN` for a split of
 * another merchant. Locks the split until the transaction ends, so call this before locking anything that uses splits.
 */
export async function recipientSetOf(
  ctx: TxContext,
  merchantId: string,
  splitId: string | null | undefined,
): Promise<RecipientSet | undefined> {
  if (splitId === null || splitId === undefined) return undefined
  const set = (await recipientSetsOf(ctx, [splitId])).get(splitId)
  if (!set) throw invalid("splitId", "must be the id of one of your splits")
  if (set.merchantId !== merchantId) throw new ApiError("FORBIDDEN")
  return set
}

/** The set of recipients of a split, in order, and how many there are. */
export interface RecipientSet {
  merchantId: string
  setId: bigint
  size: number
  recipients: readonly Recipient[]
}

/** Returns the recipient sets of these splits, by split id. Locks the splits until the transaction ends. */
export async function recipientSetsOf(ctx: TxContext, splitIds: readonly string[]): Promise<Map<string, RecipientSet>> {
  if (splitIds.length === 0) return new Map()
  const query = ctx.db
    .selectFrom("splits")
    .selectAll()
    .where("id", "in", [...new Set(splitIds)])
  const rows = await query.orderBy("id").forShare().execute()
  const recipients = await recipientsOf(
    ctx,
    rows.map(({ set_id }) => set_id),
  )
  return new Map(
    rows.map(({ id, merchant_id: merchantId, set_id: setId }) => {
      const of = recipients.get(setId) ?? []
      return [id, { merchantId, setId, size: of.length, recipients: of }]
    }),
  )
}

/** Returns the recipients of these sets, in order. */
export async function recipientsOf(ctx: TxContext, setIds: readonly bigint[]): Promise<Map<bigint, Recipient[]>> {
  const sets = new Map<bigint, Recipient[]>()
  if (setIds.length === 0) return sets
  const rows = await ctx.db
    .selectFrom("recipients")
    .selectAll()
    .where("set_id", "in", [...new Set(setIds)])
    .orderBy("set_id")
    .orderBy("position")
    .execute()
  for (const { set_id, address, percent_e4: percentE4, label } of rows)
    sets.set(set_id, [...(sets.get(set_id) ?? []), { address, percentE4, label }])
  return sets
}

async function newSet(ctx: TxContext, recipients: readonly Recipient[]): Promise<bigint> {
  const { id } = await ctx.db
    .insertInto("recipient_sets")
    .values({ created_at: ctx.now() })
    .returning("id")
    .executeTakeFirstOrThrow()
  await ctx.db
    .insertInto("recipients")
    .values(
      recipients.map(({ address, percentE4, label }, position) => ({
        set_id: id,
        position,
        address,
        percent_e4: percentE4,
        label,
      })),
    )
    .execute()
  return id
}

/** Throws `INVALID_SPLIT` if something that uses the split costs too little for this many recipients. */
async function assertDivisible(ctx: TxContext, splitId: string, recipients: number): Promise<void> {
  const paywalls = await ctx.db
    .selectFrom("paywalls")
    .select(["id", "chain_id", "price"])
    .where("split_id", "=", splitId)
    .orderBy("id")
    .forNoKeyUpdate()
    .execute()
  // These rows are not locked, because a change of their price or split locks the split, as this function does.
  const products = ctx.db.selectFrom("products").select(["id", "chain_id", "price"]).where("split_id", "=", splitId)
  const links = ctx.db
    .selectFrom("payment_links")
    .select(["id", "chain_id", "amount as price"])
    .where("split_id", "=", splitId)
  // Free routes are left out, because nothing is divided there.
  const calls = ctx.db
    .selectFrom("bundles")
    .innerJoin("bundle_routes", "bundle_routes.bundle_id", "bundles.id")
    .select(["bundles.id", "bundles.chain_id", "bundle_routes.price"])
    .where("split_id", "=", splitId)
    .where("bundle_routes.price", ">", 0n)
  const priced = [
    ...paywalls,
    ...(await products.orderBy("id").execute()),
    ...(await links.orderBy("id").execute()),
    ...(await calls.orderBy("id").execute()),
  ]
  const low = priced.find(
    ({ chain_id, price }) =>
      price !== null && isTooLow(ctx.settings.minAmount, networkOf(ctx.chain, chain_id), price, recipients),
  )
  if (low)
    throw new ApiError("INVALID_SPLIT", [
      {
        path: "recipients",
        message: `has too many entries for the price of ${low.id}: each must get at least ${ctx.settings.minAmount}`,
      },
    ])
}

/** Gives every paywall and bundle with the split a new address, where money is divided among the new recipients. */
async function routeSold(ctx: TxContext, splitId: string, recipientSetId: bigint | null): Promise<void> {
  const paywalls = await ctx.db
    .selectFrom("paywalls")
    .select(["id", "chain_id"])
    .where("split_id", "=", splitId)
    .orderBy("id")
    .forNoKeyUpdate()
    .execute()
  for (const { id, chain_id } of paywalls)
    await moveDeposit(ctx, networkOf(ctx.chain, chain_id), id, { recipientSetId })
  const bundles = await ctx.db
    .selectFrom("bundles")
    .select(["id", "chain_id"])
    .where("split_id", "=", splitId)
    .orderBy("id")
    .forNoKeyUpdate()
    .execute()
  for (const { id, chain_id } of bundles)
    await moveBundleDeposit(ctx, networkOf(ctx.chain, chain_id), id, { recipientSetId })
}
