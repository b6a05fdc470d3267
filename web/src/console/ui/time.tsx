/** Times: how long ago, with the exact time under the pointer. */
import { newStore } from "../api/store.ts"

const LANGUAGE = navigator.language || "en"
/** 24 hours in each language, as in the server's sentences. */
const time = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" } as const
const exact = new Intl.DateTimeFormat(LANGUAGE, { dateStyle: "medium", timeStyle: "long", hourCycle: "h23" })
const clock = new Intl.DateTimeFormat(LANGUAGE, time)
const withSeconds = new Intl.DateTimeFormat(LANGUAGE, { month: "short", day: "numeric", ...time, second: "2-digit" })
const day = new Intl.DateTimeFormat(LANGUAGE, { month: "short", day: "numeric", ...time })
const farDay = new Intl.DateTimeFormat(LANGUAGE, { year: "numeric", month: "short", day: "numeric" })

const minute = newStore(Date.now())
setInterval(() => minute.set(Date.now()), 10_000)

const SECOND = 1_000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

/** A time as the reader places it: `just now`, `4 min ago`, `Nov 27, 18:04`. */
function timeText(at: string, now: number): string {
  const time = Date.parse(at)
  const ago = now - time
  if (Math.abs(ago) < 10 * SECOND) return "just now"
  if (ago > 0 && ago < MINUTE) return `${Math.floor(ago / SECOND)} s ago`
  if (ago > 0 && ago < HOUR) return `${Math.floor(ago / MINUTE)} min ago`
  if (ago < 0 && ago > -HOUR) return `in ${Math.ceil(-ago / MINUTE)} min`
  if (ago < 0 && ago > -2 * DAY) return `in ${Math.round(-ago / HOUR)} h`
  if (new Date(time).getFullYear() !== new Date(now).getFullYear()) return farDay.format(time)
  return new Date(time).toDateString() === new Date(now).toDateString() ? clock.format(time) : day.format(time)
}

/** How long something lasts by now: `9 minutes`, `2 days`. */
export function lastingText(since: string): string {
  const ms = Math.max(MINUTE, Date.now() - Date.parse(since))
  const [unit, word] = ms < HOUR ? [MINUTE, "minute"] : ms < DAY ? [HOUR, "hour"] : [DAY, "day"]
  const count = Math.floor(ms / (unit as number))
  return `${count} ${word}${count === 1 ? "" : "s"}`
}

export function Time({ at }: { at: string }) {
  minute.use()
  const now = Date.now()
  return (
    <time className="num" dateTime={at} title={exact.format(Date.parse(at))} style={{ whiteSpace: "nowrap" }}>
      {timeText(at, now)}
    </time>
  )
}

/** The day alone, for what lasts for days. */
export const Day = ({ at }: { at: string }) => (
  <time className="num" dateTime={at} title={exact.format(Date.parse(at))} style={{ whiteSpace: "nowrap" }}>
    {farDay.format(Date.parse(at))}
  </time>
)

/** To the second, for a story of one payment. */
export const Moment = ({ at }: { at: string }) => (
  <time className="num" dateTime={at} title={exact.format(Date.parse(at))}>
    {withSeconds.format(Date.parse(at))}
  </time>
)

/** The time of day alone, as of the last answer. */
export const clockText = (ms: number): string => clock.format(ms)
