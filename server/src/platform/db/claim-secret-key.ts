/**
 * Records which keys the secrets in a database are encrypted with, so that a process with another SECRET_KEY refuses to
 * start. The table `installation` keeps a constant for each of these keys, encrypted with it: one, and two while the
 * key is changed. The constant tells an attacker no more than any encrypted secret in the same database, which also
 * shows whether a guessed key is right.
 */
import { type RawBuilder, sql } from "kysely"
import { isSealedWith, type Purpose, type SecretKeys, seal, unseal } from "../secrets.ts"
import type { Db } from "./open.ts"

/** The key of the row in `installation`. The row's value is a JSON list. */
const ROW = "secret_key"
const OWNER = "installation"
const SIGNING = "signing_keys"

/** A place where a database keeps something encrypted. */
export interface Sealed {
  table: string
  purpose: Purpose
  /** SQL: the owner of a row's secret. */
  owner: string
  /** The columns that identify a row. */
  id: string[]
  /** SQL: what is set in a row whose secret is lost. Without it, the row is deleted. */
  lost?: string
}

/** Everything that a database keeps encrypted. */
export const SEALED: Sealed[] = [
  { table: SIGNING, purpose: "signing-key", owner: "id", id: ["id"] },
  { table: "webhook_secrets", purpose: "webhook-secret", owner: "coalesce(webhook_id, merchant_id)", id: ["id"] },
  { table: "receipt_keys", purpose: "receipt-key", owner: "id", id: ["id"], lost: "sealed = null" },
  {
    table: "receipts",
    purpose: "receipt",
    owner: "root || ' ' || byte_offset",
    id: ["merchant_id", "n"],
    lost: "sealed = null",
  },
  { table: "bundle_headers", purpose: "origin-header", owner: "bundle_id || ' ' || name", id: ["bundle_id", "name"] },
  {
    table: "mails",
    purpose: "mail-link",
    owner: "id",
    id: ["id"],
    lost: "sealed = null, body = null, status = 'failed', error = 'its link was lost with SECRET_KEY'",
  },
]

/** The statement that reads the row. */
export const READ_SECRET_KEY = `select value from installation where key = '${ROW}'`
/** How many secrets of each kind are tried if nothing was recorded yet. */
const TRIED = 200

/** How many of a table's newest secrets the keys decrypt. */
export interface Tried {
  table: string
  readable: number
  unreadable: number
}

/** How the keys of a process match those of an installation. */
export type Fit =
  | "right"
  /** SECRET_KEY is new, and the next start records it. SECRET_KEY_OTHER decrypts everything. */
  | "new"
  /** The process lacks one of two keys. */
  | "partial"
  | "wrong"

/** Why a process with such keys refuses to start, and what to do. */
export const KEY_FAULTS: Record<"partial" | "wrong", { message: string; todo: string }> = {
  wrong: {
    message: "SECRET_KEY is not this installation's key: it can't decrypt what the database keeps encrypted",
    todo: "Set the key that the other processes have. If that key is lost, run `sluice reencrypt --lost`. See docs/operators/operations.md (SECRET_KEY).",
  },
  partial: {
    message: "This installation's SECRET_KEY is being changed, and this process has only one of the two keys",
    todo: "Set the other key as SECRET_KEY_OTHER until `sluice reencrypt` has finished. See docs/operators/operations.md (SECRET_KEY).",
  },
}

/** Compares the keys of a process with what an installation has recorded. */
export function fitOf(keys: SecretKeys, recorded: string): Fit {
  const checks = checksIn(recorded)
  const opens = (check: string) => keys.some(key => isSealedWith(key, "check", OWNER, check))
  const opened = checks.filter(opens).length
  if (opened === 0) return "wrong"
  if (opened < checks.length) return "partial"
  return checks.some(check => isSealedWith(keys[0] ?? new Uint8Array(), "check", OWNER, check)) ? "right" : "new"
}

const checksIn = (recorded: string): string[] => JSON.parse(recorded) as string[]
const checkOf = (key: Uint8Array): string => seal([key], "check", OWNER, "sluice")

