/** The worker's round that keeps currency rates up to date. */
import { sql } from "kysely"
import type { Context } from "../../platform/context.ts"
import { boundedText } from "../../platform/net/bounded-body.ts"
import { parseEcb } from "./ecb.ts"
import { storeEcb, storeFixed } from "./store-rates.ts"

const ROUND_MS = 60_000
/** The ECB publishes once a day, and values may wait half an hour for the new rates. */
const FETCH_MS = 30 * 60_000
const TIMEOUT_MS = 20_000
/** The file of 90 days is 130 KB, and the file of all days since 1999 is 9 MB. */
const MAX_BYTES = 32 * 1024 * 1024

/** Stores the rates that the setting RATES names. Returns how many milliseconds the next round may wait. */
export async function ratesRound(ctx: Context): Promise<number> {
  const { rates } = ctx.settings
  if (rates === undefined) return ROUND_MS
  if (rates !== "ecb") {
    await storeFixed(ctx.db, rates.fixed, ctx.now())
    return ROUND_MS
  }
  if (!(await isDue(ctx))) return ROUND_MS
  const now = ctx.now()
  try {
    const added = await storeEcb(ctx.db, parseEcb(await fetchFile(ctx)), { now, newest: true })
    if (added > 0) ctx.log.info({ added }, "new rates of the ECB")
  } catch (error) {
    ctx.log.warn(
      { err: error, url: ctx.settings.ratesUrl },
      "the ECB's rates could not be read; reading will be retried",
    )
  }
  return ROUND_MS
}

/** Whether to fetch rates now. With several workers, only one of them fetches. */
async function isDue(ctx: Context): Promise<boolean> {
  const { rows } = await sql`
    insert into rate_sources as s (source, complete_until, next_at) values ('ecb', '1999-01-01', now() + ${FETCH_MS} * interval '1 ms')
    on conflict (source) do update set next_at = excluded.next_at where s.next_at <= now() returning 1`.execute(ctx.db)
  return rows.length > 0
}

async function fetchFile({ settings, signal }: Context): Promise<string> {
  const answer = await fetch(settings.ratesUrl, {
    signal: AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]),
    headers: { "user-agent": "Sluice" },
  })
  if (!answer.ok) throw new Error(`it answered ${answer.status}`)
  return await boundedText(answer, MAX_BYTES)
}
