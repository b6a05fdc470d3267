/** The wire contract of people, members and invitations. */
import { Type } from "typebox"
import { type Right, ROLES, type Role, rightTable } from "../../platform/http/rights.ts"
import { AddressInput, Described, ListEnd, Matching, Nullable, Strict, Timestamp } from "../../platform/http/schemas.ts"
import { idPattern } from "../../platform/ids.ts"

const RoleName = Type.Unsafe<Role>({
  type: "string",
  enum: [...ROLES],
  description: "What a member may do; docs/merchants/roles.md has the table",
})
const RightName = Type.Unsafe<Right>({ type: "string", enum: Object.keys(rightTable) })

const MerchantId = Type.String({ pattern: idPattern("mer"), examples: ["mer_tz4a98xxat96iws9zmbrgj3a"] })
const PersonId = Type.String({ pattern: idPattern("per"), examples: ["per_q7w2hc9n4m1xk8t5r3v6b0zd"] })
const MerchantName = Type.String({ description: "Empty if it has none" })

const person = {
  id: Nullable(PersonId),
  issuer: Type.String({ description: "Who signed the person in; `BASE_URL` for a wallet" }),
  subject: Type.String({ description: "The person's subject at the issuer; for a wallet, its CAIP-10 id" }),
  email: Described(Nullable(Type.String()), "The person's e-mail address, if the issuer has verified it"),
}
const MoneyPerDay = Type.Integer({
  minimum: 0,
  maximum: 1_000_000_000,
  description:
    "How much of each token a member with the role support may accept, return, refund, capture and void in 24 hours, in whole tokens",
})
const moneyPerDay = Described(
  Nullable(MoneyPerDay),
  "How much of each token a member with the role support may accept, return, refund, capture and void in 24 hours, in whole tokens; null for other roles",
)
const membership = {
  merchantId: MerchantId,
  name: MerchantName,
  role: RoleName,
  rights: Described(Type.Array(RightName), "What the role may do; docs/merchants/roles.md lists the routes of each"),
  moneyPerDay,
  timeZone: Described(
    Nullable(Type.String({ examples: ["Asia/Kolkata"] })),
    "The time zone of the console; null for that of each browser",
  ),
}

export const Me = Type.Object({
  person: Type.Object(person, { description: "`id` is null for a person who was never a member of a merchant" }),
  merchants: Described(Type.Array(Type.Object(membership)), "The oldest membership first"),
})

export const MerchantCreate = Strict(
  {
    name: Type.Optional(
      Described(
        Matching("^$|\\S", "Text that is not blank; an empty text removes it", { maxLength: 200 }),
        "The merchant's name, which payers see",
      ),
    ),
  },
  { name: "Film shop" },
)
export const Membership = Type.Object(membership)

const member = {
  ...person,
  id: PersonId,
  role: RoleName,
  moneyPerDay,
  joinedAt: Timestamp,
}
export const TeamMember = Type.Object(member)
export const Team = Type.Object({ data: Type.Array(TeamMember), ...ListEnd })
export const MemberId = Type.Object({
  id: Type.String({ description: "The member's id", examples: ["per_q7w2hc9n4m1xk8t5r3v6b0zd"] }),
})
export const MemberChange = Strict(
  {
    role: RoleName,
    moneyPerDay: Type.Optional(Described(MoneyPerDay, "Only with the role support; unchanged if left out, 0 at first")),
  },
  { role: "support", moneyPerDay: 100 },
)

const invitation = {
  id: Type.String({ pattern: idPattern("tinv"), examples: ["tinv_tz4a98xxat96iws9zmbrgj3a"] }),
  role: RoleName,
  email: Nullable(Type.String()),
  wallet: Described(Nullable(Type.String()), "The CAIP-10 id of the wallet that may accept it"),
  createdAt: Timestamp,
  expiresAt: Timestamp,
}
export const InvitationCreate = Strict(
  {
    role: RoleName,
    email: Type.Optional(
      Described(
        Matching("^[^@\\s]+@[^@\\s]+$", "An e-mail address", { maxLength: 320 }),
        "The address that the invited person's identity provider must have verified. Give this or `wallet`",
      ),
    ),
    wallet: Type.Optional(Described(AddressInput, "The wallet that must accept it. Give this or `email`")),
    chain: Type.Optional(
      Type.String({
        maxLength: 64,
        description: "The network that the wallet signs in on; the default one if left out",
      }),
    ),
  },
  { role: "finance", email: "ada@shop.example" },
)
export const InvitationCreated = Type.Object({
  ...invitation,
  token: Type.String({
    description: "Accepts the invitation: give it to the invited person. Shown only once",
    examples: ["kZ0vJ3qRr2m1XyP8uT5wB7nC4dE6fG9hJ0kL2mN4pQs"],
  }),
})
export const InvitationList = Type.Object({ data: Type.Array(Type.Object(invitation)), ...ListEnd })
export const InvitationId = Type.Object({
  id: Type.String({ description: "The invitation's id", examples: ["tinv_tz4a98xxat96iws9zmbrgj3a"] }),
})
export const Accept = Strict(
  { token: Matching("^[\\w-]{43}$", "The token of an invitation: 43 letters, digits, - and _") },
  { token: "kZ0vJ3qRr2m1XyP8uT5wB7nC4dE6fG9hJ0kL2mN4pQs" },
)
