/** `/receipt/:id`, the file of the receipt, and `/verify`, which verifies a receipt without asking this service. */
import { hash } from "node:crypto"
import type { Fact, SavedReceipt } from "../../../../verify/src/format.ts"
import { savedAbout } from "../../ledger/receipts/read-receipts.ts"
import { type Context, reading, type TxContext } from "../../platform/context.ts"
import { ApiError } from "../../platform/errors.ts"
import type { Server } from "../../platform/http/server.ts"
import type { Assets } from "./assets.ts"
import { type KeptReceipt, receiptBody } from "./bodies.ts"
import { receiptOf } from "./read-payment.ts"
import type { SendPage } from "./send-page.ts"

const hidden = { hide: true }

export function receiptPages(app: Server, ctx: Context, assets: Assets, sendPage: SendPage): void {
  app.get("/receipt/:id", { schema: hidden }, async (request, reply) => {
    const { id } = request.params as { id: string }
    return await sendPage(request, reply, async (t, lang) => {
      const read = await reading(ctx)
      const receipt = await receiptOf(read, id, lang)
      const kept = await keptOf(read, receipt.abouts)
      return { title: `${t("receipt")} · ${receipt.merchant}`, body: receiptBody(t, receipt, kept), base: receipt }
    })
  })

  app.get("/receipt/:id/file", { schema: hidden }, async (request, reply) => {
    const { id } = request.params as { id: string }
    const { seq } = request.query as { seq?: unknown }
    const read = await reading(ctx)
    const { abouts } = await receiptOf(read, id, "en")
    const saved = await savedAbout(read, abouts)
    const found = seq === undefined ? saved.at(-1) : saved.find(each => `${each.seq}` === seq)
    if (!found) throw new ApiError("RECEIPT_NOT_HERE")
    reply.headers({
      // The link contains the receipt's key.
      "cache-control": "no-store",
      "referrer-policy": "no-referrer",
      "x-content-type-options": "nosniff",
      "content-disposition": `attachment; filename="receipt-${found.seq}.json"`,
    })
    return reply.type("application/json; charset=utf-8").send(JSON.stringify(forPayers(found.file), null, 2) as never)
  })

  // The policy allows any node, because the script asks the node that the visitor names.
  const script = /<script type="module">(.*)<\/script>/s.exec(assets.verifyPage ?? "")?.[1] ?? ""
  const style = /<style>(.*)<\/style>/s.exec(assets.verifyPage ?? "")?.[1] ?? ""
  const sha256 = (text: string) => `'sha256-${hash("sha256", text, "base64")}'`
  const policy = [
    "default-src 'none'",
    `script-src ${sha256(script)}`,
    `style-src ${sha256(style)}`,
    "img-src data:",
    "connect-src 'self' https: http://localhost:* http://127.0.0.1:*",
    "form-action 'none'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
  ].join("; ")
  app.get("/verify", { schema: hidden }, async (_request, reply) => {
    if (assets.verifyPage === undefined) throw new ApiError("NOT_FOUND")
    reply.headers({
      "cache-control": "no-cache",
      "content-security-policy": policy,
      "referrer-policy": "no-referrer",
      "x-content-type-options": "nosniff",
    })
    return reply.type("text/html; charset=utf-8").send(assets.verifyPage as never)
  })
}

/**
 * Leaves out of the file everything that no other public page shows. Anyone with the checkout's link can read the
 * file, so the merchant's metadata and the payer's answers are only in the merchant's export.
 */
const forPayers = <F extends object>(file: F): F =>
  "facts" in file
    ? { ...file, facts: (file.facts as Fact[]).filter(({ name }) => !/^(metadata|answer)\b/.test(name)) }
    : file

/** The receipts about these subjects for the page. If their bytes can't be read, the page is shown without them. */
async function keptOf(ctx: TxContext, abouts: readonly string[]): Promise<KeptReceipt[]> {
  try {
    return (await savedAbout(ctx, abouts)).map(({ seq, file }) => ({
      seq,
      link: "erased" in file ? undefined : linkOf(file),
    }))
  } catch (error) {
    ctx.log.error({ err: error }, "receipts can't be read")
    return []
  }
}

const linkOf = ({ key, root, offset, jwe }: SavedReceipt): string =>
  `/verify#${new URLSearchParams({ k: key, root, o: `${offset}`, l: `${jwe.length}` })}`
