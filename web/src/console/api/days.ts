/** Days in a time zone, by its clocks. Pure. */

const DAY_MS = 86_400_000
const DAY = /^\d{4}-\d\d-\d\d$/

/** What browsers call these zones, and what the IANA database and the server call them. */
const renamed: Record<string, string> = {
  "Africa/Asmera": "Africa/Asmara",
  "America/Buenos_Aires": "America/Argentina/Buenos_Aires",
  "America/Catamarca": "America/Argentina/Catamarca",
  "America/Coral_Harbour": "America/Atikokan",
  "America/Cordoba": "America/Argentina/Cordoba",
  "America/Godthab": "America/Nuuk",
  "America/Indianapolis": "America/Indiana/Indianapolis",
  "America/Jujuy": "America/Argentina/Jujuy",
  "America/Louisville": "America/Kentucky/Louisville",
  "America/Mendoza": "America/Argentina/Mendoza",
  "Asia/Calcutta": "Asia/Kolkata",
  "Asia/Katmandu": "Asia/Kathmandu",
  "Asia/Rangoon": "Asia/Yangon",
  "Asia/Saigon": "Asia/Ho_Chi_Minh",
  "Atlantic/Faeroe": "Atlantic/Faroe",
  "Europe/Kiev": "Europe/Kyiv",
  "Pacific/Enderbury": "Pacific/Kanton",
  "Pacific/Ponape": "Pacific/Pohnpei",
  "Pacific/Truk": "Pacific/Chuuk",
}

/** Whether this browser can tell the time in a zone. */
export function isZone(name: string): boolean {
  try {
    return new Intl.DateTimeFormat("en", { timeZone: name }) !== undefined
  } catch {
    return false
  }
}

/** The name that a zone has today, where the browser knows it. */
export function nameOfToday(zone: string): string {
  const name = renamed[zone]
  return name !== undefined && isZone(name) ? name : zone
}

/** The zones that a person can choose from, by name. */
export const zonesToChoose = (): string[] =>
  [...new Set(["UTC", ...Intl.supportedValuesOf("timeZone").map(nameOfToday)])].sort()

const clocks = new Map<string, Intl.DateTimeFormat>()
function clockOf(zone: string): Intl.DateTimeFormat {
  const found = clocks.get(zone)
  if (found) return found
  const two = "2-digit"
  const parts = { year: "numeric", month: two, day: two, hour: two, minute: two, second: two } as const
  const made = new Intl.DateTimeFormat("en-u-ca-gregory-nu-latn", { timeZone: zone, hourCycle: "h23", ...parts })
  clocks.set(zone, made)
  return made
}

/** What the clocks of a zone show, as milliseconds as if they were those of UTC. */
function shownAt(at: number, zone: string): number {
  const parts = Object.fromEntries(
    clockOf(zone)
      .formatToParts(at)
      .map(({ type, value }) => [type, Number(value)]),
  )
  const { year = 0, month = 1, day = 1, hour = 0, minute = 0, second = 0 } = parts
  return Date.UTC(year, month - 1, day, hour, minute, second) + (((at % 1_000) + 1_000) % 1_000)
}

/** By how much the clocks of a zone are ahead of UTC at a time, in milliseconds. */
export const offsetAt = (at: number, zone: string): number => shownAt(at, zone) - at

/** The day in a zone at a time, such as `2026-01-31`. */
export const dayAt = (at: number, zone: string): string => new Date(shownAt(at, zone)).toISOString().slice(0, 10)

/** Midnight UTC of a day; undefined for what is no day. */
export function utcOf(day: string | undefined): number | undefined {
  if (day === undefined || !DAY.test(day)) return undefined
  const at = Date.parse(`${day}T00:00:00Z`)
  return !Number.isNaN(at) && new Date(at).toISOString().startsWith(day) ? at : undefined
}

/** The day so many days later; what is no day stays. */
export function dayAfter(day: string, days: number): string {
  const at = utcOf(day)
  return at === undefined ? day : new Date(at + days * DAY_MS).toISOString().slice(0, 10)
}

/**
 * When a day begins in a zone, in milliseconds; undefined for what is no day. A day that the clocks go through twice
 * begins the first time. Where they skip midnight, or the whole day, it begins with what comes after.
 */
export function startOfDay(day: string | undefined, zone: string): number | undefined {
  const midnight = utcOf(day)
  if (midnight === undefined) return undefined
  // By the clocks of the day before, and by those of the day after.
  const byOld = midnight - offsetAt(midnight - DAY_MS, zone)
  const byNew = midnight - offsetAt(midnight + DAY_MS, zone)
  const found = [byOld, byNew].filter(at => shownAt(at, zone) === midnight)
  if (found.length > 0) return Math.min(...found)
  // The clocks go forward within these hours, from before midnight to after it.
  let early = byNew
  let late = byOld
  while (late - early > 1) {
    const middle = Math.floor((early + late) / 2)
    if (shownAt(middle, zone) < midnight) early = middle
    else late = middle
  }
  return late
}

/** When a day begins in a zone, in ISO 8601; undefined for what is no day. */
export function startTime(day: string | undefined, zone: string): string | undefined {
  const at = startOfDay(day, zone)
  return at === undefined ? undefined : new Date(at).toISOString()
}
