/**
 * Whether the database takes writes. One whose disk is full still answers every read, and can write again what has a
 * place already: only new pages fail. So the trial writes a file of more than a megabyte, as a sort does that is too
 * large for memory; it is gone at the end, and leaves no dead rows.
 */

/**
 * SQL: one statement that fails where the database's disk has no room, or where it takes no writes. It changes nothing:
 * the row gets the value that it has. A new database has no such table yet.
 */
export const TRY_WRITE = `do $$ begin
  if to_regclass('installation') is null then return; end if;
  update installation set value = value where key = 'mode';
  set local work_mem = '64kB';
  set local temp_tablespaces = '';
  perform count(*) from generate_series(1, 50000);
end $$`

/** A trial failed for a reason that has no words of its own, or is not over in time. */
export const UNWRITABLE = "the database takes no writes: nothing can be recorded"

/** Why Postgres refused the trial, as the sentence of an alarm; undefined where it was not asked. */
export function whyUnwritable(error: unknown): string | undefined {
  const { code, cause } = error as { code?: unknown; cause?: { code?: unknown } }
  const state = String(cause?.code ?? code)
  return words[state] ?? (/^[0-9A-Z]{5}$/.test(state) && !/^E[A-Z]+$/.test(state) ? UNWRITABLE : undefined)
}

const words: Record<string, string> = {
  "53100": "the disk of the database is full: nothing can be recorded",
  "25006": "the database is read-only: nothing can be recorded",
}
