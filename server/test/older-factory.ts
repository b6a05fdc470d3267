/** Receiving addresses of a factory of before addresses named an approver, in a test: only an upgrade leaves such rows. */
import { sql } from "kysely"
import { ZERO_ADDRESS } from "../src/platform/chain/hex.ts"
import type { Db } from "../src/platform/db/open.ts"

/** Makes all receiving addresses such ones. */
export async function makeOlder(db: Db): Promise<void> {
  await sql`alter table deposits disable trigger user`.execute(db)
  await sql`update deposits set factory = ${`0x${"9".repeat(40)}`}, approver = ${ZERO_ADDRESS}, older_factory = true`.execute(
    db,
  )
  await sql`alter table deposits enable trigger user`.execute(db)
}
