/** Moments for people. Pure. */

/**
 * Formats a moment with its day, in the reader's time zone. With `UTC`, it uses and names that zone, because a page
 * without a script can't know the reader's.
 *
 * @example momentOf("2026-01-31T12:00:00Z", "en", { zone: "UTC" }) // "Jan 31, 2026, 12:00 PM UTC"
 */
export function momentOf(
  at: Date | string,
  language: string,
  { zone, dateStyle = "medium" }: { zone?: "UTC" | undefined; dateStyle?: "medium" | "long" } = {},
): string {
  const form = new Intl.DateTimeFormat(`${language}-u-nu-latn`, { dateStyle, timeStyle: "short", timeZone: zone })
  return `${form.format(new Date(at))}${zone ? ` ${zone}` : ""}`
}
