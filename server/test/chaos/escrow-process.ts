/**
 * An API process, or a worker of escrows: it serves, or signs, scans and folds, and nothing else. It ends itself by SIGKILL at the given
 * moment. Its clock is the parent's, which moves it by a message.
 */
import { setTimeout as sleep } from "node:timers/promises"
import type { Hex } from "viem"
import { relayLane } from "../../src/ledger/relays/relay-lane.ts"
import type { SellingContext } from "../../src/ledger/settlement/sellable.ts"
import { verifyRound } from "../../src/ledger/settlement/verify-payments.ts"
import { payoutRound } from "../../src/ledger/txmanager/run-round.ts"
import { checkNetwork } from "../../src/platform/chain/check-network.ts"
import type { NetworkSettings } from "../../src/platform/chain/networks.ts"
import { localSigner } from "../../src/platform/chain/signer.ts"
import { readSettings } from "../../src/platform/config/read-settings.ts"
import type { Settings } from "../../src/platform/config/settings.ts"
import { atOnce } from "../../src/platform/context.ts"
import { openPostgres } from "../../src/platform/db/open.ts"
import { openWakes } from "../../src/platform/jobs/wake.ts"
import { processLimits } from "../../src/platform/limits/limiter.ts"
import { openLog } from "../../src/platform/log.ts"
import { advanceEscrows } from "../../src/products/escrow/advance-escrows.ts"
import { sales } from "../../src/sales.ts"
import { watchStatements } from "./escrow-points.ts"

export interface ProcessOptions {
  role: "api" | "worker"
  databaseUrl: string
  network: NetworkSettings
  /** Of the relay wallet. */
  key: Hex
  /** Whose tokens an API process takes: each is the subject itself. */
  issuer: string
  /** How far the clock is ahead, in milliseconds. */
  aheadMs: number
  /** Ends itself at this moment, when it comes for the `nth` time. */
  killAt?: { point: string; nth: number } | undefined
}

const PACE = { resendMs: 400, replaceMs: 2_000 }
const REST_MS = 100
const SCAN_MS = 200

async function main(options: ProcessOptions): Promise<void> {
  const { role, databaseUrl, key, issuer, killAt } = options
  const stop = new AbortController()
  let aheadMs = options.aheadMs
  process.on("message", ms => {
    aheadMs = Number(ms)
  })
  // Whoever started it is gone.
  process.on("disconnect", () => process.exit(1))
  const signer = localSigner(key)
  const defaults = readSettings({ LOG_LEVEL: "error", PAYOUT_MAX_FEE: "500" })
  const settings: Settings = {
    ...defaults,
    relayWallet: signer.address,
    secretKeys: [new Uint8Array(32).fill(7)],
    limits: Object.fromEntries(Object.keys(defaults.limits).map(bucket => [bucket, 0])) as Settings["limits"],
    gasBudget: 0n,
    gasBudgetTotal: 0n,
    relayContractBudget: 0n,
    verifyIntervalMs: SCAN_MS,
  }
  const database = await openPostgres(databaseUrl, () => {})
  const network = await retried(() => checkNetwork(options.network))
  const ctx: SellingContext = {
    db: database.db,
    settings,
    log: openLog("error"),
    now: () => new Date(Date.now() + aheadMs),
    chain: { networks: [network] },
    limits: processLimits(),
    sells: sales,
    onCommit: atOnce,
    wakes: await openWakes(database),
    signal: stop.signal,
  }
  let left = killAt?.nth ?? 0
  watchStatements(role, point => {
    if (point === killAt?.point && --left === 0) process.kill(process.pid, "SIGKILL")
  })
  if (role === "api") {
    // Half of the time in which a process starts is this.
    const { openApp } = await import("../../src/app.ts")
    const app = openApp(ctx, { verify: async token => ({ iss: issuer, sub: token }) })
    process.stdout.write(`${await app.listen({ host: "127.0.0.1", port: 0 })}\n`)
    return
  }
  process.stdout.write("up\n")
  const again = async (round: () => Promise<unknown>) => {
    for (;;) {
      await round().catch(error => ctx.log.error({ err: error }, "a round failed"))
      await sleep(REST_MS)
    }
  }
  await Promise.all([
    again(() => payoutRound(ctx, relayLane(network, signer), PACE)),
    again(() => verifyRound(ctx, network)),
    again(() => advanceEscrows(ctx)),
  ])
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
