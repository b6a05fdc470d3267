/** `/api/device`: a machine without a browser gets an API key (RFC 8628). The person decides at `/console/device`. */
import { type Context, wallTime } from "../../platform/context.ts"
import type { Scope } from "../../platform/http/rights.ts"
import type { Server } from "../../platform/http/server.ts"
import { newId } from "../../platform/ids.ts"
import { plainAddress } from "../../platform/limits/buckets.ts"
import { newSecret } from "../sessions/open-sessions.ts"
import { hashOf } from "../sessions/session.ts"
import { DEVICE_MS, defaultScopes, INTERVAL_S, newUserCode } from "./device.ts"
import { makeDeviceKey } from "./make-device-key.ts"
import { DeviceAsk, DeviceBegin, DeviceBegun, DeviceKey } from "./schema.ts"

const tags = ["sign-in"]

export function deviceRoutes(app: Server, ctx: Context): void {
  app.post(
    "/api/device",
    {
      schema: {
        operationId: "beginDeviceSignIn",
        summary: "Starts the sign-in of a program that has no browser",
        description:
          "Show the person `user_code` and `verification_uri`, and poll `POST /api/device/token` every `interval` seconds. The person opens the page, signs in and types the code. The page shows the machine's name, its IP address and the scopes, and the person approves or denies. No URL contains the code, so a person who types it read it on their own machine.",
        tags,
        body: DeviceBegin,
        response: { 200: DeviceBegun },
      },
    },
    async (request, reply) => {
      const { host, scopes = defaultScopes(ctx.settings.mode) } = request.body
      const deviceCode = newSecret()
      const begin = async (userCode: string) => {
        const now = wallTime(ctx)
        const { numInsertedOrUpdatedRows: made } = await ctx.db
          .insertInto("device_sign_ins")
          .values({
            id: newId("dev"),
            device_hash: hashOf(deviceCode),
            user_hash: hashOf(userCode),
            host,
            scopes: [...scopes],
            address: plainAddress(request.ip) ?? null,
            interval_s: INTERVAL_S,
            created_at: now,
            expires_at: new Date(now.getTime() + DEVICE_MS),
          })
          .onConflict(conflict => conflict.column("user_hash").doNothing())
          .executeTakeFirst()
        return made === 1n
      }
      let userCode = newUserCode()
      // Another waiting device may already have this code; the chance is one in 25 billion for each.
      while (!(await begin(userCode))) userCode = newUserCode()
      void reply.header("cache-control", "no-store")
      return {
        device_code: deviceCode,
        user_code: userCode,
        verification_uri: `${ctx.settings.consoleUrl}/console/device`,
        expires_in: DEVICE_MS / 1_000,
        interval: INTERVAL_S,
      }
    },
  )

  app.post(
    "/api/device/token",
    {
      schema: {
        operationId: "askForDeviceKey",
        summary: "Polls for the key of a program that signs in; the key is returned only once",
        description:
          "Until the person has decided, the answer is 400 `authorization_pending`. The key is named `CLI, HOST, PERSON` and lasts 90 days. It ends immediately when the person leaves the merchant, or gets a role that may not grant its scopes. It can be renamed and revoked, but not changed or rolled.",
        tags,
        body: DeviceAsk,
        response: { 200: DeviceKey },
      },
      config: {
        errors: ["authorization_pending", "slow_down", "access_denied", "expired_token", "INVALID_OPERATION"],
      },
    },
    async (request, reply) => {
      const { key, row } = await makeDeviceKey(ctx, request, request.body.device_code)
      void reply.header("cache-control", "no-store")
      return {
        id: row.id,
        key,
        name: row.name,
        scopes: row.scopes as Scope[],
        merchantId: row.merchant_id,
        expiresAt: row.expires_at?.toISOString() ?? "",
      }
    },
  )
}