/**
 * Records the first key if it is new. Throws an error with a sentence, and writes nothing, if the keys are not the
 * installation's. If nothing was recorded yet, returns the tables with secrets that none of the keys decrypts.
 */
export async function claimSecretKey(db: Db, keys: SecretKeys): Promise<Tried[]> {
  const [first] = keys
  if (!first) throw new Error("SECRET_KEY is not set")
  const recorded = await readRecord(db)
  if (recorded === undefined) {
    const { used, unreadable } = await tryKeys(db, keys)
    const value = JSON.stringify([...new Set([first, ...used])].map(checkOf))
    await db
      .insertInto("installation")
      .values({ key: ROW, value })
      .onConflict(conflict => conflict.doNothing())
      .execute()
    // Another process may have recorded its key first.
    await claimSecretKey(db, keys)
    return unreadable
  }
  const fit = fitOf(keys, recorded)
  if (fit === "wrong" || fit === "partial") throw new Error(wordsOf(fit))
  if (fit === "new" && !(await replaceRecord(db, recorded, [...checksIn(recorded), checkOf(first)])))
    await claimSecretKey(db, keys)
  return []
}

const wordsOf = (fit: keyof typeof KEY_FAULTS, counts = ""): string =>
  `${KEY_FAULTS[fit].message}${counts}. ${KEY_FAULTS[fit].todo}`

/** Whether an installation has recorded exactly these keys. */
export async function isRecorded(db: Db, keys: SecretKeys): Promise<boolean> {
  const recorded = await readRecord(db)
  return recorded !== undefined && fitOf(keys, recorded) === "right" && checksIn(recorded).length === keys.length
}

async function readRecord(db: Db): Promise<string | undefined> {
  return (await db.selectFrom("installation").select("value").where("key", "=", ROW).executeTakeFirst())?.value
}

/** Returns false, and writes nothing, if another process was faster. */
async function replaceRecord(db: Db, before: string, checks: readonly string[]): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable("installation")
    .set({ value: JSON.stringify(checks) })
    .where("key", "=", ROW)
    .where("value", "=", before)
    .executeTakeFirst()
  return numUpdatedRows === 1n
}

/**
 * Tries the keys on the newest secrets. Throws if the keys decrypt at most half of all secrets, unless they decrypt
 * each key that signs tokens. After a key was lost, the database still has the secrets that merchants have not set
 * again. If only some signing keys can be read, two keys are in use. Then the majority decides, because a process with
 * a wrong key writes less.
 */
async function tryKeys(db: Db, keys: SecretKeys): Promise<{ used: Uint8Array[]; unreadable: Tried[] }> {
  const used = new Set<Uint8Array>()
  const tried: Tried[] = []
  for (const { table, purpose, owner, id } of SEALED) {
    const order = table === SIGNING ? "created_at" : id.join(" desc, ")
    const { rows } = await sql<{ owner: string; sealed: string }>`
      select ${sql.raw(owner)} as owner, sealed from ${sql.table(table)} where sealed is not null order by ${sql.raw(order)} desc limit ${TRIED}`.execute(
      db,
    )
    const found = rows.map(({ owner, sealed }) => keys.find(each => isSealedWith(each, purpose, owner, sealed)))
    const readable = found.filter(key => key !== undefined)
    for (const key of readable) used.add(key)
    if (rows.length > 0) tried.push({ table, readable: readable.length, unreadable: rows.length - readable.length })
  }
  const readable = tried.reduce((sum, each) => sum + each.readable, 0)
  const unreadable = tried.filter(each => each.unreadable > 0)
  const count = unreadable.reduce((sum, each) => sum + each.unreadable, 0)
  const signs = tried.some(each => each.table === SIGNING && each.unreadable === 0)
  if (count > 0 && !signs && count >= readable) throw new Error(wordsOf("wrong", ` (${tried.map(countOf).join(", ")})`))
  return { used: [...used], unreadable }
}

