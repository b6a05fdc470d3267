/** Creates prefixed ids (a prefix for the kind of thing, and 24 random lower-case characters) and random text. */
import { randomInt } from "node:crypto"

const LETTERS = "abcdefghijklmnopqrstuvwxyz"
const BASE36 = `0123456789${LETTERS}`

/** A letter and then letters and digits, all equally likely. */
const random = (length: number): string => randomText(1, LETTERS) + randomText(length - 1, BASE36)

/** The prefix of each kind of thing that a caller can name. */
export type IdPrefix =
  | "mer"
  | "pw"
  | "grant"
  | "pay"
  | "key"
  | "prod"
  | "plink"
  | "cs"
  | "evt"
  | "dlv"
  | "spl"
  | "bdl"
  | "set"
  | "re"
  | "sub"
  | "inv"
  | "ses"
  | "per"
  | "tinv"
  | "dev"
  | "era"
  | "lsn"
  | "mail"

/**
 * A new id, unguessable (about 124 bits) and unique without asking the database.
 *
 * @example newId("pw") // "pw_tz4a98xxat96iws9zmbrgj3a"
 */
export const newId = (prefix: IdPrefix): string => `${prefix}_${random(24)}`

/** The id if it belongs to this kind, otherwise null. */
export const ifKind = (prefix: IdPrefix, id: string): string | null => (id.startsWith(`${prefix}_`) ? id : null)

/** The id of a share, sweep or return as its merchant sees it: `po_` and the digits of its internal UUID. */
export const payoutIdOf = (uuid: string): string => `po_${uuid.replaceAll("-", "")}`

/** The UUID behind an id of {@link payoutIdOf}. */
export const rowIdOf = (payoutId: string): string =>
  payoutId.replace(/^po_(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5")

/** A new id of a webhook. The id is a CUID and has no prefix: `c` and 24 random lower-case characters. */
export const newCuid = (): string => `c${random(24)}`

/** A slug for an item whose merchant gave none: 16 random lower-case letters and digits. */
export const newSlug = (): string => random(16)

/** The JSON Schema pattern of ids with this prefix. */
export const idPattern = (prefix: IdPrefix): string => `^${prefix}_[a-z0-9]{24}$`

const BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

/** Random digits and letters, all equally likely: 5.95 bits per character, unless an alphabet is given. */
export const randomText = (length: number, alphabet = BASE62): string =>
  Array.from({ length }, () => alphabet[randomInt(alphabet.length)]).join("")
