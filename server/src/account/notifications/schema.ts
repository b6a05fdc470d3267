/** The wire contract of notifications. */
import { type Static, Type } from "typebox"
import { Described, Nullable, Strict } from "../../platform/http/schemas.ts"
import { isOptional, type NoticeName, noticeNames, noticeTable } from "./notices.ts"

const Choice = (name: NoticeName) => Type.Optional(Type.Boolean({ description: noticeTable[name].says }))

const optional = Object.fromEntries(noticeNames.filter(isOptional).map(name => [name, Choice(name)])) as Record<
  NoticeName,
  ReturnType<typeof Choice>
>

export const ChoicesChange = Strict(optional, { statement: false })
export type ChoicesChange = Static<typeof ChoicesChange>

export const Notifications = Type.Object({
  data: Type.Object({
    address: Described(
      Nullable(Type.String()),
      "Where your mails go: the e-mail address that your identity provider verified. Null if you have none, as with a wallet; you then get no mail",
    ),
    isSending: Type.Boolean({ description: "Whether this service sends mail; its operator sets SMTP_URL" }),
    notices: Type.Array(
      Type.Object({
        notice: Type.Unsafe<NoticeName>({ type: "string", enum: noticeNames, description: "Its name" }),
        reports: Described(Type.String(), "What it reports"),
        byMail: Type.Boolean({ description: "Whether you get it" }),
        isOptional: Type.Boolean({ description: "Whether you can switch it off" }),
      }),
    ),
  }),
})
