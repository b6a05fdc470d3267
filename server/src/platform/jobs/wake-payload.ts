/** The text of a wake-up: its channel, and the names of what changed. Pure. */

/**
 * verify: something to look up on chain. payments: a payment's state changed. payouts: money must be moved. deliveries:
 * events must be sent. housekeeping: the clock was moved.
 */
const channels = ["verify", "payments", "payouts", "deliveries", "housekeeping"] as const
export type WakeChannel = (typeof channels)[number]

/**
 * The subjects of a wake-up; undefined if it may be about anything. A name is the id of an item for sale, a settlement
 * or a payout, or `PAYWALL/ADDRESS` for one payer at a paywall. An empty list wakes the loops but no request.
 */
export type Names = readonly string[] | undefined

/** The name of one payer at a paywall; for an unknown payer, the paywall's name. */
export const payerName = (paywallId: string, payer: string | undefined): string =>
  payer === undefined ? paywallId : `${paywallId}/${payer}`

/** Postgres takes payloads of less than 8,000 bytes. Names are ASCII, and short. */
const MAX_BYTES = 7_999
const NAME = /^[\w/-]{1,200}$/
/**
 * Enough for several thousand names. A larger wake-up names nothing, so that it reaches every waiter, whatever the
 * number of names.
 */
const MAX_PAYLOADS = 8

/** The payloads of a wake-up. */
export function payloadsOf(channel: WakeChannel, names: Names): string[] {
  if (!names?.every(name => NAME.test(name))) return [channel]
  const payloads = [`${channel} `]
  for (const name of new Set(names)) {
    const last = payloads.at(-1) ?? ""
    if (last.length + name.length < MAX_BYTES) payloads[payloads.length - 1] = `${last}${name} `
    else payloads.push(`${channel} ${name} `)
  }
  return payloads.length > MAX_PAYLOADS ? [channel] : payloads
}

/** Reads a payload; undefined if it is not a wake-up. */
export function readPayload(payload: string): { channel: WakeChannel; names: Names } | undefined {
  const [first, ...names] = payload.split(" ")
  const channel = channels.find(each => each === first)
  if (!channel) return undefined
  return { channel, names: payload === channel ? undefined : names.filter(name => name !== "") }
}

/** With more names than this, the next notification names nothing. */
const MAX_NAMES = 2_000

/** The combined subjects of two wake-ups. */
export function joinNames(some: Names, more: Names): Names {
  if (!some || !more) return undefined
  const joined = [...new Set([...some, ...more])]
  return joined.length > MAX_NAMES ? undefined : joined
}
