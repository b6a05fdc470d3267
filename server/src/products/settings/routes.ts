/** `/api/console/settings`: the merchant's profile and payout addresses. */
import { Type } from "typebox"
import { approvedByWallet } from "../../account/identity/check-wallet-lock.ts"
import { payoutAddresses } from "../../account/identity/read-payout-addresses.ts"
import { accountSecret, masked } from "../../account/webhooks/manage-secrets.ts"
import { type Approver, approverOr } from "../../ledger/deposits/find-parties.ts"
import { gasBudgetOf } from "../../ledger/txmanager/check-gas-budget.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import { type Context, inTransaction } from "../../platform/context.ts"
import { checkPart } from "../../platform/http/admit-member.ts"
import { AddressText, Described, Matching, Nullable, Strict, Timestamp } from "../../platform/http/schemas.ts"
import { callingMerchant, type Server } from "../../platform/http/server.ts"
import { brandingOf, changeBranding } from "./change-branding.ts"
import { changeSettings } from "./change-settings.ts"
import { protectedPart } from "./check-protected-settings.ts"

const ApproverName = Type.Unsafe<Approver>({
  type: "string",
  enum: ["wallet", "service"],
  description:
    "Who sends money back to payers, for receiving addresses created from now on. `wallet`: only your payout address, with its signature. `service`: the service, when you request a return. With `service`, a thief of the service's key can send your money anywhere until it is swept, or until the service's guardian stops it. The default is `wallet` in live mode, otherwise `service`",
})

const Currency = Matching("^[A-Z]{3}$", "A currency: three capital letters (ISO 4217), such as EUR")

const Settings = Type.Object({
  merchantId: Type.String(),
  name: Type.String(),
  email: Nullable(Type.String()),
  walletLock: Type.Boolean({ description: "Whether changing who is paid needs the payout wallet's signature" }),
  approver: ApproverName,
  payoutAddress: Nullable(AddressText),
  payoutAddresses: Type.Record(Type.String(), AddressText),
  pendingPayoutAddresses: Type.Record(Type.String(), Type.Object({ address: AddressText, effectiveAt: Timestamp })),
  gasBudget: Nullable(
    Type.Object(
      {
        limit: Type.String({ examples: ["0.02"] }),
        spent: Type.String({
          description:
            "The cost of the payouts of the last 24 hours; payouts not mined yet count with their maximum cost",
        }),
        heldPayouts: Type.Integer({ description: "Payouts that wait for the budget" }),
        freesAt: Described(Nullable(Timestamp), "When the first of them is retried"),
      },
      { description: "What payouts may cost in 24 hours, in ether; null for no limit" },
    ),
  ),
  webhookSecret: Described(Type.String(), "The secret that signs callbacks, masked. It can be shown only once"),
  branding: Type.Object(
    {
      accentColor: Nullable(Type.String({ examples: ["#1b4fd8"] })),
      logoUrl: Nullable(Type.String({ examples: ["https://pay.example/logo/kZ0vJ3qRr2m1"] })),
    },
    { description: "The look of the payers' pages" },
  ),
  allowedOrigins: Type.Array(Type.String({ examples: ["https://shop.example"] })),
  currency: Described(Currency, "The currency in which lists and reports show the value of your money"),
  liveListeners: Described(Type.Boolean(), "Whether listeners can be created in live mode"),
  timeZone: Described(
    Nullable(Type.String({ examples: ["Asia/Kolkata"] })),
    "The time zone of the console's times and days; null for that of each browser",
  ),
})

/** The length of 64 KB in base64, with the prefix of a data: URL. */
const LOGO_CHARACTERS = 87_500
const MAX_ORIGINS = 20

const BrandingChange = Strict({
  accentColor: Type.Optional(
    Described(
      Nullable(Matching("^#[0-9a-fA-F]{6}$", "A colour: # and 6 hexadecimal digits")),
      "The colour of the main button. Its text is adjusted until it is readable; null removes the colour",
    ),
  ),
  logo: Type.Optional(
    Described(
      Nullable(
        Matching(
          "^data:image/(png|jpeg|webp);base64,[A-Za-z0-9+/]+={0,2}$",
          "A PNG, JPEG or WebP image as a data: URL in base64",
          { maxLength: LOGO_CHARACTERS },
        ),
      ),
      "An image as a `data:` URL: PNG, JPEG or WebP, at most 64 KB and 2,048 pixels per side. This service serves it. Null removes it",
    ),
  ),
})

