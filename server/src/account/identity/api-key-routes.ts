/** `/api/console/api-keys`: the keys of a merchant's servers. */
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { listRoute } from "../../platform/http/list-route.ts"
import { MONEY_SCOPES, type Scope } from "../../platform/http/rights.ts"
import { checkGivable } from "../../platform/http/route-access.ts"
import { newestFirst } from "../../platform/http/send-lists.ts"
import { callingMerchant, type Server } from "../../platform/http/server.ts"
import { approvedByWallet } from "./check-wallet-lock.ts"
import { createApiKey, revokeApiKey } from "./manage-api-keys.ts"
import { Deleted, KeyCreate, KeyCreated, KeyId, KeyList } from "./schema.ts"

const tags = ["settings"]

export function apiKeyRoutes(app: Server, ctx: Context): void {
  app.post(
    "/api/console/api-keys",
    {
      schema: {
        operationId: "createApiKey",
        summary: "Creates an API key, and shows it only this once",
        description:
          "A member gives only scopes that open what the member's own role may do: `console`, which opens splits too, is an owner's to give. A key with `catalog` can't set `splitId` or `originUrl`.",
        tags,
        body: KeyCreate,
        response: { 201: KeyCreated },
      },
      config: { errors: ["INVALID_OPERATION"], walletLock: true },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      const { name, scopes = ["checkouts"] } = request.body
      const { member } = request
      if (member) for (const scope of scopes) checkGivable(member.role, scope)
      // A key with such a scope moves money as long as nobody revokes it.
      const words = { action: "Create API key", subject: name, from: "No key", to: `Scopes: ${scopes.join(", ")}` }
      const approval = await approvedByWallet(ctx, request, merchantId, async () =>
        scopes.some(scope => MONEY_SCOPES.includes(scope)) ? { words } : undefined,
      )
      const { key, row } = await createApiKey(ctx, merchantId, { name, scopes }, approval.hold)
      reply.code(201)
      return { ...shownOf(row), key }
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

  app.delete(
    "/api/console/api-keys/:id",
    {
      schema: {
        operationId: "revokeApiKey",
        summary: "Revokes an API key at once",
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

const shownOf = ({ id, name, scopes, prefix, last4, created_at }: Row<"api_keys">) => ({
  id,
  name,
  scopes: scopes as Scope[],
  prefix,
  last4,
  createdAt: created_at.toISOString(),
})
