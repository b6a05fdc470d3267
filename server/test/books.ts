/** What somebody with access to the database could do to one row; the reconciliation must find each. */
import { sql } from "kysely"
import type { Db } from "../src/platform/db/open.ts"

const away = [
  "transfers",
  "payouts",
  "transaction_attempts",
  "deposit_books",
  "claims",
  "claim_books",
  "payments",
  "deposits",
  "sweep_parts",
  "outflows",
]

/** By the table whose row is altered: the change, and a name where the column alone is not clear. */
export const alterations: { table: string; what: string; statement: string }[] = [
  ...each("transfers", {
    "a value": "value = value + 1",
    "a sender": "from_address = '0x000000000000000000000000000000000000dead'",
    "a hash": "tx_hash = overlay(tx_hash placing '00000000' from 3)",
    "a block's number": "block_number = block_number - 1",
    "a block's hash": "block_hash = overlay(block_hash placing '00000000' from 3)",
    "a token": "token = '0x000000000000000000000000000000000000dead'",
    "an address": "to_address = '0x000000000000000000000000000000000000dead'",
    "a place": "k = k + 1",
    "an end": "state = 'gone'",
    "a merchant": "merchant_id = 'mer_nobody'",
    "a deposit": "deposit_id = 4711",
  }),
  ...each("payouts", {
    "an amount": "amount = amount + 1",
    "a recipient": "recipient = '0x000000000000000000000000000000000000dead'",
    "a token": "token = '0x000000000000000000000000000000000000dead'",
    "its calldata": "data = overlay(data placing '00000000' from 3)",
    "where it is sent": "to_address = '0x000000000000000000000000000000000000dead'",
    "a hash": "tx_hash = overlay(tx_hash placing '00000000' from 3)",
    "a block's number": "block_number = block_number - 1",
    "a block's hash": "block_hash = overlay(block_hash placing '00000000' from 3)",
    "a nonce": "nonce = nonce + 1000000",
    "an end": "state = 'reverted', succeeded = false",
    "a merchant": "merchant_id = 'mer_nobody'",
    "a deposit": "deposit_id = 4711",
  }),
  { table: "payouts", what: "a percentage", statement: share("percent_e4 = percent_e4 + 1") },
  { table: "payouts", what: "which share", statement: share("share = share + 1") },
  ...each("transaction_attempts", {
    "its bytes": "raw = overlay(raw placing '00000000' from 20)",
    "a hash": "hash = overlay(hash placing '00000000' from 3)",
    "a nonce": "nonce = nonce + 1000000",
    "a payout": "payout_id = gen_random_uuid()",
  }),
  ...each("deposit_books", {
    "what came in": "inflow = inflow + 1",
    "what is promised": "committed = committed + 1",
    "a shortfall": "shortfall = shortfall + 1",
  }),
  ...each("payments", {
    "an amount": "amount = amount + 1",
    "a smaller amount": "amount = amount - 1",
    "a payer": "payer = '0x000000000000000000000000000000000000dead'",
    "a hash": "tx_hash = overlay(tx_hash placing '00000000' from 3)",
    "a merchant": "merchant_id = 'mer_nobody'",
    "an end": "status = 'reversed'",
  }),
  {
    table: "deposits",
    what: "its split",
    statement:
      "update deposits set recipient_set_id = null where id = (select deposit_id from payouts where share = 0 limit 1)",
  },
  {
    table: "deposits",
    what: "a split it is not for",
    statement: `update deposits set recipient_set_id = (select min(id) from recipient_sets)
      where ctid = (select min(ctid) from deposits where recipient_set_id is null)`,
  },
  ...each("claims", { "a payment": "payment_id = 'pay_nobody'" }),
  ...each("sweep_parts", { "an amount": "amount = amount + 1", "a transfer": "transfer_id = 4711" }),
  ...each("wallets", { "a nonce": "next_nonce = next_nonce + 1", "a nonce of before": "next_nonce = next_nonce - 1" }),
  ...each("deposits", {
    "an owner": "owner = '0x000000000000000000000000000000000000dead'",
    "a salt": "salt = overlay(salt placing '00000000' from 3)",
    "an approver": "approver = '0x000000000000000000000000000000000000dead'",
    "its payees": "payees_hash = overlay(payees_hash placing 'dead' from 3)",
    "its opening": "open_after_s = open_after_s + 1",
    "a factory": "factory = '0x000000000000000000000000000000000000dead'",
    "an address": "address = '0x000000000000000000000000000000000000dead'",
    "all, as of an older factory":
      "approver = '0x0000000000000000000000000000000000000000', factory = '0x000000000000000000000000000000000000dead'",
    "the mark of an older factory": "older_factory = true",
  }),
  ...each("outflows", {
    "an amount": "amount = amount + 1",
    "a recipient": "recipient = '0x000000000000000000000000000000000000dead'",
    "a hash": "tx_hash = overlay(tx_hash placing '00000000' from 3)",
    "a block's number": "block_number = block_number - 1",
  }),
  ...each("claim_books", { "how many": "claims = claims + 1", which: "transfer_ids = transfer_ids + 1" }),
  ...away.map(table => ({
    table,
    what: "the row, away",
    statement: `delete from ${table} where ctid = (select min(ctid) from ${table})`,
  })),
]

function each(table: string, changes: Record<string, string>) {
  return Object.entries(changes).map(([what, change]) => ({
    table,
    what,
    statement: `update ${table} set ${change} where ctid = (select min(ctid) from ${table})`,
  }))
}

function share(change: string): string {
  return `update payouts set ${change} where id = (select id from payouts where kind = 'share' and share = 0 limit 1)`
}

/**
 * Runs a statement without triggers and foreign keys; call it inside a transaction. Returns how many rows it changed.
 */
export async function byHand(db: Db, statement: string): Promise<number> {
  await sql`set local session_replication_role = replica`.execute(db)
  const { numAffectedRows } = await sql.raw(statement).execute(db)
  await sql`set local session_replication_role = origin`.execute(db)
  return Number.parseInt(`${numAffectedRows}`, 10)
}
