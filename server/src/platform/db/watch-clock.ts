/**
 * Knows the database's time without a query for each row. Anything that outlives a process must not depend on the clock
 * of the process's machine. A machine whose clock was a day ahead deleted all nonces, and permanently scheduled retries
 * a day late. Between two measurements the monotonic clock counts, so setting the machine's clock changes nothing.
 */
import { setTimeout as sleep } from "node:timers/promises"
import { sql } from "kysely"
import type { Logger } from "pino"
import type { Db } from "./open.ts"

export interface DatabaseClock {
  /** The database's time, exact to half a round trip. */
  now(): Date
  /**
   * A clause, if this machine's clock differs from the database's by over a minute. The clause names the wrong clock if
   * the newest block shows which one it is. The process then writes nothing that outlives it, whichever clock is wrong.
   * Certificates and remote signers depend on this machine's clock. Stored rows have the database's time. A wrong time
   * would permanently expire checkouts and delete nonces, while payments on chain wait without a loss.
   */
  trouble(): string | undefined
  /** Compares both clocks now. Rejects if the database does not answer. */
  measure(): Promise<void>
}

const CLOCK_WRONG = "the clocks of this machine and of Postgres differ by more than a minute"

const MAX_BESIDE_MS = 60_000
/** A clock is right if it is this close to the newest block. Two clocks that are a minute apart can't both be right. */
const NEAR_BLOCK_MS = MAX_BESIDE_MS / 2
const MEASURED_MS = 5_000

/** The clocks that are compared with the database's. */
export interface OtherClocks {
  /** This machine's clock. */
  wallMs?: () => number
  monotonicMs?: () => number
  /**
   * The time of the newest block of any chain, asked for while the two clocks differ. The time only affects the
   * message.
   */
  newestBlockMs?: () => Promise<number | undefined>
}

/** Measures the clock of the database. */
export async function openClock(db: Db, clocks: OtherClocks = {}): Promise<DatabaseClock> {
  const {
    wallMs = () => Date.now(),
    monotonicMs = () => performance.now(),
    newestBlockMs = async () => undefined,
  } = clocks
  /** The database's time when the monotonic clock was 0, and the largest possible error. */
  let zeroMs = 0
  let errorMs = Number.POSITIVE_INFINITY
  const measure = () =>
    // On an existing connection, because waiting for a new one is not part of a round trip.
    db.connection().execute(async db => {
      const askedMs = monotonicMs()
      const { rows } = await sql<{ ms: number }>`
        select (extract(epoch from clock_timestamp()) * 1000)::float8 as ms`.execute(db)
      const answeredMs = monotonicMs()
      const halfMs = (answeredMs - askedMs) / 2
      const foundMs = Number(rows[0]?.ms) - (askedMs + answeredMs) / 2
      // A slow answer that does not contradict the known time is less exact than that time.
      if (halfMs > errorMs && Math.abs(foundMs - zeroMs) <= halfMs) return
      zeroMs = foundMs
      errorMs = halfMs
    })
  const nowMs = () => zeroMs + monotonicMs()
  const isWrong = () => Math.abs(wallMs() - nowMs()) > MAX_BESIDE_MS
  let verdict = ""
  const judge = async () => {
    const blockMs = await newestBlockMs().catch(() => undefined)
    verdict = blockMs === undefined ? "" : verdictOf(blockMs, { machineMs: wallMs(), databaseMs: nowMs() })
  }
  await measure()
  return {
    now: () => new Date(nowMs()),
    trouble: () => (isWrong() ? `${CLOCK_WRONG}${verdict}` : undefined),
    measure: async () => {
      await measure()
      if (isWrong()) await judge()
      else verdict = ""
    },
  }
}

/** The end of the clause. Empty if the chain agrees with neither clock, because the chain may have stopped. */
function verdictOf(blockMs: number, { machineMs, databaseMs }: { machineMs: number; databaseMs: number }): string {
  const isNear = (ms: number) => Math.abs(ms - blockMs) < NEAR_BLOCK_MS
  if (isNear(machineMs)) return "; judging by the newest block, the clock of Postgres is wrong"
  return isNear(databaseMs) ? "; judging by the newest block, the clock of this machine is wrong" : ""
}

/**
 * Compares the clocks every five seconds until `signal` aborts. Logs when this machine's clock becomes wrong, or right
 * again.
 */
export async function watchClock(clock: DatabaseClock, log: Logger, signal: AbortSignal): Promise<void> {
  let wasWrong = false
  while (!signal.aborted) {
    // If the database does not respond, other faults report that.
    await clock.measure().catch(() => undefined)
    const trouble = clock.trouble()
    // Logged only once, because the wording changes as an endpoint comes and goes.
    if (trouble !== undefined && !wasWrong)
      log.error(
        {
          todo: "Synchronize both clocks with NTP (chrony, systemd-timesyncd). The process then recovers automatically.",
        },
        `${trouble}: this process runs no jobs and is not ready`,
      )
    if (trouble === undefined && wasWrong) log.info("the clocks of this machine and of Postgres agree again")
    wasWrong = trouble !== undefined
    await sleep(MEASURED_MS, undefined, { signal }).catch(() => undefined)
  }
}
