/** A list's filter by time: the last days, or days of one's own. */
import { dayAfter, dayAt, startTime, utcOf } from "../api/days.ts"
import { useZone } from "../api/zone.ts"
import { PickChip } from "./chips.tsx"

/** In the address of the page; `from` and `to` are days such as `2026-01-31` in the merchant's zone, both of them included. */
export interface TimeSearch {
  days?: number
  from?: string
  to?: string
}

const choices = [
  ["", "Any time"],
  ["1", "Last 24 hours"],
  ["7", "Last 7 days"],
  ["30", "Last 30 days"],
  ["90", "Last 90 days"],
  ["own", "Days of your choice"],
] as const

const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS

/** The API's `from` and `to`. The last days begin at a whole hour, so that one filter is one list for an hour. */
export function timeQuery({ days, from, to }: TimeSearch, zone: string): { from?: string; to?: string } {
  if (days !== undefined && days > 0)
    return { from: new Date(Math.floor(Date.now() / HOUR_MS) * HOUR_MS - days * DAY_MS).toISOString() }
  const first = startTime(from, zone)
  const end = to && startTime(dayAfter(to, 1), zone)
  return {
    ...(first === undefined ? {} : { from: first }),
    ...(end ? { to: end } : {}),
  }
}

/** Of midnight UTC: a day is written alike in each zone. */
const dayText = new Intl.DateTimeFormat(navigator.language || "en", { dateStyle: "medium", timeZone: "UTC" })

/** The filter in words, after "with"; undefined without one. */
export function timeWords({ days, from, to }: TimeSearch): string | undefined {
  if (days !== undefined) return `a time in the last ${days === 1 ? "24 hours" : `${days} days`}`
  const [first, last] = [from, to].map(day => utcOf(day))
  if (first === undefined && last === undefined) return undefined
  const words = [
    first !== undefined && `from ${dayText.format(first)}`,
    last !== undefined && `to ${dayText.format(last)}`,
  ]
  return ["a time", ...words].filter(Boolean).join(" ")
}

/** `set` gets all three, undefined for what is not chosen. */
export function TimeChip({
  value: { days, from, to },
  set,
}: {
  value: TimeSearch
  set: (next: Record<keyof TimeSearch, unknown>) => void
}) {
  const zone = useZone()
  const isOwn = from !== undefined || to !== undefined
  const none = { days: undefined, from: undefined, to: undefined }
  const choose = (choice: string | undefined) => {
    if (choice !== "own") return set({ ...none, days: choice && Number(choice) })
    const today = dayAt(Date.now(), zone)
    set({ ...none, from: `${today.slice(0, 8)}01`, to: today })
  }
  return (
    <>
      <PickChip
        name="Time"
        choices={choices}
        value={isOwn ? "own" : days === undefined ? undefined : (String(days) as never)}
        set={choose}
      />
      {isOwn && (
        <>
          <DayField name="From" value={from} max={to} set={day => set({ ...none, from: day ?? "", to })} />
          <span className="quiet" aria-hidden="true">
            to
          </span>
          <DayField name="To (inclusive)" value={to} min={from} set={day => set({ ...none, from, to: day ?? "" })} />
        </>
      )}
    </>
  )
}

function DayField({
  name,
  value = "",
  set,
  ...bounds
}: {
  name: string
  value: string | undefined
  set: (day: string | undefined) => void
  min?: string | undefined
  max?: string | undefined
}) {
  return (
    <input
      type="date"
      className="chip day"
      aria-label={name}
      title={name}
      value={value}
      {...bounds}
      onChange={({ currentTarget }) => set(currentTarget.value || undefined)}
    />
  )
}
