/**
 * How much work a replica takes off the primary: lists of checkouts and the state of single ones, as consoles and
 * payers ask for them, while a merchant creates checkouts; first without a replica, then with one. `script/bench
 * replica [--checkouts 2000] [--requests 4000]`.
 *
 * CPU is that of the two Postgres servers with all their connections. The wait is how long reads wait for the replica,
 * at p50, p95 and p99.
 */
import { readdirSync, readFileSync } from "node:fs"
import { parseArgs } from "node:util"
import { openPostgres } from "../server/src/platform/db/open.ts"
import { openReplica } from "../server/src/platform/db/open-replica.ts"
import { openLog } from "../server/src/platform/log.ts"
import { registry } from "../server/src/platform/metrics.ts"
import { until } from "../server/test/e2e/program.ts"
import { startPostgres } from "../server/test/postgres.ts"
import { startService } from "../server/test/service.ts"

const { values } = parseArgs({
  options: { checkouts: { type: "string", default: "2000" }, requests: { type: "string", default: "4000" } },
})
const CHECKOUTS = Number(values.checkouts)
const REQUESTS = Number(values.requests)
const CONCURRENCY = 16
const TICKS_PER_SECOND = 100
const onError = () => {}

/** CPU seconds of a server and its connections, including connections that have ended; Linux only. */
function cpuOf(pid: number): number {
  const fields = (id: string) => {
    try {
      return readFileSync(`/proc/${id}/stat`, "utf8").split(") ")[1]?.split(" ") ?? []
    } catch {
      return []
    }
  }
  const own = fields(`${pid}`)
  const children = readdirSync("/proc").filter(id => /^\d+$/.test(id) && fields(id)[1] === `${pid}`)
  const all = [...own.slice(11, 15), ...children.flatMap(id => fields(id).slice(11, 13))]
  return all.reduce((sum, ticks) => sum + Number(ticks), 0) / TICKS_PER_SECOND
}

const primary = await startPostgres({ fsync: true })
const standby = await startPostgres({ fsync: true, replicaOf: primary })
const database = await openPostgres(primary.url, onError)
const service = await startService({ database })
await service.merchant("shop")
const { body } = await service.call("POST", "/api/console/api-keys", { name: "server" }, { as: "shop" })
const headers = { "x-api-key": body.key as string }
const ids: string[] = []
const make = async () => {
  const { body } = await service.call("POST", "/api/checkouts", { amount: "5" }, { headers })
  ids.push(body.id)
}
for (let i = 0; i < CHECKOUTS; i += CONCURRENCY) await Promise.all(Array.from({ length: CONCURRENCY }, make))

const at = (of: number[], share: number) =>
  [...of].sort((a, b) => a - b)[Math.floor((of.length - 1) * share)] ?? Number.NaN
const shares = (of: number[]) => [0.5, 0.95, 0.99].map(share => `${at(of, share).toFixed(1)}`).join(" / ")

async function measure(name: string): Promise<void> {
  const before = [cpuOf(primary.pid()), cpuOf(standby.pid())] as const
  const times: number[] = []
  const waits: number[] = []
  const { replica } = service.ctx
  if (replica) {
    const { reading } = replica
    replica.reading = async () => {
      const from = performance.now()
      const db = await reading()
      waits.push(performance.now() - from)
      return db
    }
  }
  const from = performance.now()
  let next = 0
  const ask = async () => {
    while (next < REQUESTS) {
      const i = next++
      // One write for ten reads.
      if (i % 10 === 0) {
        await make()
        continue
      }
      const sent = performance.now()
      const path = i % 2 ? `/api/checkouts?limit=50&offset=${i % 500}` : `/api/pay/status/${ids[i % ids.length]}`
      await service.call("GET", path, undefined, { headers })
      times.push(performance.now() - sent)
    }
  }
  await Promise.all(Array.from({ length: CONCURRENCY }, ask))
  const seconds = (performance.now() - from) / 1_000
  const p = cpuOf(primary.pid()) - before[0]
  const s = cpuOf(standby.pid()) - before[1]
  const perThousand = (cpu: number) => ((cpu / REQUESTS) * 1_000).toFixed(2)
  process.stdout.write(
    `${name.padEnd(16)} ${(REQUESTS / seconds).toFixed(0).padStart(5)} requests/s; reads ${shares(times)} ms; CPU s for a thousand requests: primary ${perThousand(p)}, replica ${perThousand(s)}\n`,
  )
  if (waits.length > 0) process.stdout.write(`${"".padEnd(16)} wait for the replica ${shares(waits)} ms\n`)
}

await measure("warm-up")
await measure("without")
const replica = openReplica({ url: standby.url, maxLagMs: 250 }, database.db, openLog("silent"))
await until("the replica is used", () => replica.trouble() === undefined)
service.ctx.replica = replica
await measure("with a replica")
const counted = await registry.getSingleMetric("sluice_replica_reads_total")?.get()
for (const { labels, value } of counted?.values ?? []) process.stdout.write(`${JSON.stringify(labels)} ${value}\n`)
await service.stop()
await standby.stop()
await primary.stop()
process.exit(0)
