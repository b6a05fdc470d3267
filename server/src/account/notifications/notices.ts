/** The notices that members get by mail: to whom each goes, and whether it can be switched off. Pure. */
import type { Role } from "../../platform/http/rights.ts"

interface Notice {
  /** What the notice reports, as a sentence for the settings. */
  says: string
  /** The roles whose members get the notice, unless they chose otherwise. */
  roles: readonly Role[]
  /** Whether the notice can't be switched off, because a stolen session must not silence it. */
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

/** Notices that one person gets, whatever the person chose. */
export type PersonalNotice = "sign_in" | "membership" | "invitation"

/** Whether a notice can be switched off. */
export const isOptional = (name: NoticeName): boolean => !("isSecurity" in noticeTable[name])

/**
 * The kinds that are counted separately, in the order of a digest. Invitations come last, because a stranger can cause
 * one.
 */
const countedApart = ["security", "sign_in", "membership", "others", "invitation"]

/** The kind under which a mail counts toward the hourly limit. A flood of another kind must not delay the mail. */
export const kindOf = (notice: string): string => (countedApart.includes(notice) ? notice : "others")

/** The position of a mail in a digest: mails that must not be overlooked come first. */
export const placeOf = (notice: string): number => countedApart.indexOf(kindOf(notice))

/**
 * Whether a text is one plain address. Providers and inviters choose this text. A mail server would misread two
 * addresses, a display name or a line break in it.
 */
export const isMailable = (address: string): boolean =>
  address.length <= 254 && /^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*$/.test(address)

/**
 * Text that somebody else chose, for one line of a body. The text is shortened, has one line, and contains no link that
 * a mail program would detect.
 */
export const plainWords = (text: string): string => {
  const line = text
    .replaceAll(/[\p{C}\s]+/gu, " ")
    .replaceAll(/[./:@<>]/g, " ")
    .trim()
  return line.length > 60 ? `${line.slice(0, 59).toWellFormed()}…` : line
}
