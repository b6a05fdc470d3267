/** `/api/console/settings`: who the merchant is and where its money goes. */
import { Type } from "typebox"
import { checksummed } from "../chain/hex.ts"
import { networkOf } from "../chain/networks.ts"
import { type Context, inTransaction } from "../context.ts"
import { AddressText, Nullable, Strict, Timestamp } from "../http/schemas.ts"
import { callingMerchant, type Server } from "../http/server.ts"
import { changeSettings, payoutAddresses } from "./settings.ts"

const Settings = Type.Object({
  merchantId: Type.String(),
  name: Type.String(),
  email: Nullable(Type.String()),
  payoutAddress: Nullable(AddressText),
  payoutAddresses: Type.Record(Type.String(), AddressText),
  pendingPayoutAddresses: Type.Record(Type.String(), Type.Object({ address: AddressText, effectiveAt: Timestamp })),
})

const SettingsChange = Strict({
  name: Type.Optional(Type.String({ maxLength: 200 })),
  email: Type.Optional(Nullable(Type.String({ maxLength: 320, pattern: "^[^@\\s]+@[^@\\s]+$" }))),
  payoutAddress: Type.Optional(AddressText),
  payoutAddresses: Type.Optional(Type.Record(Type.String(), AddressText)),
})

export function identityRoutes(app: Server, ctx: Context): void {
  app.get(
    "/api/console/settings",
    { schema: { summary: "The merchant's settings", tags: ["console"], response: { 200: Settings } } },
    async request => await settingsOf(ctx, await callingMerchant(ctx, request)),
  )

  app.put(
    "/api/console/settings",
    {
      schema: {
        summary: "Changes the settings that are given",
        tags: ["console"],
        body: SettingsChange,
        response: { 200: Settings },
      },
    },
    async request => {
      const merchantId = await callingMerchant(ctx, request)
      const { payoutAddress, payoutAddresses = {}, ...rest } = request.body
      const defaultName = ctx.chain.networks[0]?.name ?? ""
      const addresses = { ...(payoutAddress === undefined ? {} : { [defaultName]: payoutAddress }), ...payoutAddresses }
      await inTransaction(ctx, ctx => changeSettings(ctx, merchantId, { ...rest, payoutAddresses: addresses }))
      return await settingsOf(ctx, merchantId)
    },
  )
}

async function settingsOf(ctx: Context, merchantId: string) {
  const { name, email } = await ctx.db
    .selectFrom("merchants")
    .select(["name", "email"])
    .where("id", "=", merchantId)
    .executeTakeFirstOrThrow()
  const rows = (await payoutAddresses(ctx, merchantId)).map(row => ({
    ...row,
    network: networkOf(ctx.chain, row.chain_id).name,
  }))
  const addresses = Object.fromEntries(rows.map(row => [row.network, checksummed(row.address)]))
  const pending = rows.flatMap(row =>
    row.pending_address && row.pending_at
      ? [
          [
            row.network,
            { address: checksummed(row.pending_address), effectiveAt: row.pending_at.toISOString() },
          ] as const,
        ]
      : [],
  )
  return {
    merchantId,
    name,
    email,
    payoutAddress: addresses[ctx.chain.networks[0]?.name ?? ""] ?? null,
    payoutAddresses: addresses,
    pendingPayoutAddresses: Object.fromEntries(pending),
  }
}
