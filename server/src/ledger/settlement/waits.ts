/** Decides when to retry what can't be settled now. */
import type { Row } from "../../platform/db/schema.ts"

const MINUTE_MS = 60_000
const MAX_MS = 10 * MINUTE_MS

/**
 * Returns when to retry a payment or group: after a quarter of the time since its newest money arrived, but at least
 * `minMs` and at most ten minutes.
 */
export function againAfter(now: Date, since: Date, minMs = MINUTE_MS / 2): Date {
  const waited = now.getTime() - since.getTime()
  return new Date(now.getTime() + Math.min(Math.max(waited / 4, minMs), MAX_MS))
}

/**
 * Returns when to retry transfers that wait together, in the same way, counting from the newest arrival or reorg. For
 * an empty list, the wait is the minimum.
 */
export function againTogether(
  now: Date,
  transfers: readonly Pick<Row<"transfers">, "created_at" | "reorged_at">[],
): Date {
  const times = transfers.map(row => Math.max(row.created_at.getTime(), row.reorged_at?.getTime() ?? 0))
  return againAfter(now, new Date(times.length === 0 ? now : times.reduce((newest, time) => Math.max(newest, time))))
}
