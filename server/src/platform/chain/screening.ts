/** The known status of an address that may be sanctioned. */

/** `unknown`: no source could be queried. A node that is down neither sanctions nor clears anyone. */
export type Screening = "listed" | "clear" | "unknown"
