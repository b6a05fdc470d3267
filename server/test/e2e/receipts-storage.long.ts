// The real service with RECEIPT_STORE=0g, killed at each step from the call that pays for a file to the note that 0G has it, and then at
// moments that a seed chooses while a node fails: each payment has one receipt, each file is paid for once by 0G's own logs, and what
// 0G's nodes have verifies when the service and its database are gone. SEED repeats a run.
import { rmSync } from "node:fs"
import { setTimeout as sleep } from "node:timers/promises"
import { sql } from "kysely"
import { afterAll, beforeAll, expect, it } from "vitest"
import { readLinked, verifyHolding } from "../../../verify/src/file.ts"
import { openNode } from "../../../verify/src/rpc.ts"
import { fetchStored } from "../../../verify/src/storage.ts"
import { type OpenDatabase, openPostgres } from "../../src/platform/db/open.ts"
import { type Anvil, startAnvil } from "../anvil.ts"
import { randomOf } from "../chaos/chaos.ts"
import { ended, hold, waiting } from "../killed.ts"
import { startPostgres, type TestPostgres } from "../postgres.ts"
import { type NodeFault, startZerog } from "../zerog.ts"
import { newSandbox, type Run, type Sandbox, until } from "./program.ts"

const CHAIN_ID = 16_661
/** Of anvil's second account, which has money there. */
const STORAGE_KEY = "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d"
const seed = Number(process.env.SEED ?? 20_261_129)
const RANDOM_KILLS = 8
const faults: NodeFault[] = [undefined, "down", "stale", "half", "unfinalized", "other bytes"]

let postgres: TestPostgres
let zerogChain: Anvil
let zerog: Awaited<ReturnType<typeof startZerog>>
let sandbox: Sandbox
let database: OpenDatabase
let run: Run
let paid = 0
beforeAll(async () => {
  postgres = await startPostgres({ durable: true })
  zerogChain = await startAnvil({ chainId: CHAIN_ID })
  zerog = await startZerog(zerogChain)
  sandbox = await newSandbox({
    DATABASE_URL: postgres.url,
    RECEIPT_BATCH: "1s",
    RECEIPT_ANCHOR: "1s",
    RECEIPT_STORE: "0g",
    RECEIPT_WAIT: "1s",
    ZEROG_RPC: zerogChain.rpcUrl,
    ZEROG_CHAIN_ID: `${CHAIN_ID}`,
    ZEROG_FLOW: zerog.flow,
    ZEROG_INDEXER: zerog.indexer,
    ZEROG_PRIVATE_KEY: STORAGE_KEY,
    LIMIT_CONSOLE: "0",
    LIMIT_PUBLIC: "0",
  })
  run = await sandbox.start()
  database = await openPostgres(postgres.url, () => {})
  await sql`create function stop_here() returns trigger language plpgsql as
    $$ begin perform pg_advisory_xact_lock(77); return new; end $$`.execute(database.db)
})
afterAll(async () => {
  await sandbox?.remove()
  await database?.close()
  zerog?.stop()
  await zerogChain?.stop()
  await postgres?.stop()
})

/** Where the service is stopped, in the order in which a file comes there. */
const steps = {
  "its call is written": "before insert on payouts for each row when (new.kind = 'store')",
  "the file names its call": "before update of storage_id on receipt_batches for each row",
  "the call gets its nonce":
    "before update on payouts for each row when (new.kind = 'store' and new.state = 'assigned')",
  "its attempt is written": `before insert on transaction_attempts for each row when (new.chain_id = ${CHAIN_ID})`,
  "the signed bytes are stored": `before update of raw on transaction_attempts for each row when (new.chain_id = ${CHAIN_ID})`,
  "what was sent is noted": `before update of sends on transaction_attempts for each row when (new.chain_id = ${CHAIN_ID})`,
  "the call is mined": "before update on payouts for each row when (new.kind = 'store' and new.state = 'mined')",
  "the call is final": "before update on payouts for each row when (new.kind = 'store' and new.state = 'final')",
  "0G has the file, and that is noted":
    "before update of uploaded_at on receipt_batches for each row when (new.uploaded_at is not null)",
}

const auth = () => ({ authorization: `Bearer ${sandbox.file().merchants[0].accessToken}` })
let paywall: { id: string } | undefined
const pay = async () => {
  paywall ??= (await sandbox.call("/api/console/paywalls", { name: "Film", price: "0.50" }, auth())).body as {
    id: string
  }
  const { payTo } = (await sandbox.call(`/api/paywalls/${paywall.id}`)).body
  const buyer = paid % 3
  const { txHash } = (await sandbox.call("/sandbox/pay", { to: payTo, amount: "0.50", buyer })).body
  const { address } = sandbox.file().buyers[buyer]
  expect((await sandbox.call(`/api/paywalls/${paywall.id}/pay`, { txHash, address })).status).toBe(200)
  paid++
}

