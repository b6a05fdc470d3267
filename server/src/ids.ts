/** Prefixed ids: a prefix that says what a thing is, and 24 random lower-case characters. */
import { init } from "@paralleldrive/cuid2"

const random = init({ length: 24 })

/** The prefix of each kind of thing that a caller can name. */
export type IdPrefix = "mer" | "pw" | "grant" | "pay" | "spl"

/**
 * A new id, unguessable (about 124 bits) and unique without asking the database.
 *
 * @example newId("pw") // "pw_tz4a98xxat96iws9zmbrgj3a"
 */
export const newId = (prefix: IdPrefix): string => `${prefix}_${random()}`

/** The JSON Schema pattern of ids with this prefix. */
export const idPattern = (prefix: IdPrefix): string => `^${prefix}_[a-z0-9]{24}$`
