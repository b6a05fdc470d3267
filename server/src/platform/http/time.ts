/** Times in requests. */
import { invalid } from "../errors.ts"
import { Matching } from "./schemas.ts"

/** A time in a request; {@link timeAt} parses it. */
export const TimeInput = Matching(
  "^\\d{4}-\\d\\d-\\d\\d(T\\d\\d:\\d\\d(:\\d\\d(\\.\\d{1,3})?)?(Z|[+-]\\d\\d:\\d\\d))?$",
  "A time with its offset, such as 2026-01-31T12:00:00Z, or a day (it starts at midnight UTC)",
)

/**
 * Years that every component represents exactly: Postgres, ISO 8601 with four digits in any time zone, and a deposit's
 * open time.
 */
const FIRST_YEAR = 1970
const LAST_YEAR = 9998

/**
 * Parses the time in a field. Throws `VALIDATION_ERROR` for a time that does not exist, before 1970 or after 9998.
 * Without an hour, the time is midnight in UTC.
 */
export function timeAt(path: string, text: string): Date {
  const at = new Date(text)
  const day = Number.parseInt(text.slice(8, 10), 10)
  // `Date` turns the 30th of February into the 1st of March, so the day is checked before an offset moves the date.
  const exact = new Date(`${text.slice(0, 10)}T00:00:00Z`).getUTCDate() === day
  if (Number.isNaN(at.getTime()) || !exact)
    throw invalid(path, "must be an existing time, such as 2026-01-31T12:00:00Z")
  if (at.getUTCFullYear() < FIRST_YEAR || at.getUTCFullYear() > LAST_YEAR)
    throw invalid(path, `must be in the years ${FIRST_YEAR} to ${LAST_YEAR}`)
  return at
}
