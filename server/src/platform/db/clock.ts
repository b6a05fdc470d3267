/**
 * The database's time, as a process knows it without asking for each row. What outlives a process must not depend on the
 * clock of its machine: one whose clock was a day ahead deleted all nonces, and scheduled retries a day later for good.
 * Between two measurements the monotonic clock counts, so setting the machine's clock changes nothing.
 */
import { setTimeout as sleep } from "node:timers/promises"
import { sql } from "kysely"
import type { Logger } from "pino"
import type { Db } from "./open.ts"

export interface DatabaseClock {
  /** The database's time, as exact as half a round trip to it. */
  now(): Date
  /**
   * Whether this machine's clock is more than a minute beside the database's. A process with such a clock does nothing
   * that outlives it: certificates, tokens of others and what remote signers do depend on that clock.
   */
  isWrong(): boolean
  /** Compares both clocks now. Rejects where the database does not answer. */
  measure(): Promise<void>
}

/** What a process with such a clock says of itself, as a clause. */
export const CLOCK_WRONG = "the clock of this machine is more than a minute beside that of Postgres"

const MOST_BESIDE_MS = 60_000
const MEASURED_MS = 5_000

/** Measures the clock of the database; `clocks` replace those of this machine. */
export async function openClock(
  db: Db,
  clocks: { wallMs: () => number; monotonicMs: () => number } = {
    wallMs: () => Date.now(),
    monotonicMs: () => performance.now(),
  },
): Promise<DatabaseClock> {
  const { wallMs, monotonicMs } = clocks
  /** The database's time when the monotonic clock was 0, and how far it may be from that. */
  let zeroMs = 0
  let errorMs = Number.POSITIVE_INFINITY
  const measure = () =>
    // On a connection that was there before: to wait for one is no part of a round trip.
    db.connection().execute(async db => {
      const askedMs = monotonicMs()
      const { rows } = await sql<{ ms: number }>`
        select (extract(epoch from clock_timestamp()) * 1000)::float8 as ms`.execute(db)
      const answeredMs = monotonicMs()
      const halfMs = (answeredMs - askedMs) / 2
      const foundMs = Number(rows[0]?.ms) - (askedMs + answeredMs) / 2
      // A slow answer that does not contradict what is known says less than that.
      if (halfMs > errorMs && Math.abs(foundMs - zeroMs) <= halfMs) return
      zeroMs = foundMs
      errorMs = halfMs
    })
  await measure()
  const nowMs = () => zeroMs + monotonicMs()
  return { now: () => new Date(nowMs()), isWrong: () => Math.abs(wallMs() - nowMs()) > MOST_BESIDE_MS, measure }
}

/** Compares the clocks every five seconds until `signal` aborts, and logs when this machine's is wrong, and right again. */
export async function watchClock(clock: DatabaseClock, log: Logger, signal: AbortSignal): Promise<void> {
  let wasWrong = false
  while (!signal.aborted) {
    // Where the database is gone, its own faults say so.
    await clock.measure().catch(() => undefined)
    const isWrong = clock.isWrong()
    if (isWrong && !wasWrong)
      log.error(
        { todo: "Synchronize both clocks with NTP (chrony, systemd-timesyncd). It recovers by itself." },
        `${CLOCK_WRONG}: this process works on nothing and is not ready`,
      )
    if (!isWrong && wasWrong) log.info("the clock of this machine agrees with that of Postgres again")
    wasWrong = isWrong
    await sleep(MEASURED_MS, undefined, { signal }).catch(() => undefined)
  }
}
