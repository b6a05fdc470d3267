/** Who a person is and their memberships, for `GET /api/console/me` and the console page. */
import type { TxContext } from "../../platform/context.ts"
import type { Subject } from "../../platform/http/authenticate.ts"
import { hasRight, type Right, type Role, rightTable } from "../../platform/http/rights.ts"
import { type Membership, membershipsOf, storedPerson } from "../identity/find-member.ts"

const rightsOf = (role: Role): Right[] => (Object.keys(rightTable) as Right[]).filter(right => hasRight(role, right))

/** Formats a membership with its rights for the API. */
export const shownMembership = ({ merchantId, name, role, timeZone, moneyPerDay = 0 }: Membership) => ({
  merchantId,
  name,
  role,
  rights: rightsOf(role),
  moneyPerDay: role === "support" ? moneyPerDay : null,
  timeZone,
})

/**
 * The person and the memberships. `email` is the verified address of this sign-in; if undefined, that of the last
 * sign-in is used.
 */
export async function readMe(ctx: TxContext, subject: Subject, email?: string | null) {
  const merchants = (await membershipsOf(ctx, subject)) ?? []
  const stored = await storedPerson(ctx, subject)
  const { iss: issuer, sub } = subject
  const person = {
    id: stored?.id ?? null,
    issuer,
    subject: sub,
    email: email === undefined ? (stored?.email ?? null) : email,
  }
  return { person, merchants: merchants.map(shownMembership) }
}
