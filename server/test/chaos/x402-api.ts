/**
 * A process that serves agents and nothing else, and ends itself by SIGKILL at the given moment. The moments are in the database driver;
 * the product knows nothing of it. It prints its address, each claim that it makes or serves, so that nobody waits for the lease of a process
 * that is gone, and which settlements it begins to serve and has recorded as answered.
 */
import type pg from "pg"
import { openApp } from "../../src/app.ts"
import type { SellingContext } from "../../src/ledger/settlement/sellable.ts"
import { checkNetwork } from "../../src/platform/chain/check-network.ts"
import type { Address } from "../../src/platform/chain/hex.ts"
import type { NetworkSettings } from "../../src/platform/chain/networks.ts"
import { readSettings } from "../../src/platform/config/read-settings.ts"
import type { Settings } from "../../src/platform/config/settings.ts"
import { atOnce } from "../../src/platform/context.ts"
import { openPostgres } from "../../src/platform/db/open.ts"
import { openWakes } from "../../src/platform/jobs/wake.ts"
import { processLimits } from "../../src/platform/limits/limiter.ts"
import { openLog } from "../../src/platform/log.ts"
import { sales } from "../../src/sales.ts"
import { givenTo } from "./escrow-points.ts"
import { watchQueries } from "./watch-queries.ts"
import type { ApiPoint } from "./x402.ts"

export interface ApiOptions {
  databaseUrl: string
  network: NetworkSettings
  relayWallet: Address
  killAt?: ApiPoint | undefined
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/
const claiming = /^\s*\/\* named: write_claims \*\//
// One settlement by a token, or all that are asked for at the same time.
const serving = /^update "settlements" set "served_at" = \S+, "answered_at"|^\s*\/\* named: take_serving \*\//
const answering = /^\s*\/\* named: note_answered \*\//

/** Watches all statements about settlements. */
function watchSettlements(killAt: ApiPoint | undefined): void {
  const moment = (here: ApiPoint) => here === killAt && process.kill(process.pid, "SIGKILL")
  const claims = new WeakSet<pg.Client>()
  watchQueries(async (client, { text, values: given, commits }, send) => {
    const values = [...given, ...givenTo(given).flatMap(row => Object.values(row))].map(String)
    const claim = values.filter(value => UUID.test(value)).join(" ")
    const settlements = values.filter(value => value.startsWith("set_"))
    const print = (word: string) => process.stdout.write(settlements.map(id => `${word} ${id}\n`).join(""))
    if (claiming.test(text) || serving.test(text)) process.stdout.write(`claims ${claim}\n`)
    if (serving.test(text)) print("serves")
    if (claiming.test(text)) {
      moment("before claim")
      claims.add(client)
    }
    if (serving.test(text)) moment("before serving")
    if (answering.test(text)) moment("before answered")
    const isClaim = commits && claims.delete(client)
    if (isClaim) moment("before claim's commit")
    const after = isClaim ? "after claim's commit" : serving.test(text) ? "after serving" : undefined
    const result = await send()
    if (after) moment(after)
    else if (answering.test(text)) print("answered")
    return result
  })
}

async function main({ databaseUrl, network, relayWallet, killAt }: ApiOptions): Promise<void> {
  const defaults = readSettings({ LOG_LEVEL: "fatal" })
  const settings: Settings = {
    ...defaults,
    relayWallet,
    secretKeys: [new Uint8Array(32).fill(7)],
    limits: Object.fromEntries(Object.keys(defaults.limits).map(bucket => [bucket, 0])) as Settings["limits"],
  }
  const database = await openPostgres(databaseUrl, () => {})
  const ctx: SellingContext = {
    db: database.db,
    settings,
    log: openLog("fatal"),
    now: () => new Date(),
    chain: { networks: [await checkNetwork(network)] },
    limits: processLimits(),
    sells: sales,
    onCommit: atOnce,
    wakes: await openWakes(database),
    signal: new AbortController().signal,
  }
  const app = openApp(ctx, { verify: async () => undefined })
  const url = await app.listen({ host: "127.0.0.1", port: 0 })
  watchSettlements(killAt)
  process.stdout.write(`${url}\n`)
}

if (process.argv[2]) await main(JSON.parse(process.argv[2]))
