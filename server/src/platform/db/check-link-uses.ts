/** Checks whether a link can still be used. */
import type { TxContext } from "../context.ts"

/** Whether other payers have taken all uses of the link, so that more money would only become open payments. */
export async function isLinkUsedUp(ctx: TxContext, linkId: string | null): Promise<boolean> {
  if (linkId === null) return false
  const link = await ctx.db.selectFrom("payment_links").selectAll().where("id", "=", linkId).executeTakeFirst()
  return link !== undefined && link.max_uses !== null && link.uses >= link.max_uses
}
