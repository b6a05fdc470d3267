/** What is known about an address that sanctions may concern. */

/** unknown: no source could be asked. A node that is down makes nobody sanctioned or cleared. */
export type Screening = "listed" | "clear" | "unknown"
