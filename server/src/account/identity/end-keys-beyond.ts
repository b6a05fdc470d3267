/**
 * Handles a member's API keys when the member leaves or gets another role. Keys that the member can no longer create
 * end in seven days unless adopted, because servers may use them. Keys of the member's own devices end immediately.
 */
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import type { Role, Scope } from "../../platform/http/rights.ts"
import { mayGive } from "../../platform/http/route-access.ts"

const ADOPTABLE_MS = 7 * 86_400_000

/**
 * Ends the keys that a person can't create with this role (undefined after leaving), and keeps those that the person
 * can create again. Call it after the membership change and in the same transaction, because the creation of a key
 * waits for that transaction.
 */
export async function endKeysBeyond(
  ctx: TxContext,
  { merchantId, personId, role }: { merchantId: string; personId: string; role: Role | undefined },
): Promise<void> {
  const keys = await ctx.db
    .selectFrom("api_keys")
    .select(["id", "scopes", "by_device", "beyond_until"])
    .where("merchant_id", "=", merchantId)
    .where("made_by", "=", personId)
    .forNoKeyUpdate()
    .execute()
  for (const key of keys) {
    const isBeyond = role === undefined || !mayGive(role, key.scopes as Scope[])
    if (isBeyond && key.by_device) await ctx.db.deleteFrom("api_keys").where("id", "=", key.id).execute()
    else if (isBeyond && key.beyond_until === null) await setEnd(ctx, key.id, role)
    else if (!isBeyond && key.beyond_until !== null && key.beyond_until > ctx.now()) await goOn(ctx, key.id)
  }
}

const setEnd = (ctx: TxContext, id: string, role: Role | undefined) =>
  ctx.db
    .updateTable("api_keys")
    .set({
      beyond_until: new Date(ctx.now().getTime() + ADOPTABLE_MS),
      beyond_by: role === undefined ? "maker_left" : "maker_role",
    })
    .where("id", "=", id)
    .execute()

const goOn = (ctx: TxContext, id: string) =>
  ctx.db.updateTable("api_keys").set({ beyond_until: null, beyond_by: null }).where("id", "=", id).execute()

/** Keeps an ending key, which then belongs to the adopter; throws `INVALID_OPERATION` if it was not ending. */
export async function adoptApiKey(
  ctx: TxContext,
  { id, beyond_until }: Pick<Row<"api_keys">, "id" | "beyond_until">,
  personId: string | undefined,
): Promise<Row<"api_keys">> {
  if (beyond_until === null)
    throw new ApiError(
      "INVALID_OPERATION",
      undefined,
      "This key is not ending because of its creator, so nobody needs to adopt it.",
    )
  return await ctx.db
    .updateTable("api_keys")
    .set({ beyond_until: null, beyond_by: null, made_by: personId ?? null })
    .where("id", "=", id)
    .returningAll()
    .executeTakeFirstOrThrow()
}

/** Throws `INVALID_OPERATION` for a device's key, whose secret stays with the person who signed in. */
export function refuseDeviceKey({ by_device }: Pick<Row<"api_keys">, "by_device">): void {
  if (by_device)
    throw new ApiError(
      "INVALID_OPERATION",
      undefined,
      "This is a device's key: it can be renamed and revoked, but not changed or rolled. To get another key, sign the device in again.",
    )
}
