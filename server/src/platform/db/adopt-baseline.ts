/**
 * Marks a database made by the migrations before the first release as one made by the baseline, which has the same
 * schema. This file can be removed with the first release.
 */
import { describeSchema } from "./describe-schema.ts"

interface Session {
  exec(text: string): Promise<void>
  query(text: string, values?: unknown[]): Promise<Record<string, unknown>[]>
}

/** The last of these migrations, and the last commit that contains them. */
const LAST = {
  name: "0092_first_subscriptions.sql",
  checksum: "8e4de7133e530e7d75a500f3838516a08ee5edbee6193042bb0e47bd191a5a1d",
  commit: "099fbd6c",
}

/** Whether the database has migrations from before the baseline. `applied` has their checksums by name. */
export const isBeforeBaseline = (applied: ReadonlyMap<string, unknown>): boolean => applied.has("0001_foundation.sql")

/**
 * Throws an error with a sentence for the operator unless the last migration before the baseline is the last that was
 * applied.
 */
export function assertLastBefore(applied: ReadonlyMap<string, unknown>): void {
  const newest = [...applied.keys()].sort().at(-1)
  if (newest === LAST.name && applied.get(LAST.name) === LAST.checksum) return
  throw new Error(
    `The database has the schema of a version before the first release. Wipe a sandbox with --reset; in any other installation, first run script/migrate of commit ${LAST.commit}.`,
  )
}

/**
 * Replaces the rows of `migrations` with the row of the baseline. Throws an error with a sentence for the operator if
 * the schema is not the baseline's. The baseline is built in a separate schema, because the text of a catalogue depends
 * on the server.
 */
export async function adoptBaseline(
  session: Session,
  applied: ReadonlyMap<string, unknown>,
  baseline: { name: string; text: string; checksum: string },
): Promise<void> {
  assertLastBefore(applied)
  const describe = () => describeSchema(session.query, { comments: false })
  const actual = await describe()
  const [setting] = await session.query("select current_setting('search_path') as path")
  await session.exec("create schema sluice_baseline; set local search_path = sluice_baseline")
  await session.exec(baseline.text)
  const expected = await describe()
  await session.query("select set_config('search_path', $1, true)", [setting?.path])
  await session.exec("drop schema sluice_baseline cascade")
  const other = [...new Set([...expected.keys(), ...actual.keys()])].filter(
    part => expected.get(part) !== actual.get(part),
  )
  if (other.length > 0)
    throw new Error(
      `The schema of the database differs from the one that its migrations made, in ${other.join(", ")}. Wipe a sandbox with --reset; in any other installation, undo the change.`,
    )
  for (const comment of commentsOf(baseline.text)) await session.exec(comment)
  // The installation is as old as its first migration.
  await session.query(
    `with before as (delete from migrations returning applied_at)
      insert into migrations (name, checksum, applied_at) select $1, $2, min(applied_at) from before`,
    [baseline.name, baseline.checksum],
  )
}

/** The baseline's comment statements: each starts a line, with literals that continue each other. */
const commentsOf = (text: string): string[] => text.match(/^comment on [\w .]+ is\s+(?:'(?:[^']|'')*'\s*)+;$/gm) ?? []
