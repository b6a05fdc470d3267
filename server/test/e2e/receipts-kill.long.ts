// The real service, killed at each step from the settlement of a payment to its receipt on the chain: every payment has one
// receipt, in a chain without a gap, and the chain's logs have each key and each root once.
import { sql } from "kysely"
import { afterAll, beforeAll, expect, it } from "vitest"
import { readHolding, verifyHolding } from "../../../verify/src/file.ts"
import { openNode } from "../../../verify/src/rpc.ts"
import { anchorDeployment } from "../../src/platform/chain/receipt-anchor.ts"
import { type OpenDatabase, openPostgres } from "../../src/platform/db/open.ts"
import { ended, hold, waiting } from "../killed.ts"
import { startPostgres, type TestPostgres } from "../postgres.ts"
import { newSandbox, type Run, type Sandbox, until } from "./program.ts"

let postgres: TestPostgres
let sandbox: Sandbox
let database: OpenDatabase
beforeAll(async () => {
  postgres = await startPostgres({ durable: true })
  sandbox = await newSandbox({
    DATABASE_URL: postgres.url,
    RECEIPT_BATCH: "1s",
    RECEIPT_ANCHOR: "1s",
    LIMIT_CONSOLE: "0",
    LIMIT_PUBLIC: "0",
  })
})
afterAll(async () => {
  await sandbox?.remove()
  await database?.close()
  await postgres?.stop()
})

/** Where the service is stopped, in the order in which a receipt comes there. */
const steps = {
  "the receipt is written": "before insert on receipts for each row",
  "its batch is written": "before insert on receipt_batches for each row",
  "it gets its place": "before update of seq on receipts for each row",
  "its file is on the disk":
    "before update of stored_at on receipt_batches for each row when (new.stored_at is not null)",
  "the call for its root is written": "before insert on payouts for each row when (new.kind = 'anchor')",
  "the batch names the call": "before update of anchor_id on receipt_batches for each row",
  "the call gets its nonce":
    "before update on payouts for each row when (new.kind = 'anchor' and new.state = 'assigned')",
  "the signed bytes are stored": "before update of raw on transaction_attempts for each row",
  "the call is mined": "before update on payouts for each row when (new.kind = 'anchor' and new.state = 'mined')",
  "the call is final": "before update on payouts for each row when (new.kind = 'anchor' and new.state = 'final')",
}

const auth = () => ({ authorization: `Bearer ${sandbox.file().merchants[0].accessToken}` })

it("SIGKILL at each step loses no receipt, makes none twice and pays for no root twice", async () => {
  let run: Run = await sandbox.start()
  database = await openPostgres(postgres.url, () => {})
  const { db } = database
  const { body: paywall } = await sandbox.call("/api/console/paywalls", { name: "Film", price: "0.50" }, auth())
  let paid = 0
  const pay = async () => {
    const { payTo } = (await sandbox.call(`/api/paywalls/${paywall.id}`)).body
    const buyer = paid % 3
    const { txHash } = (await sandbox.call("/sandbox/pay", { to: payTo, amount: "0.50", buyer })).body
    const { address } = sandbox.file().buyers[buyer]
    expect((await sandbox.call(`/api/paywalls/${paywall.id}/pay`, { txHash, address })).status).toBe(200)
    paid++
  }
  const anchored = async () => {
    const { rows } = await sql<{
      n: number
      open: number
    }>`select (select count(*)::int from receipts where root is not null) as n,
      (select count(*)::int from receipt_batches b left join payouts i on i.id = b.anchor_id where i.state is distinct from 'final'
        or b.stored_at is null) as open`.execute(db)
    // The sandbox makes few blocks while no payment waits for them, and a call is final two blocks later.
    await sandbox.call("/sandbox/mine", { blocks: 3 })
    return rows[0]?.n === paid && rows[0]?.open === 0
  }
  await pay()
  await until("the first receipt is on the chain", anchored)
  await sql`create function stop_here() returns trigger language plpgsql as
    $$ begin perform pg_advisory_xact_lock(77); return new; end $$`.execute(db)
  for (const [step, event] of Object.entries(steps)) {
    const [table] = / on (\w+)/.exec(event)?.slice(1) ?? []
    await sql.raw(`create trigger stop_here ${event} execute function stop_here()`).execute(db)
    const release = await hold(postgres.url, "select pg_advisory_xact_lock(77)")
    await pay()
    const pid = await waiting(db)
    await run.kill("SIGKILL")
    await release()
    await ended(db, pid)
    await sql.raw(`drop trigger stop_here on ${table}`).execute(db)
    run = await sandbox.start()
    await until(`all receipts are on the chain after a kill as ${step}`, anchored)
  }

  const { rows } = await sql<{ seqs: number[]; abouts: number }>`
    select array_agg(seq order by seq) as seqs, count(distinct about)::int as abouts from receipts`.execute(db)
  expect(rows).toEqual([{ seqs: Array.from({ length: paid }, (_, i) => i + 1), abouts: paid }])
  const node = openNode(sandbox.file().rpcUrl)
  const newest = Number((await node.block("latest"))?.number)
  const logs = await node.logs(anchorDeployment.address, [], 0, newest)
  const { rows: expected } = await sql<{ n: number }>`
    select (select count(*) from receipt_batches)::int + (select count(*) from receipt_keys)::int as n`.execute(db)
  expect(logs.length).toBe(expected[0]?.n)
  expect(new Set(logs.map(({ topics }) => topics[2])).size).toBe(logs.length)
  const file = await fetch(`${sandbox.url}/api/console/receipts.ndjson`, { headers: auth() })
  const nodes = new Map([[await node.chainId(), node]])
  const { lines } = await verifyHolding(readHolding(await file.text()), { nodes })
  expect(lines.map(({ isSo }) => isSo)).toEqual([true, true, true, true, true, true, true])
}, 1_200_000)
