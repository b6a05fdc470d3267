/** A position in the order of changes, and its text form for clients. Pure. */

/**
 * A position between two changes. It follows all changes of lower transactions, and those of its own transaction up
 * to `n`.
 */
export interface Position {
  xid: bigint
  n: bigint
}

/** Whether `a` is after `b`. */
export const isAfter = (a: Position, b: Position): boolean => a.xid > b.xid || (a.xid === b.xid && a.n > b.n)

/** The later of two positions. */
export const laterOf = (a: Position, b: Position): Position => (isAfter(a, b) ? a : b)

/** The text of a position; `epoch` names its transaction history. */
export const textOf = (epoch: string, { xid, n }: Position): string => `${epoch}-${xid}-${n}`

const MAX_XID = 2n ** 64n - 1n
const MAX_N = 2n ** 63n - 1n

/** The texts that {@link positionIn} accepts, as a JSON Schema pattern. */
export const POSITION_PATTERN = "^[0-9a-f]{8}-[0-9]{1,20}-[0-9]{1,19}$"

/** Parses a position; undefined for any other text. */
export function positionIn(text: string): (Position & { epoch: string }) | undefined {
  if (!new RegExp(POSITION_PATTERN).test(text)) return undefined
  const [epoch = "", xid = "", n = ""] = text.split("-")
  const position = { epoch, xid: BigInt(xid), n: BigInt(n) }
  return position.xid <= MAX_XID && position.n <= MAX_N ? position : undefined
}
