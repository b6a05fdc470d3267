/** The notices that members get by mail: to whom each goes, and whether it can be switched off. Pure. */
import type { Role } from "../../platform/http/rights.ts"

interface Notice {
  /** What it reports, as a sentence for the settings. */
  says: string
  /** Whose members get it, unless they chose otherwise. */
  roles: readonly Role[]
  /** A stolen session must not silence it. */
  isSecurity?: boolean
}

export const noticeTable = {
  payment_waiting: { says: "A payment needs a decision.", roles: ["owner", "admin", "finance"] },
  payout_held: { says: "A payout is held.", roles: ["owner", "admin", "finance"] },
  endpoint_failing: {
    says: "An endpoint received no event for an hour, or was switched off.",
    roles: ["owner", "admin", "developer"],
  },
  statement: { says: "What was received and paid out in the last month.", roles: ["owner", "finance"] },
  security: {
    says: "A payout address, the approver, the wallet lock, the contact e-mail or an owner was changed.",
    roles: ["owner", "admin"],
    isSecurity: true,
  },
} as const satisfies Record<string, Notice>

export type NoticeName = keyof typeof noticeTable
export const noticeNames = Object.keys(noticeTable) as NoticeName[]

/** What is mailed to one person, whatever they chose. */
export type PersonalNotice = "sign_in" | "membership" | "invitation"

/** Whether a notice can be switched off. */
export const isOptional = (name: NoticeName): boolean => !("isSecurity" in noticeTable[name])

/** The kinds that are counted each by itself, in the order of a digest. A stranger can cause an invitation. */
const countedApart = ["security", "sign_in", "membership", "others", "invitation"]

/** The kind that a mail is counted with in the bound of an hour: a flood of another kind must not delay it. */
export const kindOf = (notice: string): string => (countedApart.includes(notice) ? notice : "others")

/** Where a mail stands in a digest: what must not be buried comes first. */
export const placeOf = (notice: string): number => countedApart.indexOf(kindOf(notice))

/**
 * Whether a text is one plain address. Providers and inviters name it: two addresses, a display name or a line's end in it would be read
 * by a mail server as something else.
 */
export const isMailable = (address: string): boolean =>
  address.length <= 254 && /^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*$/.test(address)

/** Text that somebody else chose, for one line of a body: cut, on one line, and no link that a mail program would make. */
export const plainWords = (text: string): string => {
  const line = text
    .replaceAll(/[\p{C}\s]+/gu, " ")
    .replaceAll(/[./:@<>]/g, " ")
    .trim()
  return line.length > 60 ? `${line.slice(0, 59).toWellFormed()}…` : line
}
