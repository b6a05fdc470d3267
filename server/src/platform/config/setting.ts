/** What is declared of a setting. */

/** What the documentation says of a setting. */
export interface Meaning {
  meaning: string
  /** The text used when the variable is not set. Without it, the setting is then undefined. */
  fallback?: string
  /** The default in words, where it depends on other settings. */
  otherwise?: string
  /** What live mode requires of it, for the documentation. */
  live?: string
}

/** A setting, and how its text is read. */
export interface Setting<T> extends Meaning {
  /** Throws an Error whose message completes "NAME …". */
  parse: (text: string) => T
}
