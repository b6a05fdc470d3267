/** A device asks for its key. After approval, the device gets the key once. Before that, it learns why it must wait. */
import type { FastifyRequest } from "fastify"
import { withActor } from "../../platform/actor.ts"
import { type Context, inTransaction, type TxContext, wallTime } from "../../platform/context.ts"
import { lockMerchant } from "../../platform/db/lock-merchant.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError, type ErrorCode } from "../../platform/errors.ts"
import { actorOf } from "../../platform/http/actor.ts"
import type { Role } from "../../platform/http/rights.ts"
import { NEW_KEY } from "../identity/key-terms.ts"
import { createApiKey, type ShownKey } from "../identity/manage-api-keys.ts"
import { hashOf } from "../sessions/session.ts"
import { whyNot } from "./decide-device.ts"
import { DEVICE_KEY_MS, INTERVAL_S, keyName, TOLERANCE_MS } from "./device.ts"
import { lockByDeviceCode } from "./queries.ts"

type Device = Row<"device_sign_ins">
type Approved = Device & { for_merchant: string; person_id: string; session_id: string }

/**
 * Creates an approved device's key and deletes the device. Throws the errors of RFC 8628, and `INVALID_OPERATION` if
 * the merchant has too many keys.
 */
export async function makeDeviceKey(ctx: Context, request: FastifyRequest, deviceCode: string): Promise<ShownKey> {
  const hash = hashOf(deviceCode)
  const asked = await inTransaction(ctx, ctx => ask(ctx, hash))
  if (typeof asked === "string") throw new ApiError(asked)
  const person = await ctx.db
    .selectFrom("persons as p")
    .leftJoin("members as m", join =>
      join.onRef("m.person_id", "=", "p.id").on("m.merchant_id", "=", asked.for_merchant),
    )
    .select(["p.iss", "p.sub", "p.email", "m.role"])
    .where("p.id", "=", asked.person_id)
    .executeTakeFirstOrThrow()
  if (person.role === null) throw new ApiError("access_denied")
  const { for_merchant: merchantId, person_id: personId, session_id: sessionId } = asked
  const { role } = person
  // The audit log names the approving person and the device's address. The approval's conditions must still hold.
  const { iss, sub } = person
  const actor = actorOf(request, { iss, sub })
  const held = actor && { ...actor, member: { merchantId, personId, role }, credential: { sessionId } }
  const name = keyName(asked.host, person.email ?? sub)
  return await withActor(held, () => inTransaction(ctx, ctx => take(ctx, hash, { name, role }))).catch(error => {
    const isLost = error instanceof ApiError && ["ROLE_REQUIRED", "UNAUTHORIZED"].includes(error.code)
    throw isLost ? new ApiError("access_denied", undefined, undefined, error) : error
  })
}

/** Records that a device asked for its key. Returns the device if it is approved, otherwise the error code. */
async function ask(ctx: TxContext, hash: string): Promise<Approved | ErrorCode> {
  const device = await lockByDeviceCode(ctx, hash)
  if (!device) return "expired_token"
  const now = wallTime(ctx)
  const since = device.asked_at ? now.getTime() - device.asked_at.getTime() : Number.POSITIVE_INFINITY
  const isEarly = since + TOLERANCE_MS < device.interval_s * 1_000
  const interval_s = device.interval_s + (isEarly ? INTERVAL_S : 0)
  await ctx.db.updateTable("device_sign_ins").set({ asked_at: now, interval_s }).where("id", "=", device.id).execute()
  if (isEarly) return "slow_down"
  if (isApproved(device)) return device
  return device.decision === "denied" ? "access_denied" : "authorization_pending"
}

const isApproved = (device: Device): device is Approved => device.decision === "approved"

/** Deletes the device, so that nobody else gets its key, and creates the key. */
async function take(ctx: TxContext, hash: string, { name, role }: { name: string; role: Role }): Promise<ShownKey> {
  const device = await lockByDeviceCode(ctx, hash)
  if (!device || !isApproved(device)) throw new ApiError("expired_token")
  const { for_merchant: merchantId, person_id: madeBy, scopes } = device
  await lockMerchant(ctx.db, merchantId)
  const refusal = await whyNot(ctx, { role, merchantId }, device)
  if (refusal !== undefined) throw new ApiError("access_denied", undefined, refusal)
  await ctx.db.deleteFrom("device_sign_ins").where("id", "=", device.id).execute()
  // Keys of earlier sign-ins must not use up the merchant's limit forever.
  await ctx.db
    .deleteFrom("api_keys")
    .where("merchant_id", "=", merchantId)
    .where("by_device", "=", true)
    .where("expires_at", "<=", ctx.now())
    .execute()
  const terms = { ...NEW_KEY, scopes, expires_at: new Date(ctx.now().getTime() + DEVICE_KEY_MS) }
  return await createApiKey(ctx, merchantId, { name, terms, madeBy, byDevice: true })
}
