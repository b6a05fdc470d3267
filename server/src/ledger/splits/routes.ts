/** `/api/console/splits`: how payments are divided among recipients. */
import { approvedByWallet } from "../../account/identity/check-wallet-lock.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import { listRoute } from "../../platform/http/list-route.ts"
import { idempotentlyPrepared } from "../../platform/http/run-idempotently.ts"
import { newestFirst } from "../../platform/http/send-lists.ts"
import { callingMerchant, type Server } from "../../platform/http/server.ts"
import { percentOf } from "../../platform/money/percent.ts"
import { recipientMessage } from "./approve-splits.ts"
import {
  changeSplit,
  checkedRecipients,
  createSplit,
  deleteSplit,
  readSplit,
  recipientsOf,
  type SplitWithRecipients,
} from "./manage-splits.ts"
import { SplitChange, SplitChanged, SplitCreate, SplitDeleted, SplitList, SplitPath, SplitWhole } from "./schema.ts"
import type { Recipient } from "./split.ts"

const tags = ["splits"]

export function splitRoutes(app: Server, ctx: Context): void {
  app.post(
    "/api/console/splits",
    {
      schema: {
        operationId: "createSplit",
        summary: "Creates a split: 2 to 50 recipients whose percentages total exactly 100",
        tags,
        body: SplitCreate,
        response: { 201: SplitWhole },
      },
      config: { errors: ["INVALID_SPLIT", "SANCTIONS_MATCH"], idempotencyKey: true, walletLock: true },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      reply.code(201)
      return await idempotentlyPrepared(ctx, request, reply, merchantId, {
        prepare: async () => {
          const recipients = await checkedRecipients(ctx, request.body.recipients)
          const from = recipientMessage([])
          const to = recipientMessage(recipients)
          const words = { action: "Create split", subject: request.body.name, from, to }
          return { recipients, approval: await approvedByWallet(ctx, request, merchantId, async () => ({ words })) }
        },
        work: async (ctx, { recipients, approval }) => {
          await approval.hold(ctx)
          return wholeOf(await createSplit(ctx, merchantId, request.body, recipients))
        },
      })
    },
  )

  listRoute(app, ctx, {
    path: "/api/console/splits",
    operationId: "listSplits",
    summary: "All splits, newest first",
    tags,
    answer: SplitList,
    source: ({ db }, merchantId) =>
      newestFirst(db.selectFrom("splits").selectAll().where("merchant_id", "=", merchantId)),
    show: async (read, rows) => {
      const sets = await recipientsOf(
        read,
        rows.map(row => row.set_id),
      )
      return rows.map(row => listedOf({ ...row, recipients: sets.get(row.set_id) ?? [] }))
    },
  })

  app.get(
    "/api/console/splits/:id",
    {
      schema: {
        operationId: "readSplit",
        summary: "One split with every field",
        tags,
        params: SplitPath,
        response: { 200: SplitWhole },
      },
      config: { errors: ["FORBIDDEN", "NOT_FOUND"] },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      return wholeOf(await readSplit(ctx, merchantId, request.params.id))
    },
  )

  app.put(
    "/api/console/splits/:id",
    {
      schema: {
        operationId: "changeSplit",
        summary: "Changes the given fields; a list of recipients replaces the whole list",
        description:
          "Applies to new receiving addresses. Each address fixes its recipients, so every paywall with this split gets a new address. Money that was paid before, or that reaches an old address within the hour, goes to the recipients of that address. Later money waits for you as an exception (`late`), and goes to them if you accept it. Checkouts keep their addresses.",
        tags,
        params: SplitPath,
        body: SplitChange,
        response: { 200: SplitChanged },
      },
      config: { errors: ["INVALID_SPLIT", "SANCTIONS_MATCH", "FORBIDDEN", "NOT_FOUND"], walletLock: true },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      const { id } = request.params
      const { body } = request
      // Ownership is checked first, so only the owner learns what is wrong with the body.
      await readSplit(ctx, merchantId, id)
      const recipients = body.recipients && (await checkedRecipients(ctx, body.recipients))
      const approval = await approvedByWallet(
        ctx,
        request,
        merchantId,
        async ctx => recipients && (await splitChange(ctx, merchantId, id, "Change split", recipients)),
      )
      const split = await inTransaction(ctx, async ctx => {
        await approval.hold(ctx)
        return await changeSplit(ctx, merchantId, id, body, recipients)
      })
      const { name, updated_at } = split
      return { id, name, recipients: split.recipients.map(shown), updatedAt: updated_at.toISOString() }
    },
  )

  app.delete(
    "/api/console/splits/:id",
    {
      schema: {
        operationId: "deleteSplit",
        summary: "Deletes a split permanently; payments already made keep its recipients",
        tags,
        params: SplitPath,
        response: { 200: SplitDeleted },
      },
      config: { errors: ["FORBIDDEN", "NOT_FOUND"], walletLock: true },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      const { id } = request.params
      const approval = await approvedByWallet(ctx, request, merchantId, ctx =>
        splitChange(ctx, merchantId, id, "Delete split", []),
      )
      await inTransaction(ctx, async ctx => {
        await approval.hold(ctx)
        await deleteSplit(ctx, merchantId, id)
      })
      return { deleted: true as const, id }
    },
  )
}

/** Describes the change from the current recipients to others. Throws the errors of {@link readSplit}. */
async function splitChange(ctx: TxContext, merchantId: string, id: string, action: string, to: readonly Recipient[]) {
  const { recipients } = await readSplit(ctx, merchantId, id)
  return { words: { action, subject: id, from: recipientMessage(recipients), to: recipientMessage(to) } }
}

const shown = ({ address, percentE4, label }: Recipient) => ({
  address: checksummed(address),
  percent: percentOf(percentE4),
  label,
})

const listedOf = ({ id, name, recipients, created_at }: SplitWithRecipients) => ({
  id,
  name,
  recipients: recipients.map(shown),
  createdAt: created_at.toISOString(),
})

const wholeOf = (split: SplitWithRecipients) => ({ ...listedOf(split), description: split.description })
