/**
 * How transfers become payments. Pure: it takes facts from the chain and the merchant, and returns what must happen.
 *
 * Glossary: a *transfer* is one Transfer log to a receiving address. A *submission* is a buyer's hint that names a
 * transaction. A *payment* consists of one sender's transfers that together reached the price. A *claim* says which
 * payment a transfer counts for. A *grant* is the access that a payment bought.
 */

const SECOND_MS = 1_000
const HOUR_MS = 3_600 * SECOND_MS
const DAY_MS = 24 * HOUR_MS

/** One sender's transfers to one paywall add up if they are mined within this time. */
export const ADD_UP_MS = 7 * DAY_MS
/** The time after which a transfer that nobody submitted is settled for its sender. */
export const UNSUBMITTED_MS = 600 * SECOND_MS
/** How long a payer may still pay the old price after a change. */
export const QUOTE_MS = HOUR_MS
/**
 * How much later than a block's time a version may start and still count as started, in the payer's favour. Block
 * times are whole seconds from other clocks.
 */
const CLOCK_SLACK_MS = 60 * SECOND_MS

/** A version of a paywall, in force from `fromAt` until `untilAt` (null: still in force). */
export interface Version {
  n: number
  price: bigint
  active: boolean
  depositId: bigint
  fromAt: Date
  untilAt: Date | null
}

/**
 * The lowest price that a transfer to this deposit, mined at this time, had to reach. All versions with that deposit
 * count that were in force at that time or up to an hour before. Undefined if there was no such version, or if the
 * paywall was switched off.
 */
export function priceAt(versions: readonly Version[], depositId: bigint, minedAt: Date): bigint | undefined {
  const t = minedAt.getTime()
  // Nobody can know an address before its first version starts, so that version counts whatever the block's time is.
  const first = Math.min(...versions.filter(version => version.depositId === depositId).map(version => version.n))
  const began = (version: Version) => version.n === first || version.fromAt.getTime() <= t + CLOCK_SLACK_MS
  const endedBefore = (version: Version, when: number) => version.untilAt !== null && version.untilAt.getTime() <= when
  if (!versions.some(version => version.active && began(version) && !endedBefore(version, t))) return undefined
  const prices = versions
    .filter(v => v.active && v.depositId === depositId && began(v) && !endedBefore(v, t - QUOTE_MS))
    .map(version => version.price)
  return prices.length === 0 ? undefined : prices.reduce((least, price) => (price < least ? price : least))
}

/**
 * Returns the versions that {@link priceAt} needs for transfers mined at or after `since`. A merchant may have
 * thousands of older versions, and a stranger may send thousands of transfers.
 */
export function versionsFrom(versions: readonly Version[], since: Date): Version[] {
  const firsts = new Map<bigint, number>()
  for (const { depositId, n } of versions) firsts.set(depositId, Math.min(firsts.get(depositId) ?? n, n))
  const ended = since.getTime() - QUOTE_MS
  return versions.filter(
    ({ depositId, n, untilAt }) => untilAt === null || untilAt.getTime() > ended || firsts.get(depositId) === n,
  )
}

/** A transfer that no payment has claimed yet. */
export interface OpenTransfer {
  id: bigint
  value: bigint
  minedAt: Date
  /** The price that the transfer had to reach; undefined if nothing was for sale at its address at that time. */
  price: bigint | undefined
  /**
   * Whether the transfer was submitted by its sender, or is older than {@link UNSUBMITTED_MS}. Other transfers only
   * complete a payment of ready ones.
   */
  ready: boolean
}

export interface Folded {
  /** The payments. Each is a list of transfers in order, of which the last one reached the price. */
  paid: OpenTransfer[][]
  /**
   * Transfers that did not reach the price, with their sum and the price. Transfers too old to add up with the others
   * form a separate entry.
   */
  short: { transfers: OpenTransfer[]; received: bigint; price: bigint }[]
  /** Transfers that arrived when nothing was for sale at their address. */
  late: OpenTransfer[]
}

type Priced = OpenTransfer & { price: bigint }

