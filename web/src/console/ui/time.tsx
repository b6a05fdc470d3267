/** Times: how long ago, with the exact time under the pointer. They are in the merchant's zone. */
import { dayAt } from "../api/days.ts"
import { newStore } from "../api/store.ts"
import { browserZone, exactText, formatted, useZone, useZoneToName, zoneNow, zoneTitle } from "../api/zone.ts"

const minute = newStore(Date.now())
setInterval(() => minute.set(Date.now()), 10_000)

const SECOND = 1_000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

/** A time as the reader places it: `just now`, `4 min ago`, `Nov 27, 18:04`. */
function timeText(time: number, now: number, zone: string): string {
  const ago = now - time
  if (Math.abs(ago) < 10 * SECOND) return "just now"
  if (ago > 0 && ago < MINUTE) return `${Math.floor(ago / SECOND)} s ago`
  if (ago > 0 && ago < HOUR) return `${Math.floor(ago / MINUTE)} min ago`
  if (ago < 0 && ago > -HOUR) return `in ${Math.ceil(-ago / MINUTE)} min`
  if (ago < 0 && ago > -2 * DAY) return `in ${Math.round(-ago / HOUR)} h`
  const day = dayAt(time, zone)
  const today = dayAt(now, zone)
  if (day.slice(0, 4) !== today.slice(0, 4)) return formatted("farDay", time, zone)
  return formatted(day === today ? "clock" : "day", time, zone)
}

/** How long something lasts by now: `9 minutes`, `2 days`. */
export function lastingText(since: string): string {
  const ms = Math.max(MINUTE, Date.now() - Date.parse(since))
  const [unit, word] = ms < HOUR ? [MINUTE, "minute"] : ms < DAY ? [HOUR, "hour"] : [DAY, "day"]
  const count = Math.floor(ms / (unit as number))
  return `${count} ${word}${count === 1 ? "" : "s"}`
}

interface Given {
  at: string
}

/** A time, as `words` put it. */
function Exact({ at, words, wraps }: Given & { words: (at: number, zone: string) => string; wraps?: boolean }) {
  const zone = useZone()
  const ms = Date.parse(at)
  return (
    <time
      className="num"
      dateTime={at}
      title={exactText(ms, zone)}
      style={wraps ? undefined : { whiteSpace: "nowrap" }}
    >
      {words(ms, zone)}
    </time>
  )
}

export function Time({ at }: Given) {
  minute.use()
  return <Exact at={at} words={(ms, zone) => timeText(ms, Date.now(), zone)} />
}

/** The day alone, for what lasts for days. */
export const Day = ({ at }: Given) => <Exact at={at} words={(ms, zone) => formatted("farDay", ms, zone)} />

/** To the second, for a story of one payment. */
export const Moment = ({ at }: Given) => (
  <Exact at={at} wraps words={(ms, zone) => formatted("withSeconds", ms, zone)} />
)

/** The time of day alone, as of the last answer. */
export const clockText = (ms: number): string => formatted("clock", ms, zoneNow())

/** The zone of the page's times, where they are not in the browser's. */
export function ZoneNote() {
  const zone = useZoneToName()
  if (zone === undefined) return null
  const words = `Your browser is in ${zoneTitle(browserZone)}: point at a time to see both. CSV files are in UTC.`
  return (
    <span className="quiet zone" title={words}>
      Times in {zoneTitle(zone)}
    </span>
  )
}
