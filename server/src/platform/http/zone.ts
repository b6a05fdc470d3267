/** Time zones in requests. */

/**
 * Returns the name of a time zone as the IANA database spells it, such as Asia/Kathmandu for `asia/kathmandu`;
 * undefined if the runtime does not know it. An offset is not a time zone, because it does not tell when summer time
 * applies.
 */
export function zoneNamed(name: string): string | undefined {
  // Temporal also takes a time with an offset or a zone, such as T10+05. Intl does not, but it takes offsets.
  if (!/^[A-Za-z]/.test(name)) return undefined
  try {
    new Intl.DateTimeFormat("en", { timeZone: name })
    return Temporal.Instant.fromEpochMilliseconds(0).toZonedDateTimeISO(name).timeZoneId
  } catch {
    return undefined
  }
}
