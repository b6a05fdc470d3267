/** The result of a check, in words. Pure. */

/**
 * `note`: worth knowing, but there is nothing to do. `alarm`: the service runs, but a person must act. `fault`: the
 * service does not start, or can't serve.
 */
export type Level = "ok" | "note" | "alarm" | "fault"

/** One fact about an installation. */
export interface Finding {
  /** The part that was checked: settings, secrets, database, address, or the name of a network. */
  part: string
  /** Which of the part's checks made the finding, as a stable word for programs. */
  check: string
  level: Level
  /** A sentence that anyone may read, because `/readyz` is public. It contains no address, no URL and no secret. */
  message: string
  /** The endpoint's own message, without anything that may be a key. It is ignored when findings are compared. */
  said?: string
  /** The operator's next step. It may contain hosts and addresses, but never secrets. */
  todo?: string
  /** Whether the rounds of a running service raise the same alarm themselves. */
  isWatched?: boolean
}

/** Creates a finding that needs no action. */
export const fine = (part: string, check: string, message: string): Finding => ({ part, check, level: "ok", message })

/** Whether a person must act. */
export const isBad = ({ level }: Finding): boolean => level === "alarm" || level === "fault"

/** The text of the alarm for a finding. The network comes first, as in all alarms about networks. */
export const alarmText = ({ part, message, said }: Finding): string =>
  `${generalParts.includes(part) ? "" : `${part}: `}${message}${said === undefined ? "" : `: ${said}`}`

const generalParts = ["settings", "secrets", "database", "address"]