const timeOf = ({ minedAt }: Pick<OpenTransfer, "minedAt">): number => minedAt.getTime()
const sum = (parts: readonly { value: bigint }[]): bigint => parts.reduce((total, part) => total + part.value, 0n)

/**
 * Adds up one sender's open transfers, in chain order, into as many payments as possible. A transfer that is not
 * ready is used only to complete a payment. The transfers of a payment must together reach their {@link minPrice}.
 */
export function foldTransfers(open: readonly OpenTransfer[]): Folded {
  const late = open.filter(transfer => transfer.price === undefined && transfer.ready)
  const priced = open.filter((transfer): transfer is Priced => transfer.price !== undefined)
  const paid: OpenTransfer[][] = []
  const short: Folded["short"] = []
  const leave = (parts: Priced[]) => {
    if (parts.length > 0) short.push({ transfers: parts, received: sum(parts), price: minPrice(parts) })
  }
  const window = openWindow()
  for (const transfer of [...priced.filter(each => each.ready), ...priced.filter(each => !each.ready)]) {
    if (!transfer.ready && window.isEmpty()) break
    leave(window.dropFarFrom(timeOf(transfer)))
    window.add(transfer)
    if (window.isPaid()) paid.push(window.empty())
  }
  leave(window.empty())
  return { paid, short, late }
}

/**
 * Holds the transfers that are being added up. Anyone can send thousands, so no step scans all of them. Instead,
 * their sum and the newest time of each price are kept.
 */
function openWindow() {
  let parts: Priced[] = []
  /** Parts before this index were dropped. */
  let first = 0
  let received = 0n
  let newest = Number.NEGATIVE_INFINITY
  let oldest = Number.POSITIVE_INFINITY
  let isInOrder = true
  const offered = new Map<bigint, number>()
  const add = (part: Priced) => {
    const t = timeOf(part)
    parts.push(part)
    isInOrder &&= t >= newest
    received += part.value
    newest = Math.max(newest, t)
    oldest = Math.min(oldest, t)
    offered.set(part.price, Math.max(offered.get(part.price) ?? t, t))
  }
  const empty = (): Priced[] => {
    const all = parts.slice(first)
    parts = []
    first = 0
    received = 0n
    newest = Number.NEGATIVE_INFINITY
    oldest = Number.POSITIVE_INFINITY
    isInOrder = true
    offered.clear()
    return all
  }
  return {
    add,
    empty,
    isEmpty: () => first === parts.length,
    /** Drops and returns the parts that were mined too long before or after `t` to add up with a part mined then. */
    dropFarFrom(t: number): Priced[] {
      if (t - oldest <= ADD_UP_MS && newest - t <= ADD_UP_MS) return []
      const isFar = (part: Priced) => Math.abs(t - timeOf(part)) > ADD_UP_MS
      if (newest > t || !isInOrder) {
        const all = empty()
        for (const part of all) if (!isFar(part)) add(part)
        return all.filter(isFar)
      }
      // Transfers nearly always arrive in chain order, so the oldest come first. Their quoted prices expired long
      // ago.
      const from = first
      for (let part = parts[first]; part && isFar(part); part = parts[++first]) received -= part.value
      oldest = parts[first]?.minedAt.getTime() ?? Number.POSITIVE_INFINITY
      return parts.slice(from, first)
    },
    /** Whether the parts reach their {@link minPrice}. */
    isPaid: () => [...offered].some(([price, at]) => at >= newest - QUOTE_MS && received >= price),
  }
}

/**
 * The lowest price that any of these transfers from the hour before the newest one had to reach, ignoring transfers
 * without a price. So "Send 0.01 more" stays true for an hour after a price change, like a quote. But one base unit
 * can't keep an old price for a week.
 */
export function minPrice(parts: readonly Pick<OpenTransfer, "price" | "minedAt">[]): bigint {
  const newest = parts.reduce((latest, part) => Math.max(latest, timeOf(part)), Number.NEGATIVE_INFINITY)
  return parts
    .filter(part => timeOf(part) >= newest - QUOTE_MS)
    .map(part => part.price ?? 0n)
    .reduce((least, price) => (least === 0n || (price > 0n && price < least) ? price : least), 0n)
}
