/** A list's filter by time: the last days, or days of one's own. */
import { PickChip } from "./chips.tsx"

/** In the address of the page; `from` and `to` are days such as `2026-01-31`, both of them included. */
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
const DAY = /^\d{4}-\d\d-\d\d$/

/** Midnight of a day here; undefined for what is no day. */
function midnight(day: string | undefined, later = 0): Date | undefined {
  if (day === undefined || !DAY.test(day)) return undefined
  const at = new Date(`${day}T00:00:00`)
  at.setDate(at.getDate() + later)
  return Number.isNaN(at.getTime()) ? undefined : at
}

/** The API's `from` and `to`. The last days begin at a whole hour, so that one filter is one list for an hour. */
export function timeQuery({ days, from, to }: TimeSearch): { from?: string; to?: string } {
  if (days !== undefined && days > 0)
    return { from: new Date(Math.floor(Date.now() / HOUR_MS) * HOUR_MS - days * DAY_MS).toISOString() }
  const first = midnight(from)
  const end = midnight(to, 1)
  return { ...(first ? { from: first.toISOString() } : {}), ...(end ? { to: end.toISOString() } : {}) }
}

const dayText = new Intl.DateTimeFormat(navigator.language || "en", { dateStyle: "medium" })

/** The filter in words, after "with"; undefined without one. */
export function timeWords({ days, from, to }: TimeSearch): string | undefined {
  if (days !== undefined) return `a time in the last ${days === 1 ? "24 hours" : `${days} days`}`
  const [first, last] = [from, to].map(day => midnight(day))
  if (!first && !last) return undefined
  return ["a time", first && `from ${dayText.format(first)}`, last && `to ${dayText.format(last)}`]
    .filter(Boolean)
    .join(" ")
}

/** A day as a date field has it. */
const fieldOf = (at: Date): string =>
  [at.getFullYear(), at.getMonth() + 1, at.getDate()].map(part => String(part).padStart(2, "0")).join("-")

/** `set` gets all three, undefined for what is not chosen. */
export function TimeChip({
  value: { days, from, to },
  set,
}: {
  value: TimeSearch
  set: (next: Record<keyof TimeSearch, unknown>) => void
}) {
  const isOwn = from !== undefined || to !== undefined
  const none = { days: undefined, from: undefined, to: undefined }
  const choose = (choice: string | undefined) => {
    if (choice !== "own") return set({ ...none, days: choice && Number(choice) })
    const now = new Date()
    set({ ...none, from: fieldOf(new Date(now.getFullYear(), now.getMonth(), 1)), to: fieldOf(now) })
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