/** Whether each payment has its receipt, in a file that 0G has and whose root is on the chain of the payments. */
const stored = async () => {
  const { rows } = await sql<{ n: number; open: number }>`
    select (select count(*)::int from receipts where root is not null) as n,
      (select count(*)::int from receipt_batches b left join payouts i on i.id = b.anchor_id
        where i.state is distinct from 'final' or b.uploaded_at is null) as open`.execute(database.db)
  // Few blocks come by themselves, and a call is final some blocks later.
  await sandbox.call("/sandbox/mine", { blocks: 3 })
  await zerogChain.client.mine({ blocks: 3 })
  return rows[0]?.n === paid && rows[0]?.open === 0
}

const expectPaidOnce = async () => {
  const { rows } = await sql<{ seqs: number[]; abouts: number }>`
    select array_agg(seq order by seq) as seqs, count(distinct about)::int as abouts from receipts`.execute(database.db)
  expect(rows).toEqual([{ seqs: Array.from({ length: paid }, (_, i) => i + 1), abouts: paid }])
  const batches = await database.db.selectFrom("receipt_batches").select("root").orderBy("root").execute()
  // By 0G's own logs.
  expect((await zerog.files()).map(({ root }) => root).toSorted()).toEqual(batches.map(({ root }) => root))
}

it("SIGKILL at each step loses no receipt and pays for no file twice", async () => {
  await pay()
  await until("the first file is stored", stored)
  for (const [step, event] of Object.entries(steps)) {
    const [table] = / on (\w+)/.exec(event)?.slice(1) ?? []
    await sql.raw(`create trigger stop_here ${event} execute function stop_here()`).execute(database.db)
    const release = await hold(postgres.url, "select pg_advisory_xact_lock(77)")
    await pay()
    const mining = mineMeanwhile()
    const pid = await waiting(database.db)
    await mining()
    await run.kill("SIGKILL")
    await release()
    await ended(database.db, pid)
    await sql.raw(`drop trigger stop_here on ${table}`).execute(database.db)
    run = await sandbox.start()
    await until(`all files are stored after a kill as ${step}`, stored)
  }
  await expectPaidOnce()
}, 1_200_000)

/** Blocks keep coming on both chains, so that the later steps are reached; the returned function ends that. */
function mineMeanwhile(): () => Promise<void> {
  let isOver = false
  const mining = (async () => {
    while (!isOver) {
      await sandbox.call("/sandbox/mine", { blocks: 1 }).catch(() => undefined)
      await zerogChain.client.mine({ blocks: 1 })
      await sleep(100)
    }
  })()
  return async () => {
    isOver = true
    await mining
  }
}

it(`SIGKILL at ${RANDOM_KILLS} moments of the seed ${seed}, while a node fails, pays for no file twice`, async () => {
  const random = randomOf(seed)
  const end = mineMeanwhile()
  for (let n = 0; n < RANDOM_KILLS; n++) {
    const [node] = zerog.nodes.slice(Math.floor(random() * zerog.nodes.length))
    if (node) node.fault = faults[Math.floor(random() * faults.length)]
    await pay()
    if (random() < 0.5) await pay()
    await sleep(random() * 4_000)
    await run.kill("SIGKILL")
    if (random() < 0.5 && node) node.fault = undefined
    run = await sandbox.start()
    if (node) node.fault = undefined
  }
  await until("all files are stored", stored)
  await end()
  await expectPaidOnce()
}, 1_200_000)

it("verifies from 0G's nodes and the chain when the service, its database and its files are gone", async () => {
  const line = await fetch(`${sandbox.url}/api/console/receipts.ndjson`, { headers: auth() })
  const [receipt] = (await line.text()).split("\n").map(text => JSON.parse(text || "{}"))
  const { rpcUrl } = sandbox.file()
  const node = openNode(rpcUrl)
  const nodes = new Map([[await node.chainId(), node]])
  const { key, root, offset, jwe } = receipt
  // The chain goes on without the service in reality; here it is a part of it, so only the rest is removed.
  await sql`drop schema public cascade`.execute(database.db)
  rmSync(`${sandbox.dir}/receipts`, { recursive: true })
  const bytes = await fetchStored(zerog.indexer, root)
  const { lines } = await verifyHolding(readLinked(bytes, { key, root, offset, length: jwe.length }), { nodes })
  expect(lines.map(({ isSo }) => isSo)).toEqual([true, true, true, true, true, true, undefined])
}, 120_000)
