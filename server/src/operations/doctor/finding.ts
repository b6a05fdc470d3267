/** The result of a check, in words. Pure. */

/**
 * `note`: worth knowing, but nothing to do. `alarm`: the service runs, and a person must act. `fault`: the service does
 * not start, or can't serve.
 */
export type Level = "ok" | "note" | "alarm" | "fault"

/** One fact about an installation. */
export interface Finding {
  /** The checked part: settings, secrets, database, address, or the name of a network. */
  part: string
  /** Which of the part's checks it was: a stable word for programs. */
  check: string
  level: Level
  /** A sentence that anyone may read, because `/readyz` is public: no address, no URL, no secret. */
  message: string
  /** An endpoint's message, without anything that may be a key. It does not count when findings are compared. */
  said?: string
  /** The operator's next step. It may name hosts and addresses, never secrets. */
  todo?: string
  /** Whether the rounds of a running service raise this alarm themselves. */
  isWatched?: boolean
}

/** A finding that needs no action. */
export const fine = (part: string, check: string, message: string): Finding => ({ part, check, level: "ok", message })

/** Whether a person must act. */
export const isBad = ({ level }: Finding): boolean => level === "alarm" || level === "fault"

/** The text of an alarm for the finding. A network is named first, as in all alarms of networks. */
export const alarmText = ({ part, message, said }: Finding): string =>
  `${generalParts.includes(part) ? "" : `${part}: `}${message}${said === undefined ? "" : `: ${said}`}`

const generalParts = ["settings", "secrets", "database", "address"]