const countOf = ({ table, readable, unreadable }: Tried) => `${table}: ${readable} of ${readable + unreadable} can be`

/** Records these keys, and no other, as the installation's. */
export async function recordSecretKey(db: Db, keys: SecretKeys): Promise<void> {
  if (keys.length === 0) throw new Error("SECRET_KEY is not set")
  const value = JSON.stringify(keys.map(checkOf))
  const row = db.insertInto("installation").values({ key: ROW, value })
  await row.onConflict(conflict => conflict.column("key").doUpdateSet({ value })).execute()
}

/** The result of {@link reencrypt}. */
export interface Reencrypted {
  changed: number
  /** Secrets that neither key decrypts. They stay unchanged. */
  unreadable: number
}

/** Rows in a statement, and in a transaction. */
const BATCH = 500

/**
 * Encrypts everything with the first key, in transactions of 500 rows. Skips rows that are already encrypted with it,
 * so the next run continues an interrupted one. Ends with a pass that finds nothing more, and records only the first
 * key. Throws an error with a sentence if that pass finds something, because a process still encrypts with the other
 * key.
 */
export async function reencrypt(db: Db, keys: SecretKeys, batch = BATCH): Promise<Reencrypted> {
  const [first] = keys
  await claimSecretKey(db, keys)
  const recorded = await readRecord(db)
  const done = await pass(db, keys, batch)
  const late = await pass(db, keys, batch)
  if (late.changed > 0 || !first || recorded === undefined || !(await replaceRecord(db, recorded, [checkOf(first)])))
    throw new Error(
      "A process still encrypts with the other key. Start all processes with this SECRET_KEY and SECRET_KEY_OTHER, and run this command again.",
    )
  return { changed: done.changed, unreadable: late.unreadable }
}

async function pass(db: Db, keys: SecretKeys, batch: number): Promise<Reencrypted> {
  const total = { changed: 0, unreadable: 0 }
  for (const place of SEALED) {
    let after: unknown[] | undefined
    do {
      const found = await reencryptBatch(db, keys, place, after, batch)
      total.changed += found.changed
      total.unreadable += found.unreadable
      after = found.last
    } while (after)
  }
  return total
}

/** `last` has the columns of the last row; undefined if there are no more. */
async function reencryptBatch(
  db: Db,
  keys: SecretKeys,
  { table, purpose, owner, id }: (typeof SEALED)[number],
  after: unknown[] | undefined,
  batch: number,
): Promise<Reencrypted & { last: unknown[] | undefined }> {
  const columns = sql.join(id.map(name => sql.ref(name)))
  const isAfter: RawBuilder<unknown> = after ? sql`(${columns}) > (${sql.join(after)})` : sql`true`
  const { rows } = await sql<Record<string, unknown> & { owner: string; sealed: string }>`
    select ${columns}, ${sql.raw(owner)} as owner, sealed from ${sql.table(table)} where sealed is not null and ${isAfter}
    order by ${columns} limit ${batch}`.execute(db)
  const idOf = (row: Record<string, unknown>) => id.map(name => row[name])
  const stale = rows.filter(({ owner, sealed }) => !isSealedWith(keys[0] ?? new Uint8Array(), purpose, owner, sealed))
  const readable = stale.filter(({ owner, sealed }) => keys.some(key => isSealedWith(key, purpose, owner, sealed)))
  let changed = 0
  if (readable.length > 0)
    await db.transaction().execute(async db => {
      for (const row of readable) {
        const sealed = seal(keys, purpose, row.owner, unseal(keys, purpose, row.owner, row.sealed))
        // A row that was written again meanwhile is left for the next pass.
        const { numAffectedRows } = await sql`update ${sql.table(table)} set sealed = ${sealed}
          where (${columns}) = (${sql.join(idOf(row))}) and sealed = ${row.sealed}`.execute(db)
        changed += Number(numAffectedRows)
      }
    })
  const last = rows.at(-1)
  return {
    changed,
    unreadable: stale.length - readable.length,
    last: last && rows.length === batch ? idOf(last) : undefined,
  }
}
