/**
 * What receipts add to a settlement, and what a batch of a thousand takes. Postgres survives a power cut. The goal: at most
 * 1.03 times the time. `script/bench receipts`.
 */
import { mkdtempSync, rmSync } from "node:fs"
import { cpus, tmpdir } from "node:os"
import { join } from "node:path"
import { performance } from "node:perf_hooks"
import { sql } from "kysely"
import { receiptRound } from "../server/src/ledger/receipts/make-batches.ts"
import { startPostgres } from "../server/test/postgres.ts"
import { compare, startSide } from "./settle.ts"

const RECEIPTS = 10_000

const say = (text: string) => process.stdout.write(`${text}\n`)
const postgres = await startPostgres({ fsync: true })
for (const name of ["SIGTERM", "SIGINT"] as const) process.once(name, () => process.exit(1))
const dataDir = mkdtempSync(join(tmpdir(), "receipts-"))
const settings = { dataDir, receipts: { batchMs: 1_000, anchorMs: undefined } }

say(`${cpus()[0]?.model.trim()}, ${cpus().length} cores, Node ${process.versions.node}`)
const writing = await startSide(postgres.url, "writing", settings)
const plain = await startSide(postgres.url, "plain", settings)
for (const name of ["payments_write_receipt_made", "payments_write_receipt_changed"])
  await sql`drop trigger ${sql.id(name)} on payments`.execute(plain.database.db)

const { ctx } = writing.rig.service
const round = async () => {
  await ctx.db.updateTable("receipt_rounds").set({ run_at: ctx.now() }).execute()
  const from = performance.now()
  await receiptRound(ctx, writing.rig.network)
  return performance.now() - from
}
await compare(
  [
    { name: "without receipts", side: plain, times: [] },
    { name: "with receipts", side: writing, times: [] },
  ],
  say,
  round,
)

await sql`insert into receipts (merchant_id, chain_id, type, resource_id, about, token, amount, body, settled_at)
  select r.merchant_id, r.chain_id, 'payment', r.resource_id, p.id, r.token, r.amount, jsonb_build_object('payer', p.payer, 'merchant', 'Shop',
      'transfers', jsonb_build_array(jsonb_build_object('deposit', t.deposit_id, 'txHash', t.tx_hash, 'blockHash', t.block_hash,
        'blockNumber', t.block_number, 'k', t.k, 'from', t.from_address, 'to', t.to_address, 'amount', t.value::text)),
      'what', jsonb_build_object('description', 'Order', 'metadata', jsonb_build_object('order', '1001'))), now()
  from (select * from receipts limit 1) r, (select * from payments limit 1) p, (select * from transfers limit 1) t,
    generate_series(1, ${RECEIPTS}::int)`.execute(ctx.db)
const ms = await round()
const { rows } = await sql<{ batches: number; bytes: number }>`
  select count(*)::int as batches, (sum(size) / sum(receipts))::int as bytes from receipt_batches where receipts = 1000`.execute(
  ctx.db,
)
say(
  `\n${RECEIPTS} receipts in ${rows[0]?.batches} batches: ${(ms / RECEIPTS).toFixed(3)} ms and ${rows[0]?.bytes} bytes each, ${Math.round((1_000 * RECEIPTS) / ms)} a second`,
)
for (const { rig } of [writing, plain]) await rig.stop()
await postgres.stop()
rmSync(dataDir, { recursive: true, force: true })
