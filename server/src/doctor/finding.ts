/** What a check found, in words. Pure. */

/**
 * `note`: worth knowing, and nothing to mend. `alarm`: the service runs, and a person must act. `fault`: it does not
 * start, or can't serve.
 */
export type Level = "ok" | "note" | "alarm" | "fault"

/** One fact about an installation. */
export interface Finding {
  /** What was checked: settings, secrets, database, address, or the name of a network. */
  part: string
  /** Which of the part's checks; a stable word for programs. */
  check: string
  level: Level
  /** A sentence that anyone may read, as `/readyz` is public: no address, no URL, no secret. */
  message: string
  /** What the operator does about it. It may name hosts and addresses, never secrets. */
  todo?: string
  /** The rounds of a running service raise this alarm themselves. */
  isWatched?: boolean
}

/** A finding that needs nobody. */
export const fine = (part: string, check: string, message: string): Finding => ({ part, check, level: "ok", message })

/** Whether a finding needs a person. */
export const isBad = ({ level }: Finding): boolean => level === "alarm" || level === "fault"

/** The finding as the sentence of an alarm: a network is named first, as in every alarm of a network. */
export const alarmText = ({ part, message }: Finding): string =>
  generalParts.includes(part) ? message : `${part}: ${message}`

const generalParts = ["settings", "secrets", "database", "address"]
