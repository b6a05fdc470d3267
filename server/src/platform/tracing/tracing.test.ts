/** What tracing does with a collector that works, hangs, fails or floods, and with callers who want to use it. */
import { execFileSync } from "node:child_process"
import { readFileSync } from "node:fs"
import { parseEnv } from "node:util"
import { sql } from "kysely"
import { afterEach, beforeEach, describe, expect, it } from "vitest"
import { type Collector, startCollector } from "../../../test/collector.ts"
import { root, until } from "../../../test/e2e/program.ts"
import { noLimits, startService } from "../../../test/service.ts"
import { readSettings } from "../config/read-settings.ts"
import { inTransaction } from "../context.ts"
import { openLog } from "../log.ts"
import { registry, spanResults } from "../metrics.ts"
import { openTracing } from "./open-tracing.ts"
import { parseTraceparent, traced } from "./trace.ts"
import type { Tracing } from "./tracing.ts"

const stops: (() => unknown)[] = []
// Reset before each test: a file that ran before in this process has counted too.
beforeEach(() => spanResults.reset())
afterEach(async () => {
  for (const stop of stops.splice(0)) await stop()
})

async function collectorThat(...how: Parameters<typeof startCollector>): Promise<Collector> {
  const collector = await startCollector(...how)
  stops.push(collector.stop)
  return collector
}

const step = (tracing: Tracing, times = 1) => {
  for (let i = 0; i < times; i++) tracing.start("step").end()
}

async function results(): Promise<Record<string, number>> {
  const { values } = await spanResults.get()
  return Object.fromEntries(values.map(({ labels, value }) => [labels.result, value]))
}

describe("a collector", () => {
  it("gets spans in protobuf with the settings of docs/operators/operations.md, its headers and what the service is called", async () => {
    const collector = await collectorThat()
    const block =
      /```sh traces\n([\s\S]*?)```/.exec(readFileSync(`${root}docs/operators/operations.md`, "utf8"))?.[1] ?? ""
    const { tracing: settings } = readSettings({
      ...parseEnv(block.replace("http://127.0.0.1:4318", `${collector.settings.endpoint}/`)),
      OTEL_EXPORTER_OTLP_HEADERS: "authorization=Bearer%20a-token,x-team=pay",
    })
    const tracing = await openTracing(settings, () => {})
    if (tracing) step(tracing)
    await tracing?.close(5_000)
    const [got] = collector.received
    expect(got).toMatchObject({
      path: "/v1/traces",
      headers: { "content-type": "application/x-protobuf", authorization: "Bearer a-token", "x-team": "pay" },
    })
    for (const word of ["step", "service.name", "sluice", "deployment.environment.name", "live"])
      expect(got?.body).toContain(word)
    expect(await results()).toEqual({ exported: 1 })
  })

  it("that answers 500 loses its spans, one that is busy gets them again, and each change is reported once", async () => {
    const reports: string[] = []
    const collector = await collectorThat(500)
    const tracing = await openTracing(collector.settings, (_, words) => void reports.push(words))
    if (!tracing) throw new Error("there is no tracing")
    step(tracing)
    await tracing.flush()
    step(tracing)
    await tracing.flush()
    expect(await results()).toEqual({ failed: 2 })
    expect(collector.received).toHaveLength(2)
    collector.answer(503)
    step(tracing, 2)
    const flushed = tracing.flush()
    await collector.got(3)
    collector.answer(200)
    await flushed
    expect(await results()).toEqual({ failed: 2, exported: 2 })
    expect(collector.received.at(-1)?.body).toBe(collector.received.at(-2)?.body)
    expect(reports).toEqual(["the collector answered 500", "spans are exported again"])
    await tracing.close(0)
  })

  it("that says how many it rejected is believed", async () => {
    const collector = await collectorThat(response =>
      response.writeHead(200, { "content-type": "application/json" }).end('{"partialSuccess":{"rejectedSpans":2}}'),
    )
    const tracing = await collector.open("a")
    step(tracing, 5)
    await tracing.close(5_000)
    expect(await results()).toEqual({ exported: 3, rejected: 2 })
  })

  it("that never answers costs the spans beyond the queue, and stops nobody", async () => {
    const collector = await collectorThat(() => {})
    const tracing = await collector.open("a")
    // The first 512 are being sent, and the queue holds 4,096.
    step(tracing, 512 + 4_096 + 7)
    expect(await results()).toEqual({ dropped: 7 })
    await collector.got(1)
    await tracing.close(0)
    expect(await results()).toEqual({ dropped: 7, failed: 512 + 4_096 })
    step(tracing)
    expect(await results()).toEqual({ dropped: 8, failed: 512 + 4_096 })
    expect(collector.connections()).toBe(1)
  })

  it("that floods its answer is read no further than it needs to be", async () => {
    let closed = false
    const collector = await collectorThat((response, _received, request) => {
      request.socket.once("close", () => {
        closed = true
      })
      const flood = () => {
        while (response.write("x".repeat(65_536)));
        response.once("drain", flood)
      }
      flood()
    })
    const tracing = await collector.open("a")
    step(tracing)
    await tracing.flush()
    await until("the connection is closed", () => closed)
    expect(await results()).toEqual({ exported: 1 })
    await tracing.close(0)
  })

  it("that is not there is no reason to fail", async () => {
    const { settings, stop } = await startCollector()
    await stop()
    const tracing = await openTracing(settings, () => {})
    if (tracing) step(tracing)
    await tracing?.close(5_000)
    expect(await results()).toEqual({ failed: 1 })
    expect(await registry.metrics()).toContain('sluice_trace_spans_total{result="failed"} 1')
  })
})

