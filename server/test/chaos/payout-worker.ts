/**
 * A process that pays out and nothing else, and ends itself by SIGKILL at the given moment. The product knows
 * nothing of it: the moments are in the signer and in the database driver that this program hands to the engine. A mutant
 * does beside the rounds what a careless engine would do.
 */
import { setTimeout as sleep } from "node:timers/promises"
import { sql } from "kysely"
import type { Hex } from "viem"
import { payoutLane } from "../../src/ledger/payouts/payout-lane.ts"
import { checkBooks } from "../../src/ledger/reconciliation/check-books.ts"
import { relayLane } from "../../src/ledger/relays/relay-lane.ts"
import type { SellingContext } from "../../src/ledger/settlement/sellable.ts"
import { payoutRound } from "../../src/ledger/txmanager/run-round.ts"
import { checkNetwork } from "../../src/platform/chain/check-network.ts"
import type { Address } from "../../src/platform/chain/hex.ts"
import type { Network, NetworkSettings } from "../../src/platform/chain/networks.ts"
import { localSigner, type Signer } from "../../src/platform/chain/signer.ts"
import { remoteSigner } from "../../src/platform/chain/signers/remote-signer.ts"
import { readSettings } from "../../src/platform/config/read-settings.ts"
import { atOnce, type Context } from "../../src/platform/context.ts"
import { openPostgres } from "../../src/platform/db/open.ts"
import type { LaneName } from "../../src/platform/db/payout-kinds.ts"
import { openWakes } from "../../src/platform/jobs/wake.ts"
import { processLimits } from "../../src/platform/limits/limiter.ts"
import { openLog } from "../../src/platform/log.ts"
import { foldDeltas } from "../../src/products/insight/fold-deltas.ts"
import { sales } from "../../src/sales.ts"
import { givenTo } from "./escrow-points.ts"
import { watchQueries } from "./watch-queries.ts"

/** Moments in the worker itself; the proxy knows those of sending. */
export type KillPoint = "after signing" | "before commit" | "after commit" | "before final"
export type Mutant = "requeue on unknown error" | "nonce used, no receipt: requeue"

export interface WorkerOptions {
  databaseUrl: string
  network: NetworkSettings
  key: Hex
  /** A Web3Signer that has the key; without it the worker signs itself. */
  signer?: string | undefined
  /** Which lane's wallet that is; the payouts' without it. */
  lane?: LaneName | undefined
  /** Ends itself at this moment, when it comes for the `nth` time. */
  killAt?: { point: KillPoint; nth: number } | undefined
  mutant?: Mutant | undefined
}

const PACE = { resendMs: 400, replaceMs: 500 }
const REST_MS = 50
/** For a signer that hangs. */
const SIGNER_MS = 1_000
const MUTATION_MS = 20

let left = Number.POSITIVE_INFINITY
let point: KillPoint | undefined
function moment(here: KillPoint): void {
  if (here === point && --left === 0) process.kill(process.pid, "SIGKILL")
}

/** The signer, with the moment after signing. */
function watched(signer: Signer): Signer {
  return {
    ...signer,
    sign: async (bytes, signal) => {
      const signature = await signer.sign(bytes, signal)
      moment("after signing")
      return signature
    },
  }
}

/** Whether signed bytes are written and not yet committed. */
let storing = false

/** The driver's queries, with the moments around the storing of signed bytes and before the end of a payout is written. */
function watchStoring(): void {
  watchQueries(async (_, { text, values, commits }, send) => {
    const isConfirming = text.includes("update payouts i set state = s.state")
    if (isConfirming && givenTo(values).some(({ state }) => state === "final")) moment("before final")
    if (/update transaction_attempts a\s+set raw/.test(text)) storing = true
    if (!commits || !storing) return await send()
    moment("before commit")
    storing = false
    const result = await send()
    moment("after commit")
    return result
  })
}

