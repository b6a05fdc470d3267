/** `/api/console/notifications`: what a member is notified of by mail. */
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import { ApiError } from "../../platform/errors.ts"
import type { Member } from "../../platform/http/authenticate.ts"
import type { Server } from "../../platform/http/server.ts"
import { isOptional, type NoticeName, noticeNames, noticeTable } from "./notices.ts"
import { ChoicesChange as Choices, type ChoicesChange, Notifications } from "./schema.ts"
import { isMailing } from "./write-mails.ts"

const path = "/api/console/notifications"
const tags = ["team"]

export function notificationRoutes(app: Server, ctx: Context): void {
  app.get(
    path,
    {
      schema: {
        operationId: "readNotifications",
        summary: "The notices that you get by mail at this merchant",
        tags,
        response: { 200: Notifications },
      },
    },
    async request => ({ data: await choicesOf(ctx, callingMember(request)) }),
  )

  app.put(
    path,
    {
      schema: {
        operationId: "changeNotifications",
        summary: "Switches your own mail notices on and off",
        description:
          "You can't switch off notices of changed payout addresses, approvers, wallet locks, contact addresses and owners, or of your own sign-ins and memberships. You get at most 20 mails an hour; further notices arrive as one digest.",
        tags,
        body: Choices,
        response: { 200: Notifications },
      },
    },
    async request => {
      const member = callingMember(request)
      await inTransaction(ctx, ctx => change(ctx, member, request.body))
      return { data: await choicesOf(ctx, member) }
    },
  )
}

function callingMember({ member }: { member: Member | undefined }): Member {
  if (!member) throw new ApiError("UNAUTHORIZED")
  return member
}

async function choicesOf(ctx: TxContext, { merchantId, personId, role }: Member) {
  const person = await ctx.db.selectFrom("persons").select("email").where("id", "=", personId).executeTakeFirst()
  const rows = await ctx.db
    .selectFrom("notification_choices")
    .select(["notice", "by_mail"])
    .where("merchant_id", "=", merchantId)
    .where("person_id", "=", personId)
    .execute()
  const chosen = new Map(rows.map(row => [row.notice, row.by_mail]))
  const isUsual = (name: NoticeName) => (noticeTable[name].roles as readonly string[]).includes(role)
  return {
    address: person?.email ?? null,
    isSending: isMailing(ctx),
    notices: noticeNames.map(notice => ({
      notice,
      reports: noticeTable[notice].says,
      byMail: isOptional(notice) ? (chosen.get(notice) ?? isUsual(notice)) : isUsual(notice),
      isOptional: isOptional(notice),
    })),
  }
}

async function change(ctx: TxContext, { merchantId, personId }: Member, body: ChoicesChange): Promise<void> {
  for (const [notice, by_mail] of Object.entries(body))
    if (by_mail !== undefined)
      await ctx.db
        .insertInto("notification_choices")
        .values({ merchant_id: merchantId, person_id: personId, notice, by_mail })
        .onConflict(conflict => conflict.columns(["merchant_id", "person_id", "notice"]).doUpdateSet({ by_mail }))
        .execute()
}
