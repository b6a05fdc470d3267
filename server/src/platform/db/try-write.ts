/**
 * Determines whether the database accepts writes. With a full disk, the database still answers every read and can
 * rewrite existing pages; only new pages fail. So the test writes a file of more than a megabyte, as a sort that is too
 * large for memory does. At the end, the file is deleted, and no dead rows remain.
 */

/**
 * SQL: one statement that fails if the database's disk is full, or if the database accepts no writes. The statement
 * changes nothing: the row gets the value that it already has. A new database has no such table yet.
 */
export const TRY_WRITE = `do $$ begin
  if to_regclass('installation') is null then return; end if;
  update installation set value = value where key = 'mode';
  set local work_mem = '64kB';
  set local temp_tablespaces = '';
  perform count(*) from generate_series(1, 50000);
end $$`

/** The sentence for a test that failed for a reason without a message of its own, or that did not end in time. */
export const UNWRITABLE = "the database accepts no writes, so nothing can be recorded"

const stateOf = (error: unknown): string => {
  const { code, cause } = error as { code?: unknown; cause?: { code?: unknown } }
  return String(cause?.code ?? code)
}

/**
 * Why the database accepts no writes, as the sentence of an alarm; undefined if the error does not show that. The error
 * shows it if the operating system refuses (58…, no more open files, a read-only file system: 42501). A damaged file
 * (XX…) shows it too, and so does a statement or lock that took too long.
 */
export const whyUnwritable = (error: unknown): string | undefined => {
  const state = stateOf(error)
  return words[state] ?? (/^(58...|XX...|53000|42501|57014|55P03)$/.test(state) ? UNWRITABLE : undefined)
}

/** Whether the test failed because this user may not write a file of its size (`temp_file_limit`). */
export const isTrialTooLarge = (error: unknown): boolean => stateOf(error) === "53400"

const words: Record<string, string> = {
  "53100": "the disk of the database is full, so nothing can be recorded",
  "25006": "the database is read-only, so nothing can be recorded",
}
