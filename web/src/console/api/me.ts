/** Who is signed in, the chosen merchant, and what this person may do there. */
import { useQuery } from "@tanstack/react-query"
import { chosenMerchant, GET, taken } from "./client.ts"
import { firstMe } from "./facts.ts"
import { retries } from "./live.ts"
import type { Me, Member, Membership, Right } from "./types.ts"

const FIVE_MINUTES = 300_000

/** Known from the page's beginning, so no request is spent on it. */
export const useMe = () =>
  useQuery({
    queryKey: ["me"],
    queryFn: () => taken<Me>(GET("/api/console/me")),
    initialData: firstMe,
    staleTime: FIVE_MINUTES,
    ...retries,
  })

/** The membership that the pages are of; undefined before it is known, and for a person without a merchant. */
export function useMembership(): Membership | undefined {
  const { data } = useMe()
  const chosen = chosenMerchant.use()
  return data?.merchants.find(({ merchantId }) => merchantId === chosen) ?? data?.merchants[0]
}

/** The e-mail address, the wallet or the sandbox's sign-in of a person; the subject where there is none. */
export function personText({ email, subject }: Pick<Member, "email" | "subject">): string {
  if (email) return email
  const wallet = /^eip155:\d+:(0x.{4}).*(.{4})$/.exec(subject)
  if (wallet) return `${wallet[1]}…${wallet[2]}`
  // The sandbox's own provider knows an owner by the merchant's id.
  return subject.startsWith("mer_") ? "Sandbox sign-in" : subject
}

/** Whether the person may do this; true until it is known, as the server decides. */
export function useRight(right: Right): boolean {
  const membership = useMembership()
  if (membership === undefined || membership.rights.includes(right)) return true
  // Up to the member's own limit a day, which the server counts.
  return right === "money" && (membership.moneyPerDay ?? 0) > 0
}

/** The roles that have a right, for the words beside what a person may not do (`docs/merchants/roles.md`). */
export const rolesOf: Partial<Record<Right, string>> = {
  catalog: "owner, admin or developer",
  webhooks: "owner, admin or developer",
  money: "owner, admin or finance",
  keys: "owner, admin or developer",
  audit: "owner, admin or finance",
  requests: "owner, admin or developer",
  secrets: "owner, admin or developer",
  settings: "owner or admin",
  erasure: "owner or admin",
  payers: "owner, admin, finance or support",
}
