// The alert rules and the dashboard of `ops`, by Prometheus' own evaluator over what `/metrics` really prints: each alert fires for
// what it is about, and none fires where all is well.
import { execFile } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { parse, stringify } from "yaml"
import { newId } from "../src/platform/ids.ts"
import * as metrics from "../src/platform/metrics.ts"
import { root } from "./e2e/program.ts"
import { findPromtool } from "./promtool.ts"
import { paperNetwork } from "./service.ts"

interface Rule {
  alert: string
  expr: string
  annotations: { summary: string; runbook: string }
}

const run = promisify(execFile)
const alertsFile = join(root, "ops/alerts.yaml")
const rules: Rule[] = parse(readFileSync(alertsFile, "utf8")).groups.flatMap((group: { rules: Rule[] }) => group.rules)
const dashboard = JSON.parse(readFileSync(join(root, "ops/grafana/sluice.json"), "utf8"))
const dashboardQueries: string[] = dashboard.panels.flatMap((chart: { targets?: { expr: string }[] }) =>
  (chart.targets ?? []).map(({ expr }) => expr.replaceAll("$__rate_interval", "5m")),
)
const { registry } = metrics
const wallet = { network: "base", wallet: "payout" }

/** What is measured where nothing is wrong. */
function allIsWell(): void {
  metrics.scanLag.set({ network: "base" }, 1)
  metrics.scanBehind.set({ network: "base" }, 0)
  metrics.scanStopped.set({ network: "base" }, 0)
  metrics.setupAlarms.set({ part: "base", check: "endpoints" }, 0)
  metrics.endpointAlarms.set({ network: "base", endpoint: "1", reason: "silent" }, 0)
  metrics.walletHalted.set(wallet, 0)
  metrics.standingAlarms.set({ ...wallet, reason: "low_gas" }, 0)
  metrics.oldestQueued.set(wallet, 20)
  metrics.heldPayouts.set({ ...wallet, reason: "sanctions" }, 0)
  metrics.webhookOldest.set(0.2)
  metrics.limitsAlone.set(0)
  metrics.showReplica()
  metrics.replicaUsed.set(1)
  metrics.rpcCalls.inc({ network: "base", endpoint: "1", method: "eth_call", result: "ok" }, 1_000)
  metrics.loopRounds.inc({ loop: "verify base", result: "done" }, 1_000)
  metrics.httpDuration.observe({ method: "GET", route: "/api/paywalls/:id", status: 200 }, 0.01)
  metrics.pools.set("requests", { totalCount: 4, idleCount: 3, waitingCount: 0 })
  const money = { token: paperNetwork.token.address, amount: 5_250_000n }
  metrics.countPayment(paperNetwork, newId("pw"), "granted", money)
}

/** What makes each alert fire; `up` and an absent metric are Prometheus' own, and the disk is of the node exporter. */
const faults: Record<string, () => void> = {
  SluiceProcessDown: () => {},
  SluiceNoWorker: () => metrics.scanLag.reset(),
  SluiceScanStopped: () => metrics.scanStopped.set({ network: "base" }, 1),
  SluiceScanBehind: () => metrics.scanBehind.set({ network: "base" }, 1),
  SluiceSetup: () => metrics.setupAlarms.set({ part: "base", check: "endpoints" }, 1),
  SluiceDatabaseUnwritable: () => metrics.setupAlarms.set({ part: "database", check: "writes" }, 1),
  SluiceDatabaseDisk: () => {},
  SluiceDatabaseConnections: () => metrics.setupAlarms.set({ part: "database", check: "connections" }, 1),
  SluiceBackupOld: () => metrics.setupAlarms.set({ part: "database", check: "backup" }, 1),
  SluiceCertificate: () => metrics.setupAlarms.set({ part: "address", check: "certificate" }, 1),
  SluiceEndpoint: () => metrics.endpointAlarms.set({ network: "base", endpoint: "1", reason: "silent" }, 1),
  SluiceRpcErrors: () =>
    metrics.rpcCalls.inc({ network: "base", endpoint: "1", method: "eth_call", result: "error" }, 500),
  SluiceWalletHalted: () => metrics.walletHalted.set(wallet, 1),
  SluicePayouts: () => metrics.standingAlarms.set({ ...wallet, reason: "low_gas" }, 1),
  SluicePayoutEvent: () => metrics.payoutAlarms.inc({ ...wallet, reason: "books" }, 10),
  SluicePayoutsWaiting: () => metrics.oldestQueued.set(wallet, 1_000),
  SluiceSanctions: () => metrics.heldPayouts.set({ ...wallet, reason: "sanctions" }, 1),
  SluicePayoutHeld: () => metrics.heldPayouts.set({ ...wallet, reason: "short" }, 1),
  SluiceSubscriptionsFail: () => metrics.subscriptionChanges.inc({ network: "base", change: "failed" }, 20),
  SluicePaymentsReversed: () =>
    metrics.countPayment(paperNetwork, newId("cs"), "reversed", { token: paperNetwork.token.address, amount: 1n }),
  SluiceWebhooksLate: () => metrics.webhookOldest.set(400),
  SluiceLoopFails: () => metrics.loopRounds.inc({ loop: "verify base", result: "failed" }, 60),
  SluiceErrors: () => metrics.httpDuration.observe({ method: "GET", route: "/api/paywalls/:id", status: 503 }, 0.01),
  SluiceDatabaseBusy: () => metrics.pools.set("requests", { totalCount: 10, idleCount: 0, waitingCount: 3 }),
  SluiceReplicaLeftOut: () => metrics.replicaUsed.set(0),
  SluiceLimitsAlone: () => metrics.limitsAlone.set(1),
}

