/** Times that callers name. */
import { invalid } from "../errors.ts"

/** The time that a field names; `VALIDATION_ERROR` where no calendar has it. Without an hour it is midnight in UTC. */
export function timeAt(path: string, text: string): Date {
  const at = new Date(text)
  const day = Number.parseInt(text.slice(8, 10), 10)
  // Date takes the 30th of February for the 1st of March; seen before an offset moves it.
  const exact = new Date(`${text.slice(0, 10)}T00:00:00Z`).getUTCDate() === day
  if (Number.isNaN(at.getTime()) || !exact)
    throw invalid(path, "must be a time that exists, such as 2026-01-31T12:00:00Z")
  return at
}
