/** The service in a test: the real routes and jobs over a real database, with a clock that can be moved. */
import type { InjectOptions } from "fastify"
import { tokenIssuer } from "../src/account/identity/tokens.ts"
import { openApp } from "../src/app.ts"
import type { SellingContext } from "../src/ledger/settlement/sellable.ts"
import { checkNetwork } from "../src/platform/chain/check-network.ts"
import type { NetworkSettings } from "../src/platform/chain/networks.ts"
import { readSettings } from "../src/platform/config/read-settings.ts"
import type { Settings } from "../src/platform/config/settings.ts"
import { atOnce } from "../src/platform/context.ts"
import type { OpenDatabase } from "../src/platform/db/open.ts"
import type { Replica } from "../src/platform/db/open-replica.ts"
import { openWakes } from "../src/platform/jobs/wake.ts"
import { type Limits, processLimits } from "../src/platform/limits/limiter.ts"
import { openLog } from "../src/platform/log.ts"
import type { Tracing } from "../src/platform/tracing/tracing.ts"
import { sales } from "../src/sales.ts"
import { contractOf, type Document } from "./contract.ts"
import { emptyDatabase, openTestDatabase } from "./database.ts"
import { AUDIENCE, startIssuer, type TestIssuer } from "./issuer.ts"
import { paperNetwork } from "./paper-network.ts"

export { paperNetwork } from "./paper-network.ts"

/** Not an account that a test uses as a wallet of the service, because a merchant's payout address must not be one. */
export const PAYOUT_ADDRESS = "0xa0Ee7A142d267C1f36714E4a8F75612F20a79720"

type CallOptions = { as?: string } & InjectOptions

interface Answer {
  status: number
  headers: Record<string, unknown>
  // biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects, and fails when it is not there.
  body: any
}

export interface TestService {
  ctx: SellingContext
  issuer: TestIssuer
  /** The OpenAPI document as it is served. */
  document: Document
  /** Also serves it on a free loopback port, and returns its address. */
  listen(): Promise<string>
  /** Moves the service's clock forward. */
  advance(ms: number): void
  /** One request; `as` is the subject whose token it carries. Throws when its document does not declare the answer. */
  call(method: "GET" | "POST" | "PUT" | "DELETE", url: string, body?: unknown, options?: CallOptions): Promise<Answer>
  /**
   * Does the same as `call` over a real connection: what is recorded when an answer ends depends on how it was sent. Only
   * `as` and `headers` of the options count.
   */
  request: TestService["call"]
  /** A merchant with a payout address, by its subject; returns its id. */
  merchant(sub: string): Promise<string>
  empty(): Promise<void>
  stop(): Promise<void>
}

/** Every bucket is off. */
export const noLimits = Object.fromEntries(
  Object.keys(readSettings({}).limits).map(bucket => [bucket, 0]),
) as Settings["limits"]

/** Starts it without limits, on paper networks unless `networks` are given to check and serve. */
export async function startService(
  options: {
    settings?: Partial<Settings>
    networks?: NetworkSettings[]
    limits?: Limits
    /** Closed with the service. */
    database?: OpenDatabase
    tracing?: Tracing | undefined
    replica?: Replica
  } = {},
): Promise<TestService> {
  const issuer = await startIssuer()
  const database = options.database ?? (await openTestDatabase())
  const networks = options.networks
    ? await Promise.all(options.networks.map(network => checkNetwork(network)))
    : [paperNetwork]
  const settings: Settings = {
    ...readSettings({ LOG_LEVEL: "fatal" }),
    oidcIssuer: issuer.issuer,
    oidcAudience: AUDIENCE,
    secretKeys: [new Uint8Array(32).fill(7)],
    limits: noLimits,
    ...options.settings,
  }
  const stopping = new AbortController()
  let offsetMs = 0
  const ctx: SellingContext = {
    db: database.db,
    settings,
    log: openLog(settings.logLevel, undefined, options.tracing?.logFields),
    now: () => new Date(Date.now() + offsetMs),
    chain: { networks },
    wakes: await openWakes(database),
    limits: options.limits ?? processLimits(),
    sells: sales,
    onCommit: atOnce,
    tracing: options.tracing,
    signal: stopping.signal,
    replica: options.replica,
  }
  const app = openApp(ctx, tokenIssuer(issuer.issuer, AUDIENCE))
  await app.ready()
  const document = app.swagger() as unknown as Document
  const expectDeclared = contractOf(document)

  let listening: Promise<string> | undefined
  const listen = () => (listening ??= app.listen({ host: "127.0.0.1", port: 0 }))
  const textOf = (body: unknown) => (typeof body === "string" ? body : JSON.stringify(body))
  const headersOf = async (body: unknown, { as, headers }: CallOptions) => ({
    ...(body === undefined ? {} : { "content-type": "application/json" }),
    ...(as === undefined ? {} : { authorization: `Bearer ${await issuer.token(as)}` }),
    ...headers,
  })
  const request: TestService["request"] = async (method, url, body, options = {}) => {
    const headers = (await headersOf(body, options)) as Record<string, string>
    const sent = { method, headers, redirect: "manual", ...(body === undefined ? {} : { body: textOf(body) }) } as const
    const response = await fetch((await listen()) + url, sent)
    const text = await response.text()
    const isJson = response.headers.get("content-type")?.includes("/json") && text !== ""
    const answer = {
      status: response.status,
      headers: Object.fromEntries(response.headers),
      body: isJson ? JSON.parse(text) : text,
    }
    expectDeclared(method, url, answer)
    return answer
  }
  const call: TestService["call"] = async (method, url, body, options = {}) => {
    const { as: _, ...rest } = options
    const response = await app.inject({
      method,
      url,
      ...(body === undefined ? {} : { payload: textOf(body) }),
      ...rest,
      headers: await headersOf(body, options),
    })
    const isJson = String(response.headers["content-type"]).includes("/json")
    const { statusCode: status, headers } = response
    const answer = { status, headers, body: isJson ? response.json() : response.payload }
    expectDeclared(rest.method ?? method, url, answer)
    return answer
  }
  return {
    ctx,
    issuer,
    document,
    listen,
    request,
    advance: ms => {
      offsetMs += ms
    },
    call,
    merchant: async sub => {
      const answer = await call("PUT", "/api/console/settings", { payoutAddress: PAYOUT_ADDRESS }, { as: sub })
      if (answer.status !== 200) throw new Error(`no merchant: ${JSON.stringify(answer.body)}`)
      return answer.body.merchantId
    },
    empty: () => emptyDatabase(database),
    stop: async () => {
      stopping.abort()
      await app.close()
      await ctx.limits.close()
      await ctx.replica?.close()
      await database.close()
      await issuer.stop()
    },
  }
}