describe("callers", () => {
  it("can have nothing recorded, and join no trace", async () => {
    const collector = await collectorThat()
    const tracing = await collector.open("api", { ratio: 0 })
    const service = await startService({ tracing })
    stops.push(() => service.stop())
    const headers = { traceparent: `00-${"0".repeat(31)}1-${"cd".repeat(8)}-01` }
    await service.call("GET", "/api/console/settings", undefined, { as: "shop", headers })
    await tracing.close(5_000)
    expect(collector.received).toEqual([])
  })

  it("leave no span where there is no route, where a limit refuses them, or where they ask whether it runs", async () => {
    const collector = await collectorThat()
    const tracing = await collector.open("api")
    const settings = { limits: { ...noLimits, payStatus: 1 } }
    const service = await startService({ tracing, settings })
    stops.push(() => service.stop())
    const status = async (url: string) => (await service.call("GET", url)).status
    expect([await status("/healthz"), await status("/api/nothing")]).toEqual([200, 404])
    const checkout = "/api/pay/status/cs_nothing"
    expect([await status(checkout), await status(checkout)]).toEqual([404, 429])
    await tracing.close(5_000)
    const spans = collector.spans().map(({ name, attributes, isError }) => ({ name, ...attributes, isError }))
    expect(spans).toEqual([
      {
        name: "GET /api/pay/status/:id",
        "http.request.method": "GET",
        "http.route": "/api/pay/status/:id",
        "http.response.status_code": 404,
        "error.type": "SESSION_NOT_FOUND",
        "sluice.request.id": expect.any(String),
        isError: false,
      },
    ])
  })

  it.each([
    "",
    "00-0000000000000000000000000000000a-00000000000000b1-01, more",
    "01-0000000000000000000000000000000a-00000000000000b1-01",
    "00-0000000000000000000000000000000A-00000000000000b1-01",
    `00-${"0".repeat(32)}-00000000000000b1-01`,
    `00-0000000000000000000000000000000a-${"0".repeat(16)}-01`,
    ["00-0000000000000000000000000000000a-00000000000000b1-01"],
  ])("who send %j send nothing", header => {
    expect(parseTraceparent(header)).toBeUndefined()
  })
})

describe("a transaction", () => {
  it("that is undone leaves no step in the trace, and is marked as failed itself", async () => {
    const collector = await collectorThat()
    const tracing = await collector.open("a")
    const service = await startService({ tracing })
    stops.push(() => service.stop())
    const steps = (fails: boolean) =>
      inTransaction(service.ctx, async ctx => {
        await traced(ctx, "inside", {}, async () => {})
        if (fails) await sql`select 1 / 0`.execute(ctx.db)
      })
    const root = tracing.start("root")
    await tracing.within(root, () => steps(false))
    await expect(tracing.within(root, () => steps(true))).rejects.toThrow("division by zero")
    await tracing.close(5_000)
    const spans = collector.spans().map(({ name, attributes, isError }) => [name, attributes["error.type"], isError])
    expect(spans).toEqual([
      ["inside", undefined, false],
      ["transaction", undefined, false],
      ["transaction", "22012", true],
    ])
  })
})

describe("lines of the log", () => {
  it("name the span that they were written in, whatever waited in between", async () => {
    const collector = await collectorThat()
    const tracing = await collector.open("a")
    const lines: Record<string, unknown>[] = []
    const log = openLog("info", { write: line => void lines.push(JSON.parse(line)) }, tracing.logFields)
    const spans = [tracing.start("one"), tracing.start("two")]
    await Promise.all(
      spans.map(span =>
        tracing.within(span, async () => {
          await new Promise(resolve => setImmediate(resolve))
          log.info("inside")
        }),
      ),
    )
    log.info("outside")
    const ids = lines.map(({ trace_id, span_id }) => (trace_id ? `00-${trace_id}-${span_id}-01` : undefined))
    expect(ids).toEqual([...spans.map(({ traceparent }) => traceparent), undefined])
    await tracing.close(0)
  })
})

describe("without an endpoint", () => {
  it("nothing of OpenTelemetry is loaded but the API's package, which prom-client loads", () => {
    const program = `
      import { registerHooks } from "node:module"
      const urls = []
      registerHooks({ load(url, context, next) { urls.push(url); return next(url, context) } })
      const { openTracing } = await import("${root}server/src/platform/tracing/open-tracing.ts")
      const { readSettings } = await import("${root}server/src/platform/config/read-settings.ts")
      await import("${root}server/src/main.ts")
      const tracing = await openTracing(readSettings({}).tracing, () => {})
      const packages = urls.flatMap(url => /node_modules\\/(@opentelemetry\\/[^/]+)/.exec(url)?.[1] ?? [])
      const other = urls.some(url => url.endsWith("/tracing/trace.ts"))
      console.log(JSON.stringify([tracing === undefined, other, [...new Set(packages)]]))`
    const said = execFileSync(process.execPath, ["--input-type=module", "--eval", program], { encoding: "utf8" })
    const [isOff, other, packages] = JSON.parse(said)
    expect([isOff, other]).toEqual([true, true])
    expect(packages.filter((name: string) => name !== "@opentelemetry/api")).toEqual([])
  })
})