/** Series as `/metrics` prints them, each with its value; a counter's name says that it grows. */
async function scrape(): Promise<Map<string, number>> {
  const lines = (await registry.metrics()).split("\n").filter(line => line && !line.startsWith("#"))
  return new Map(
    lines.map(line => {
      const at = line.lastIndexOf(" ")
      const [name = "", labels] = line.slice(0, at).split(/(?={)/)
      return [`${name}{job="sluice"${labels ? `,${labels.slice(1)}` : "}"}`, Number(line.slice(at + 1))] as const
    }),
  )
}

/** What the node exporter says of a disk with this many percent left. */
const diskOf = (left: number): [string, number][] =>
  Object.entries({ avail: left, size: 100 }).map(([name, value]) => [
    `node_filesystem_${name}_bytes{job="postgres-host",mountpoint="/"}`,
    value,
  ])

/** How long a fault lasts until its alert is due, in minutes. */
const minutesOf = (alert: string): number => (alert === "SluicePayoutHeld" ? 25 * 60 : 60)

/** Scrapes of each minute: what counts grows evenly, by its value in an hour, and the rest has its value all the time. */
const scrapes = (series: Map<string, number>, minutes: number) =>
  [...series].map(([name, value]) => {
    const isCounter = /(_total|_bucket|_count|_sum)\{/.test(name)
    return { series: name, values: isCounter ? `0+${value / 60}x${minutes}` : `${value}+0x${minutes}` }
  })

let promtool: string
let scratch: string
beforeAll(async () => {
  const found = await findPromtool()
  if ("missing" in found) throw new Error(found.missing)
  promtool = found.program
  scratch = mkdtempSync(join(tmpdir(), "sluice-rules-"))
})
afterAll(() => rmSync(scratch, { recursive: true, force: true }))
beforeEach(() => registry.resetMetrics())

it("an alert fires for each fault, and none where all is well", async () => {
  const series: { name: string; up: number; scraped: Map<string, number> }[] = []
  for (const name of ["", ...rules.map(({ alert }) => alert)]) {
    registry.resetMetrics()
    allIsWell()
    faults[name]?.()
    const scraped = await scrape()
    for (const [disk, value] of diskOf(name === "SluiceDatabaseDisk" ? 5 : 50)) scraped.set(disk, value)
    series.push({ name, up: name === "SluiceProcessDown" ? 0 : 1, scraped })
  }
  expect(Object.keys(faults)).toEqual(rules.map(({ alert }) => alert))
  const tests = series.map(({ name, up, scraped }) => ({
    name,
    interval: "1m",
    input_series: [
      { series: 'up{job="sluice"}', values: `${up}+0x${minutesOf(name)}` },
      ...scrapes(scraped, minutesOf(name)),
    ],
    // Prometheus evaluates the rules each minute; whatever fires at the end is listed with its alert's name.
    promql_expr_test: [
      {
        expr: 'count by (alertname) (ALERTS{alertstate="firing"})',
        eval_time: `${minutesOf(name)}m`,
        exp_samples: name === "" ? [] : [{ labels: `{alertname="${name}"}`, value: 1 }],
      },
    ],
  }))
  const file = join(scratch, "test.yaml")
  writeFileSync(file, stringify({ rule_files: [alertsFile], evaluation_interval: "1m", tests }))
  const { stdout } = await run(promtool, ["test", "rules", file]).catch(error => error)
  expect(stdout).toContain("SUCCESS")
})

it("the dashboard's queries and the rules are valid, and name what is exported", async () => {
  const recorded = dashboardQueries.map((expr, i) => ({ record: `query_${i}`, expr }))
  const file = join(scratch, "dashboard.yaml")
  writeFileSync(file, stringify({ groups: [{ name: "dashboard", rules: recorded }] }))
  const { stdout } = await run(promtool, ["check", "rules", alertsFile, file])
  expect(stdout).toContain(`${recorded.length} rules found`)
  const exported = new Set(registry.getMetricsAsArray().map(({ name }) => name))
  const named = [...dashboardQueries, ...rules.map(({ expr }) => expr)].flatMap(
    expr => expr.match(/\b(sluice|process|nodejs)_\w+/g) ?? [],
  )
  const unknown = named.filter(name => !exported.has(name) && !exported.has(name.replace(/_(bucket|count|sum)$/, "")))
  expect([named.length > 30, unknown]).toEqual([true, []])
})

it("each alert leads to what docs/operators/alarms.md says of it", () => {
  const text = readFileSync(join(root, "docs/operators/alarms.md"), "utf8")
  const anchors = [...text.matchAll(/^## (.*)$/gm)].map(([, title = ""]) => title.toLowerCase().replaceAll(" ", "-"))
  for (const { alert, annotations } of rules) {
    const [file, anchor = ""] = annotations.runbook.split("#")
    expect([alert, file, anchors.includes(anchor), text.includes(`\`${alert}\``)]).toEqual([
      alert,
      "docs/operators/alarms.md",
      true,
      true,
    ])
  }
})
