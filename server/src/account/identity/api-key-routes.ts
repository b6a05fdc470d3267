/** `/api/console/api-keys`: the keys of a merchant's servers. */
import type { FastifyRequest } from "fastify"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { listRoute } from "../../platform/http/list-route.ts"
import type { Scope } from "../../platform/http/rights.ts"
import { checkGivable } from "../../platform/http/route-access.ts"
import { idempotentlySealed } from "../../platform/http/run-idempotently.ts"
import { newestFirst } from "../../platform/http/send-lists.ts"
import { callingMerchant, orEmptyBody, type Server } from "../../platform/http/server.ts"
import { approvedByWallet } from "./check-wallet-lock.ts"
import { adoptApiKey, refuseDeviceKey } from "./end-keys-beyond.ts"
import { changedTerms, isSame, type KeyTerms, movesMoney, NEW_KEY, termsInWords } from "./key-terms.ts"
import { changeApiKey, createApiKey, readApiKey, revokeApiKey, rollApiKey } from "./manage-api-keys.ts"
import { Deleted, KeyChange, KeyCreate, KeyCreated, KeyId, KeyList, KeyRoll, KeyShown, NoBody } from "./schema.ts"

const tags = ["settings"]

export function apiKeyRoutes(app: Server, ctx: Context): void {
  app.post(
    "/api/console/api-keys",
    {
      schema: {
        operationId: "createApiKey",
        summary: "Creates an API key, and shows it only once",
        description:
          "Members can grant only scopes within their own role. Only an owner can grant `console`, because it includes splits. A key with `catalog` can't set `splitId` or `originUrl`.",
        tags,
        body: KeyCreate,
        response: { 201: KeyCreated },
      },
      config: { errors: ["INVALID_OPERATION"], walletLock: true, idempotencyKey: true },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      reply.code(201)
      return await idempotentlySealed(ctx, request, reply, merchantId, {
        prepare: async () => {
          const { name, ...given } = request.body
          const terms = changedTerms(NEW_KEY, given, ctx.now())
          checkGivableBy(request, terms)
          const approval = await approvedByWallet(ctx, request, merchantId, async () => {
            // A key with such a scope can move money until someone revokes the key.
            if (!movesMoney(terms)) return undefined
            return { words: { action: "Create API key", subject: name, from: "No key", to: termsInWords(terms) } }
          })
          return { name, terms, approval }
        },
        work: async (ctx, { name, terms, approval }) => {
          // `hold` locks the merchant, so two concurrent requests can't both create the last allowed key.
          await approval.hold(ctx)
          const { key, row } = await createApiKey(ctx, merchantId, { name, terms, madeBy: request.member?.personId })
          return { ...shownOf(row), key }
        },
      })
    },
  )

  listRoute(app, ctx, {
    path: "/api/console/api-keys",
    operationId: "listApiKeys",
    summary: "The API keys, without the secrets",
    tags,
    answer: KeyList,
    source: ({ db }, merchantId) =>
      newestFirst(db.selectFrom("api_keys").selectAll().where("merchant_id", "=", merchantId)),
    show: (_, rows) => rows.map(row => ({ ...shownOf(row), lastUsedAt: row.last_used_at?.toISOString() ?? null })),
  })

  app.put(
    "/api/console/api-keys/:id",
    {
      schema: {
        operationId: "changeApiKey",
        summary: "Changes the given fields of a key, starting with its next request",
        description:
          "Null removes an expiry, the addresses or a limit. To change more than the name, you must have the rights of all scopes that the key will have. With the wallet lock on, a key that will have `money` or `console` needs the payout wallet's signature.",
        tags,
        params: KeyId,
        body: KeyChange,
        response: { 200: KeyShown },
      },
      config: { errors: ["INVALID_OPERATION"], walletLock: true },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      const { id } = request.params
      const { name, ...given } = request.body
      const read = async (ctx: TxContext) => {
        const row = await readApiKey(ctx, merchantId, id)
        return { row, terms: changedTerms(row, given, ctx.now()) }
      }
      const approval = await approvedByWallet(ctx, request, merchantId, async ctx => {
        const { row, terms } = await read(ctx)
        if (isSame(row, terms)) return undefined
        checkGivableBy(request, terms)
        if (!movesMoney(terms)) return undefined
        const words = { from: termsInWords(row), to: termsInWords(terms) }
        return { words: { action: "Change API key", subject: id, ...words } }
      })
      return await inTransaction(ctx, async ctx => {
        await approval.hold(ctx)
        const { row, terms } = await read(ctx)
        if (!isSame(row, terms)) refuseDeviceKey(row)
        // The creator still has the secret, so the key stays the creator's unless it was ending or gets more scopes.
        const isMore = terms.scopes.some(scope => !row.scopes.includes(scope))
        const takesOver = !isSame(row, terms) && (row.beyond_until !== null || isMore)
        const madeBy = takesOver ? request.member?.personId : undefined
        return shownOf(await changeApiKey(ctx, row, { ...(name === undefined ? {} : { name }), terms, madeBy }))
      })
    },
  )

  app.post(
    "/api/console/api-keys/:id/roll",
    {
      schema: {
        operationId: "rollApiKey",
        summary: "Gives a key a new secret, and shows it only once",
        description:
          "The key keeps its id, its limits and its entries in the audit log. For `graceSeconds`, until `previousExpiresAt`, the previous secret works too. To roll a key, you must have the rights of all its scopes. With the wallet lock on, a key with `money` or `console` needs the payout wallet's signature.",
        tags,
        params: KeyId,
        body: KeyRoll,
        response: { 200: KeyCreated },
      },
      config: { errors: ["INVALID_OPERATION"], walletLock: true, idempotencyKey: true },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      const { id } = request.params
      return await idempotentlySealed(ctx, request, reply, merchantId, {
        prepare: async () =>
          await approvedByWallet(ctx, request, merchantId, async ctx => {
            const row = await readApiKey(ctx, merchantId, id)
            refuseDeviceKey(row)
            // The new secret grants everything that the key grants.
            checkGivableBy(request, row)
            if (!movesMoney(row)) return undefined
            const words = { from: `The secret that ends in ${row.last4}`, to: `A new secret. ${termsInWords(row)}` }
            return { words: { action: "Roll API key", subject: id, ...words } }
          }),
        work: async (ctx, approval) => {
          await approval.hold(ctx)
          const { graceSeconds } = request.body
          const { key, row } = await rollApiKey(ctx, await readApiKey(ctx, merchantId, id), graceSeconds)
          return { ...shownOf(row), key }
        },
      })
    },
  )

  app.post(
    "/api/console/api-keys/:id/adopt",
    {
      schema: {
        operationId: "adoptApiKey",
        summary: "Keeps a key whose creator may no longer grant it",
        description:
          "Such a key has `ending`: why and when it ends. To adopt it, you must have the rights of all its scopes; you then count as its creator. The previous creator may still know the secret, so roll the key too. With the wallet lock on, a key with `money` or `console` needs the payout wallet's signature.",
        tags,
        params: KeyId,
        body: NoBody,
        response: { 200: KeyShown },
      },
      config: { errors: ["INVALID_OPERATION"], walletLock: true },
      preValidation: orEmptyBody,
    },
    async request => {
      const merchantId = await callingMerchant(request)
      const { id } = request.params
      const approval = await approvedByWallet(ctx, request, merchantId, async ctx => {
        const row = await readApiKey(ctx, merchantId, id)
        checkGivableBy(request, row)
        if (!movesMoney(row)) return undefined
        const words = { from: `Ends at ${row.beyond_until?.toISOString()}`, to: `Continues. ${termsInWords(row)}` }
        return { words: { action: "Adopt API key", subject: id, ...words } }
      })
      return await inTransaction(ctx, async ctx => {
        await approval.hold(ctx)
        const row = await readApiKey(ctx, merchantId, id)
        checkGivableBy(request, row)
        return shownOf(await adoptApiKey(ctx, row, request.member?.personId))
      })
    },
  )

  app.delete(
    "/api/console/api-keys/:id",
    {
      schema: {
        operationId: "revokeApiKey",
        summary: "Revokes an API key immediately",
        tags,
        params: KeyId,
        response: { 200: Deleted },
      },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      await revokeApiKey(ctx, merchantId, request.params.id)
      return { deleted: true as const, id: request.params.id }
    },
  )
}

/** Throws `ROLE_REQUIRED` if a key with these scopes could do something that the caller may not do. */
function checkGivableBy({ member }: Pick<FastifyRequest, "member">, { scopes }: Pick<KeyTerms, "scopes">): void {
  if (member) for (const scope of scopes) checkGivable(member.role, scope as Scope)
}

const shownOf = (row: Row<"api_keys">) => ({
  id: row.id,
  name: row.name,
  scopes: row.scopes as Scope[],
  expiresAt: row.expires_at?.toISOString() ?? null,
  allowedIps: row.allowed_ips,
  limits: { refundPerDay: row.refund_per_day, returnPerDay: row.return_per_day },
  prefix: row.prefix,
  last4: row.last4,
  previousExpiresAt: row.previous_until?.toISOString() ?? null,
  byDevice: row.by_device,
  ending: row.beyond_by && row.beyond_until && { reason: row.beyond_by, until: row.beyond_until.toISOString() },
  createdAt: row.created_at.toISOString(),
})