const SettingsChange = Strict(
  {
    name: Type.Optional(Matching("^$|\\S", "Text that is not blank; an empty text removes it", { maxLength: 200 })),
    email: Type.Optional(Nullable(Matching("^[^@\\s]+@[^@\\s]+$", "An e-mail address", { maxLength: 320 }))),
    walletLock: Type.Optional(
      Type.Boolean({
        description:
          "When on, only the payout wallet's signature can change payout addresses, splits, their attachments, the approver and the address to which an open payment is returned. Switching it off also needs that signature; switching it on needs the signature of every payout address",
      }),
    ),
    approver: Type.Optional(ApproverName),
    payoutAddress: Type.Optional(Described(AddressText, "The address that receives the money on the default network")),
    payoutAddresses: Type.Optional(
      Type.Record(Type.String(), AddressText, {
        maxProperties: 16,
        description: "The addresses that receive the money, by network name",
      }),
    ),
    branding: Type.Optional(Described(BrandingChange, "The look of the payers' pages")),
    currency: Type.Optional(
      Described(
        Currency,
        "The currency in which lists and reports show the value of your money: USD, or a currency whose rates this service has. Reports then show earlier payments in it too",
      ),
    ),
    liveListeners: Type.Optional(
      Type.Boolean({
        description:
          "Whether listeners, which pull real events to a developer's machine, can be created in live mode. False ends open listeners",
      }),
    ),
    timeZone: Type.Optional(
      Described(
        Nullable(Type.String({ maxLength: 64, examples: ["Asia/Kolkata"] })),
        "The time zone of the console's times and days, by its name in the IANA database. The overview and the tax report use it if they get no `tz`. With null, the console uses that of each browser",
      ),
    ),
    allowedOrigins: Type.Optional(
      Type.Array(Type.String({ maxLength: 260 }), {
        maxItems: MAX_ORIGINS,
        description:
          "The only sites that may show the payers' pages in a frame, such as `https://shop.example`. The list replaces the previous one",
      }),
    ),
  },
  { name: "Film shop", payoutAddress: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8" },
)

const tags = ["settings"]

export function identityRoutes(app: Server, ctx: Context): void {
  app.get(
    "/api/console/settings",
    {
      schema: {
        operationId: "readSettings",
        summary: "The merchant's settings",
        tags,
        response: { 200: Settings },
      },
    },
    async request => await settingsOf(ctx, await callingMerchant(request)),
  )

  app.put(
    "/api/console/settings",
    {
      schema: {
        operationId: "changeSettings",
        summary: "Changes the given settings",
        description:
          "In live mode a new payout address takes effect after 24 hours, and is shown until then. While " +
          "the wallet lock is on, the change needs the signature of the payout address that has been in effect " +
          "longest. If the replaced address itself signs, the change takes effect immediately. Switching the lock on needs the " +
          "signature of every payout address, even on networks that are not served now. A new payout address or `approver` gives " +
          "every paywall a new receiving address; money that reaches the old one more than an hour later is an exception.",
        tags,
        body: SettingsChange,
        response: { 200: Settings },
      },
      config: { walletLock: true },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      const { payoutAddress, payoutAddresses = {}, branding, allowedOrigins, ...rest } = request.body
      const defaultName = ctx.chain.networks[0]?.name ?? ""
      const decides = [payoutAddress, request.body.payoutAddresses, rest.walletLock, rest.approver]
      if (decides.some(each => each !== undefined)) checkPart(request, "payouts")
      const addresses = { ...(payoutAddress === undefined ? {} : { [defaultName]: payoutAddress }), ...payoutAddresses }
      const change = { ...rest, payoutAddresses: addresses }
      const approval = await approvedByWallet(ctx, request, merchantId, ctx => protectedPart(ctx, merchantId, change))
      await inTransaction(ctx, async ctx => {
        await approval.hold(ctx)
        await changeSettings(ctx, merchantId, change, approval.signer)
        await changeBranding(ctx, merchantId, { ...branding, ...(allowedOrigins ? { allowedOrigins } : {}) })
      })
      return await settingsOf(ctx, merchantId)
    },
  )
}

async function settingsOf(ctx: Context, merchantId: string) {
  const { accentColor, logo, allowedOrigins } = await brandingOf(ctx, merchantId)
  const { name, email, wallet_lock, approver, currency, live_listeners, time_zone } = await ctx.db
    .selectFrom("merchants")
    .select(["name", "email", "wallet_lock", "approver", "currency", "live_listeners", "time_zone"])
    .where("id", "=", merchantId)
    .executeTakeFirstOrThrow()
  // Addresses on networks that are not served now stay stored, in case those networks are served again.
  const rows = (await payoutAddresses(ctx, merchantId)).flatMap(row => {
    const network = ctx.chain.networks.find(each => each.chainId === row.chain_id)?.name
    return network === undefined ? [] : [{ ...row, network }]
  })
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
    walletLock: wallet_lock,
    approver: approverOr(ctx, approver),
    payoutAddress: addresses[ctx.chain.networks[0]?.name ?? ""] ?? null,
    payoutAddresses: addresses,
    pendingPayoutAddresses: Object.fromEntries(pending),
    gasBudget: await gasBudgetOf(ctx, merchantId),
    webhookSecret: masked(await accountSecret(ctx, merchantId)),
    branding: { accentColor, logoUrl: logo && `${ctx.settings.baseUrl}${logo}` },
    allowedOrigins,
    currency,
    liveListeners: live_listeners,
    timeZone: time_zone,
  }
}