async function main(options: WorkerOptions): Promise<void> {
  const stop = new AbortController()
  process.on("SIGTERM", () => stop.abort())
  const database = await openPostgres(options.databaseUrl, () => {})
  const network = await retried(() => checkNetwork(options.network))
  const settings = { ...readSettings({ LOG_LEVEL: "fatal", PAYOUT_MAX_FEE: "500" }) }
  const ctx: SellingContext = {
    db: database.db,
    settings,
    log: openLog("fatal"),
    now: () => new Date(),
    chain: { networks: [network] },
    limits: processLimits(),
    sells: sales,
    onCommit: atOnce,
    wakes: await openWakes(database),
    signal: stop.signal,
  }
  watchStoring()
  const local = localSigner(options.key)
  const key = { kind: "web3signer", name: options.signer ?? "" } as const
  const signer = watched(options.signer ? remoteSigner(key, local.address, { timeoutMs: SIGNER_MS }) : local)
  point = options.killAt?.point
  left = options.killAt?.nth ?? left
  process.stdout.write("up\n")
  const careless = options.mutant ? keepMutating(ctx, options) : undefined
  // A mutant must be caught by what it does, and not be halted before.
  const comparing = options.lane === "relay" || options.mutant ? undefined : keepComparing(ctx, network, signer.address)
  const folding = keepFolding(ctx)
  const lane = options.lane === "relay" ? relayLane(network, signer) : payoutLane(network, signer)
  while (!stop.signal.aborted) {
    await payoutRound(ctx, lane, PACE).catch(() => {})
    await sleep(REST_MS)
  }
  await comparing
  await folding
  await careless
  process.exit(0)
}

/** The comparison of the books beside the rounds, as the worker runs it: nothing of the chaos may halt the wallet. */
async function keepComparing(ctx: SellingContext, network: Network, wallet: Address): Promise<void> {
  while (!ctx.signal.aborted) {
    await checkBooks(ctx, network, wallet).catch(() => {})
    await sleep(REST_MS)
  }
}

/** The figures beside the rounds: each delta counts once, whoever folds it and whenever a worker is killed. */
async function keepFolding(ctx: SellingContext): Promise<void> {
  while (!ctx.signal.aborted) {
    await foldDeltas(ctx).catch(() => {})
    await sleep(REST_MS)
  }
}

/** Beside the rounds: one goes on as long as blocks come, and by its end what was sent may be mined and known. */
async function keepMutating(ctx: Context, options: WorkerOptions): Promise<void> {
  while (!ctx.signal.aborted) {
    await mutate(ctx, options).catch(() => {})
    await sleep(MUTATION_MS)
  }
}

/** A careless engine: it takes a missing receipt for proof that nothing was paid. The other one is a trigger (`chaos.ts`). */
async function mutate(ctx: Context, { mutant, network, key }: WorkerOptions): Promise<void> {
  if (mutant !== "nonce used, no receipt: requeue") return
  const url = network.rpcUrls[0] ?? ""
  const ask = async (method: string, params: unknown[]): Promise<unknown> => {
    const body = JSON.stringify([{ jsonrpc: "2.0", id: 1, method, params }])
    const response = await fetch(url, { method: "POST", headers: { "content-type": "application/json" }, body })
    const [reply] = (await response.json()) as { result?: unknown }[]
    return reply?.result
  }
  const count = await ask("eth_getTransactionCount", [localSigner(key).address, "latest"])
  const used = await sql<{ id: string; hash: string }>`select i.id, a.hash from payouts i join transaction_attempts a
    on a.payout_id = i.id and a.nonce = i.nonce where i.state in ('assigned', 'mined') and i.nonce < ${BigInt(String(count))}`.execute(
    ctx.db,
  )
  for (const { id, hash } of used.rows)
    if ((await ask("eth_getTransactionReceipt", [hash])) === null)
      await sql`update payouts set state = 'queued', nonce = null, wallet = null, tx_hash = null, block_number = null,
        block_hash = null, succeeded = null, gas_cost = null, gas_cost_at = null where id = ${id} and state in ('assigned', 'mined')`.execute(
        ctx.db,
      )
}

async function retried<T>(work: () => Promise<T>): Promise<T> {
  for (;;)
    try {
      return await work()
    } catch {
      await sleep(REST_MS)
    }
}

if (process.argv[2]) await main(JSON.parse(process.argv[2]))
