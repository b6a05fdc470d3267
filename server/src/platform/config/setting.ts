/** The declaration of a setting. */

/** The documentation of a setting. */
export interface Meaning {
  meaning: string
  /** The text used if the variable is not set. Without a fallback, the setting is then undefined. */
  fallback?: string
  /** The default in words, if it depends on other settings. */
  otherwise?: string
  /** What live mode requires of the setting, for the documentation. */
  live?: string
}

/** A setting, and how to parse its text. */
export interface Setting<T> extends Meaning {
  /** Throws an Error whose message completes "NAME …". */
  parse: (text: string) => T
}
