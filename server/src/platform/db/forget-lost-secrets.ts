/**
 * What happens to the secrets of a lost SECRET_KEY: nobody can decrypt them, so they are removed, and the service starts
 * with a new key.
 */
import { sql } from "kysely"
import { isSealedWith, type SecretKeys } from "../secrets.ts"
import { recordSecretKey, SEALED, type Sealed } from "./claim-secret-key.ts"
import type { Db } from "./open.ts"

/** Rows in a statement. */
const BATCH = 500

/** How many secrets of a table none of the keys decrypts. */
export interface Lost {
  table: string
  lost: number
}

/** Counts the secrets that none of the keys decrypts, in the tables that have some. Changes nothing. */
export const countLostSecrets = (db: Db, keys: SecretKeys): Promise<Lost[]> => eachTable(db, keys, async () => {})

/**
 * Removes the secrets that none of the keys decrypts, and records the keys as the installation's, in one transaction.
 * With two keys, the installation is in the middle of a change of its key, until `reencrypt` ends the change. Signing keys, webhook secrets and headers of origins lose their rows; receipts, receipt keys and mails
 * stay without their secret. Returns what was removed. No process of the service may run.
 *
 * @example await forgetLostSecrets(db, [newKey]) // [{ table: "signing_keys", lost: 2 }, { table: "receipts", lost: 41 }]
 */
export const forgetLostSecrets = (db: Db, keys: SecretKeys): Promise<Lost[]> =>
  db.transaction().execute(async db => {
    const lost = await eachTable(db, keys, async ({ table, id, lost }, rows) => {
      // A row that was written again meanwhile is kept.
      const columns = sql.join([...id, "sealed"].map(name => sql.ref(name)))
      const which = sql.join(rows.map(row => sql`(${sql.join([...id, "sealed"].map(name => row[name]))})`))
      const change =
        lost === undefined ? sql`delete from ${sql.table(table)}` : sql`update ${sql.table(table)} set ${sql.raw(lost)}`
      await sql`${change} where (${columns}) in (${which})`.execute(db)
    })
    await recordSecretKey(db, keys)
    return lost
  })

type SealedRow = Record<string, unknown> & { owner: string; sealed: string }

async function eachTable(
  db: Db,
  keys: SecretKeys,
  remove: (place: Sealed, rows: readonly SealedRow[]) => Promise<void>,
): Promise<Lost[]> {
  const found: Lost[] = []
  for (const place of SEALED) {
    const { table, purpose, owner, id } = place
    const columns = sql.join(id.map(name => sql.ref(name)))
    let after: unknown[] | undefined
    let lost = 0
    do {
      const { rows } =
        await sql<SealedRow>`select ${columns}, ${sql.raw(owner)} as owner, sealed from ${sql.table(table)}
        where sealed is not null and ${after ? sql`(${columns}) > (${sql.join(after)})` : sql`true`}
        order by ${columns} limit ${BATCH}`.execute(db)
      const dead = rows.filter(({ owner, sealed }) => !keys.some(key => isSealedWith(key, purpose, owner, sealed)))
      if (dead.length > 0) await remove(place, dead)
      lost += dead.length
      const last = rows.length === BATCH ? rows.at(-1) : undefined
      after = last && id.map(name => last[name])
    } while (after)
    if (lost > 0) found.push({ table, lost })
  }
  return found
}
