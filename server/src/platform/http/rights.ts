/**
 * Who may do what: the roles of a merchant's members, the rights that each role has, and the scopes of API keys.
 * `route-access.ts` says which right and which scope each route needs.
 */

import { ApiError } from "../errors.ts"

/** The roles of members, starting with the one that has the most rights. */
export const ROLES = ["owner", "admin", "developer", "finance", "support", "viewer"] as const
export type Role = (typeof ROLES)[number]

/** Each right: what it allows, as the end of a sentence, and the roles that have it. */
export const rightTable = {
  read: {
    allows: "read everything but the audit log, the request log, keys and secrets",
    roles: ["owner", "admin", "developer", "finance", "support", "viewer"],
  },
  catalog: {
    allows: "create and change paywalls, products, payment links, bundles and checkouts",
    roles: ["owner", "admin", "developer"],
  },
  webhooks: {
    allows: "create and change webhooks, and resend events",
    roles: ["owner", "admin", "developer"],
  },
  keys: { allows: "list, create and revoke API keys", roles: ["owner", "admin", "developer"] },
  secrets: { allows: "reveal and roll the account's webhook secret", roles: ["owner", "admin", "developer"] },
  money: {
    allows: "accept, return, refund, capture and void payments",
    roles: ["owner", "admin", "finance"],
  },
  payers: {
    allows: "pause, resume, move and cancel subscriptions, and revoke access",
    roles: ["owner", "admin", "finance", "support"],
  },
  settings: {
    allows: "change the name, the e-mail address, the branding and the allowed sites",
    roles: ["owner", "admin"],
  },
  payouts: {
    allows: "change splits, payout addresses, the approver and the wallet lock",
    roles: ["owner"],
  },
  team: { allows: "invite members, change their roles and remove them", roles: ["owner"] },
  leave: {
    allows: "leave the merchant",
    roles: ["owner", "admin", "developer", "finance", "support", "viewer"],
  },
  erasure: { allows: "erase the personal data of customers", roles: ["owner", "admin"] },
  audit: { allows: "read the audit log", roles: ["owner", "admin", "finance"] },
  requests: { allows: "read the request log", roles: ["owner", "admin", "developer"] },
} as const satisfies Record<string, { allows: string; roles: readonly Role[] }>
export type Right = keyof typeof rightTable

/** Whether a role has a right. */
export const hasRight = (role: Role, right: Right): boolean =>
  (rightTable[right].roles as readonly Role[]).includes(role)

/**
 * Whether a role has a right only up to its member's daily limit (`members.money_per_day`): support does, on the routes
 * of `money` that count decisions. Such a role does not have the right itself, so its member can't create a key, which
 * would be counted separately.
 */
export const isLimited = (role: Role, right: Right): boolean => role === "support" && right === "money"

/** Names in words: `owner, admin or finance`. */
const inWords = (names: readonly string[]): string =>
  [names.slice(0, -1).join(", "), ...names.slice(-1)].filter(text => text !== "").join(" or ")

/** Throws `ROLE_REQUIRED` if the role does not have the right. The error says who may do it. */
export function checkRight({ role }: { role: Role }, right: Right, unless = ""): void {
  if (hasRight(role, right)) return
  const { roles, allows } = rightTable[right]
  const message = `Your role here, ${role}, does not allow this${unless}. You need the role ${inWords(roles)} to ${allows}.`
  throw new ApiError("ROLE_REQUIRED", undefined, message)
}

/**
 * What each scope lets an API key do, in words. `read` allows the GETs that need the right `read`, which excludes the
 * audit log, the request log, and the export of receipts with their keys. `console` allows every route under
 * `/api/console` that any other scope except `settings:read` allows.
 */
export const scopeTable = {
  checkouts: "the routes of a merchant's server: checkouts, the calls of paywalls, and the facilitator",
  read: "read-only access, without settings, keys and secrets",
  console: "`/api/console/*` except API keys and settings, so a server needs no person's token",
  catalog: "paywalls, products, payment links and bundles, except their `splitId` and `originUrl`",
  webhooks: "webhooks, their deliveries, and events",
  money: "accept, return, refund, capture and void payments, and cancel subscriptions",
  "settings:read": "the merchant's settings",
} as const
export type Scope = keyof typeof scopeTable

export const SCOPES = Object.keys(scopeTable) as Scope[]

/** Scopes that move money: giving one to a key needs a signature while the wallet lock is on. */
export const MONEY_SCOPES: readonly Scope[] = ["money", "console"]
