/** The bytes of receipts, for everybody, and a merchant's receipts, as a list and as a file that proves itself. */
import { Type } from "typebox"
import { amountFormatter } from "../../platform/chain/format-amounts.ts"
import { checksummed, type Hash } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import { type Context, reading, type TxContext } from "../../platform/context.ts"
import { ApiError } from "../../platform/errors.ts"
import { listRoute } from "../../platform/http/list-route.ts"
import { Matching } from "../../platform/http/schemas.ts"
import { sendParts } from "../../platform/http/send-parts.ts"
import { callingMerchant, type Server } from "../../platform/http/server.ts"
import { timeAt } from "../../platform/http/time.ts"
import { type Listed, type ReceiptFilter, receiptLines, receiptsOf } from "./read-receipts.ts"
import { ReceiptList, receiptFilter } from "./schema.ts"
import { readBatch } from "./store-batches.ts"

const tags = ["receipts"]
const Root = Matching("^0x[a-f0-9]{64}$", "A Merkle root: 0x and 64 hexadecimal digits in lower case")

export function receiptRoutes(app: Server, ctx: Context): void {
  app.get(
    "/receipts/:root",
    {
      schema: {
        operationId: "readReceiptBatch",
        summary: "The sealed receipts with this Merkle root",
        description:
          "Nobody can read them without their keys. The root is computed as in 0G, so the bytes prove themselves.",
        tags,
        params: Type.Object({ root: Root }),
        response: { 200: { content: { "application/octet-stream": { schema: Type.String() } } } },
      },
      config: { errors: ["RECEIPT_NOT_HERE"] },
    },
    async (request, reply) => {
      const bytes = await readBatch(await reading(ctx), request.params.root as Hash)
      if (!bytes) throw new ApiError("RECEIPT_NOT_HERE")
      reply.headers({ "cache-control": "public, max-age=31536000, immutable", "x-content-type-options": "nosniff" })
      reply.header("access-control-allow-origin", "*")
      return reply.type("application/octet-stream").send(Buffer.from(bytes) as never)
    },
  )

  listRoute(app, ctx, {
    path: "/api/console/receipts",
    operationId: "listReceipts",
    summary: "Receipts of payments, refunds, captures, releases and reversals, newest first",
    description: "The list contains no keys, so nobody can read a receipt with it. The file contains them.",
    tags,
    filter: receiptFilter,
    answer: ReceiptList,
    source: (read, merchantId, filter) => receiptsOf(read, merchantId, filter),
    show: shown,
  })

  app.get(
    "/api/console/receipts.ndjson",
    {
      schema: {
        operationId: "exportReceipts",
        summary: "Receipts with their keys, in order, as a file that proves itself",
        description:
          "One line of JSON for each receipt, and a last line with the number of receipts. `npx @sluice/verify FILE` proves that no receipt is changed or left out. Keep the file as safe as your books: anyone who has it can read these receipts.",
        tags,
        querystring: Type.Object(receiptFilter),
        response: { 200: { content: { "application/x-ndjson": { schema: Type.String() } } } },
      },
    },
    async (request, reply) => {
      const read = await reading(ctx)
      const filter = request.query as ReceiptFilter
      for (const path of ["from", "to"] as const) if (filter[path] !== undefined) timeAt(path, filter[path])
      const lines = receiptLines(read, await callingMerchant(request), filter)
      const sent = await sendParts(read, reply, "application/x-ndjson; charset=utf-8", lines)
      reply.header("content-disposition", 'attachment; filename="receipts.ndjson"')
      return sent as never
    },
  )
}

async function shown(ctx: TxContext, rows: readonly Listed[]) {
  const format = await amountFormatter(ctx, rows)
  return rows.map(row => {
    const { amount, currency } = format(row)
    const { root, byte_offset: offset, byte_length: length } = row
    return {
      seq: row.seq,
      type: row.type,
      about: row.about,
      resourceId: row.resource_id,
      amount,
      currency,
      token: checksummed(row.token),
      chain: networkOf(ctx.chain, row.chain_id).name,
      settledAt: row.settled_at.toISOString(),
      storageUri: root && `${ctx.settings.baseUrl}/receipts/${root}?o=${offset}&l=${length}`,
      storageRoot: root,
      anchorTxHash: row.anchor_hash,
      isErased: row.is_erased,
    }
  })
}
