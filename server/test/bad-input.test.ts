/**
 * Every route of the OpenAPI document with every input that it does not accept: each is refused in the one shape of errors,
 * with a code that the document declares (`call` checks that), and nothing is written.
 */
import { randomUUID } from "node:crypto"
import { readFileSync } from "node:fs"
import { isDeepStrictEqual } from "node:util"
import { sql } from "kysely"
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { authorizationDigest } from "../src/chain/authorizations.ts"
import type { Address, Hash } from "../src/chain/hex.ts"
import type { PayAuthorize } from "../src/checkouts/schema.ts"
import { wordsOfPattern } from "../src/http/schemas.ts"
import { EXAMPLE_URL } from "../src/webhooks/schema.ts"
import type { Document, Operation, Parameter, Schema } from "./contract.ts"
import { AUDIENCE } from "./issuer.ts"
import { type Receiver, startReceiver } from "./receiver.ts"
import { PAYOUT_ADDRESS, paperNetwork, startService, type TestService } from "./service.ts"
import { newRecurring, newSubscription } from "./subscriptions.ts"
import { accessFields, signInFields, signMessage } from "./wallet.ts"

const METRICS_TOKEN = "m-token"
const TX_HASH = `0x${"5f".repeat(32)}`
/** As the examples of the document name it. */
const EXAMPLE_SESSION = "cs_tz4a98xxat96iws9zmbrgj3a"
const EXAMPLE_REFUNDED = "cs_q7w2hc9n4m1xk8t5r3v6b0zd"
const BUYER = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
const RESERVED = `0x${"6a".repeat(32)}` as Hash
const RELAY = `0x${"3c".repeat(20)}` as Address
const wallet = privateKeyToAccount(generatePrivateKey())

const committed = JSON.parse(readFileSync(new URL("../../docs/openapi.json", import.meta.url), "utf8")) as Document

interface Route {
  name: string
  method: "GET" | "POST" | "PUT" | "DELETE"
  path: string
  operation: Operation
  isConsole: boolean
  /** Whether it asks for an API key. */
  needsKey: boolean
  /** Whether it asks for a wallet's token. */
  needsWallet: boolean
  takesKey: boolean
  params: Parameter[]
  query: Parameter[]
  body: { schema: Schema; example: object } | undefined
}

const routes = Object.entries(committed.paths).flatMap(([path, item]) =>
  Object.entries(item).map(([method, operation]): Route => {
    const parameters = (operation.parameters ?? []).filter(each => "in" in each)
    return {
      name: `${method.toUpperCase()} ${path}`,
      method: method.toUpperCase() as Route["method"],
      path,
      operation,
      isConsole: path.startsWith("/api/console/"),
      needsKey: JSON.stringify(operation.security) === '[{"apiKey":[]}]',
      needsWallet: JSON.stringify(operation.security) === '[{"wallet":[]}]',
      takesKey: JSON.stringify(operation.parameters ?? []).includes("#/components/parameters/idempotencyKey"),
      params: parameters.filter(each => each.in === "path"),
      query: parameters.filter(each => each.in === "query"),
      body: structuredClone(operation.requestBody?.content["application/json"]),
    }
  }),
)

let service: TestService
let receiver: Receiver
/** What stands in paths: things that exist and are the shop's, `id` by the first part of the path. */
let ids: Record<string, string>
let apiKeys: Record<"shop" | "rival", string>
let walletToken: string

beforeAll(async () => {
  service = await startService({ settings: { metricsToken: METRICS_TOKEN, relayWallet: RELAY } })
  receiver = await startReceiver()
  // An example's address must answer to be good.
  for (const { body } of routes)
    if (body) body.example = JSON.parse(JSON.stringify(body.example).replaceAll(EXAMPLE_URL, receiver.url))
})
afterAll(async () => {
  await service.stop()
  await receiver.stop()
})
/** What stands there before a request. */
let prepared: Record<string, unknown> | undefined
beforeEach(async () => {
  // Most requests leave no trace, which is what is tested: then all is as it was.
  if (prepared && isDeepStrictEqual(await contents(), prepared)) return
  await prepare()
  prepared = await contents()
})

async function prepare(): Promise<void> {
  await service.empty()
  await service.merchant("shop")
  await service.merchant("rival")
  const subscriptionProductId = await newRecurring(service, "shop")
  const subscribed = await newSubscription(service, "shop", subscriptionProductId, wallet.address)
  const film = { name: "Film", price: 5, slug: "film", subscriptionProductId }
  const { id } = (await service.call("POST", "/api/console/paywalls", film, { as: "shop" })).body
  const recipients = [
    { address: BUYER, percent: 70 },
    { address: PAYOUT_ADDRESS, percent: 30 },
  ]
  const split = await service.call("POST", "/api/console/splits", { name: "Two", recipients }, { as: "shop" })
  const keyOf = async (as: string) =>
    (await service.call("POST", "/api/console/api-keys", { name: "Server" }, { as })).body
  const shopKey = await keyOf("shop")
  apiKeys = { shop: shopKey.key, rival: (await keyOf("rival")).key }
  const hook = { url: receiver.url, events: ["*"] }
  const webhook = (await service.call("POST", "/api/console/webhooks", hook, { as: "shop" })).body.data.id
  const test = await service.call("POST", `/api/console/webhooks/${webhook}/test`, {}, { as: "shop" })
  const { id: delivery, eventId } = test.body.data
  ids = {
    paywalls: id,
    "api-keys": shopKey.id,
    webhooks: webhook,
    deliveries: delivery,
    events: eventId,
    splits: split.body.id,
    payments: `pay_${"a".repeat(24)}`,
    ...(await checkouts()),
    grantId: `grant_${"a".repeat(24)}`,
    slug: "api",
    subscriptions: subscribed.id,
    subscriptionProductId,
    invoices: subscribed.invoiceId,
    settlements: await settlement(),
    refunds: await refund(),
    from: BUYER,
    nonce: TX_HASH,
    txHash: TX_HASH,
    address: (await service.call("GET", `/api/paywalls/${id}`)).body.payTo,
  }
  await grant(id)
  const subscriber = await service.call("POST", "/api/subscriptions/token", await subscriberProof())
  walletToken = subscriber.body.accessToken
  // Used, so that it is not noted for another minute.
  for (const key of Object.values(apiKeys))
    await service.call("GET", `/api/paywalls/${id}/verify?address=${BUYER}`, undefined, {
      headers: { "x-api-key": key },
    })
}

/** Of each thing that is sold at checkouts one; the session has the id that the examples name. */
async function checkouts(): Promise<Record<string, string>> {
  const make = async (path: string, body: object): Promise<string> =>
    (await service.call("POST", `/api/console/${path}`, body, { as: "shop" })).body.id
  const session = await service.ctx.db
    .selectFrom("checkout_sessions")
    .selectAll()
    .where("id", "=", await make("checkouts", { amount: 5 }))
    .executeTakeFirstOrThrow()
  const known = { ...session, id: EXAMPLE_SESSION, payer_fields: null, payer_info: null, metadata: null }
  await service.ctx.db.insertInto("checkout_sessions").values(known).execute()
  await service.ctx.db
    .updateTable("deposits")
    .set({ resource_id: EXAMPLE_SESSION })
    .where("resource_id", "=", session.id)
    .execute()
  return {
    checkouts: EXAMPLE_SESSION,
    pay: EXAMPLE_SESSION,
    products: await make("products", { name: "Report", price: 5 }),
    bundles: await make("bundles", { name: "API", originUrl: "https://api.example", slug: "api", routes: [] }),
    "payment-links": await make("payment-links", { slug: "donate", title: "Donate" }),
  }
}

/** The example's authorization, and that it was taken before: no node is asked again. */
async function takenAuthorization(): Promise<object> {
  const { db } = service.ctx
  const example = routes.find(({ name }) => name === "POST /api/pay/authorize")?.body?.example as PayAuthorize
  const { authorization } = example
  const message = {
    from: authorization.from.toLowerCase() as Address,
    to: authorization.to.toLowerCase() as Address,
    value: BigInt(authorization.value),
    validAfter: BigInt(authorization.validAfter),
    validBefore: BigInt(authorization.validBefore),
    nonce: authorization.nonce as Hash,
  }
  const deposit = await db
    .selectFrom("deposits")
    .selectAll()
    .where("resource_id", "=", EXAMPLE_SESSION)
    .executeTakeFirstOrThrow()
  const now = new Date()
  await db
    .insertInto("payouts")
    .values({
      id: randomUUID(),
      chain_id: 84532,
      kind: "authorize",
      source_key: "authorize:example",
      deposit_id: deposit.id,
      token: paperNetwork.token.address,
      recipient: deposit.address,
      amount: message.value,
      to_address: paperNetwork.token.address,
      data: "0x00",
      payer: message.from,
      auth_nonce: message.nonce,
      auth_digest: authorizationDigest(paperNetwork, message),
      relay_by: now,
      reserved: false,
      state: "queued",
      run_at: now,
      created_at: now,
      updated_at: now,
    })
    .execute()
  return example
}

/** An agent's payment to another server that is under way; answers its id. */
async function settlement(): Promise<string> {
  const { db } = service.ctx
  const [now, payer, digest] = [new Date(), BUYER.toLowerCase() as Address, TX_HASH as Hash]
  const [id, payoutId, merchant_id] = [`set_${"a".repeat(24)}`, randomUUID(), await service.merchant("shop")]
  const common = { chain_id: 84532, token: paperNetwork.token.address, payer, merchant_id, amount: 1n }
  const times = { created_at: now, updated_at: now }
  await db
    .insertInto("payouts")
    .values({
      ...{ ...common, ...times, id: payoutId, kind: "settle", source_key: "settle:example", recipient: payer },
      ...{ to_address: common.token, data: "0x00", auth_nonce: digest, auth_digest: digest, relay_by: now },
      ...{ reserved: false, state: "queued", run_at: now },
    })
    .execute()
  await db
    .insertInto("settlements")
    .values({
      ...{ ...common, ...times, id, nonce: digest, digest, pay_to: payer, valid_before: 1n, payout_id: payoutId },
      ...{ binding: "", payload_hash: "", from_block: 0n },
    })
    .execute()
  return id
}

/** A payment through escrow of which a half is captured, and a refund of a part of that; answers the refund's id. */
async function refund(): Promise<string> {
  const { db } = service.ctx
  const session = await db
    .selectFrom("checkout_sessions")
    .selectAll()
    .where("id", "=", EXAMPLE_SESSION)
    .executeTakeFirstOrThrow()
  const [now, payer, hash] = [new Date(), BUYER.toLowerCase() as Address, TX_HASH as Hash]
  const later = new Date(now.getTime() + 86_400_000)
  const soon = new Date(now.getTime() + 43_200_000)
  const paid = { status: "confirmed", capture: "manual", run_at: null, confirmed_at: now, tx_hash: hash } as const
  const empty = { payer_fields: null, payer_info: null, metadata: null }
  const common = { chain_id: 84532, merchant_id: session.merchant_id, token: paperNetwork.token.address }
  const times = { created_at: now, updated_at: now }
  await db
    .insertInto("checkout_sessions")
    .values({ ...session, ...paid, ...empty, id: EXAMPLE_REFUNDED })
    .execute()
  await db
    .insertInto("escrows")
    .values({
      ...{ ...common, ...times, session_id: EXAMPLE_REFUNDED, escrow: payer, collector: payer, version: "v1.1" },
      ...{ refund_collector: payer, operator: RELAY, receiver: payer, payer, auth_id: hash, salt: hash, nonce: hash },
      ...{ pre_approval_expiry: later, authorization_expiry: later, refund_expiry: later, void_at: soon },
      ...{ max_amount: 10_000_000n, authorized: 10_000_000n, captured: 5_000_000n, authorized_at: now },
    })
    .execute()
  const called = (kind: "reserve" | "capture" | "refund", n: bigint, amount: bigint) => ({
    ...{ ...common, ...times, id: randomUUID(), kind, escrow_id: EXAMPLE_REFUNDED, source_key: `escrow:${kind}` },
    ...{ recipient: payer, amount, to_address: payer, data: "0x00" as const, relay_by: later, reserved: false },
    ...(kind === "reserve" ? { payer, auth_nonce: RESERVED, auth_digest: RESERVED } : {}),
    ...(kind === "refund"
      ? { state: "queued" as const }
      : {
          state: "final" as const,
          wallet: RELAY,
          nonce: n,
          tx_hash: hash,
          block_number: 1n,
          block_hash: hash,
          succeeded: true,
        }),
    run_at: now,
  })
  const open = called("refund", 2n, 1_000_000n)
  await db
    .insertInto("payouts")
    .values([called("reserve", 0n, 10_000_000n), called("capture", 1n, 5_000_000n), open])
    .execute()
  const id = `re_${"a".repeat(24)}`
  const { merchant_id } = session
  await db
    .insertInto("refunds")
    .values({
      ...times,
      id,
      merchant_id,
      session_id: EXAMPLE_REFUNDED,
      amount: open.amount,
      payout_id: open.id,
      reason: null,
    })
    .execute()
  return id
}

/** A payment that was submitted and granted, as the verification leaves it. */
async function grant(paywall: string): Promise<void> {
  const { db } = service.ctx
  const now = new Date()
  const [paid, bought] = [{ tx_hash: TX_HASH as never }, { resource_id: paywall }]
  const address = BUYER.toLowerCase() as never
  const times = { created_at: now, updated_at: now }
  const payment = { id: `pay_${"b".repeat(24)}`, payer: address, amount: 5_000_000n, status: "granted" } as const
  const token = `0x${"70".repeat(20)}` as never
  await db
    .insertInto("payments")
    .values({
      ...paid,
      ...bought,
      ...payment,
      ...times,
      token,
      merchant_id: await service.merchant("shop"),
      chain_id: 84532,
    })
    .execute()
  await waiting(token)
  await db
    .insertInto("grants")
    .values({ ...paid, paywall_id: paywall, id: ids.grantId ?? "", payment_id: payment.id, address, granted_at: now })
    .execute()
  await db
    .insertInto("submissions")
    .values({
      ...paid,
      ...bought,
      address,
      by_sender: true,
      chain_id: 84532,
      status: "granted",
      message: "Granted.",
      submitted_at: now,
      updated_at: now,
    })
    .execute()
  const held = { paywall_id: paywall, address: wallet.address.toLowerCase() as never, tx_hash: TX_HASH as never }
  await db
    .insertInto("access")
    .values({ ...held, expires_at: new Date(now.getTime() + 3_600_000) })
    .execute()
  const block = { block_number: 9n, block_hash: TX_HASH as never, finalized_number: 1n }
  await db
    .insertInto("cursors")
    .values({ chain_id: 84532, ...block, looked_at: now, run_at: now })
    .execute()
}

/** Money of the wallet at the session that was too little, and waits for the merchant. */
async function waiting(token: never): Promise<void> {
  const { db } = service.ctx
  const now = new Date()
  const deposit = await db
    .selectFrom("deposits")
    .selectAll()
    .where("resource_id", "=", EXAMPLE_SESSION)
    .executeTakeFirstOrThrow()
  const payer = wallet.address.toLowerCase() as never
  const common = { chain_id: 84532, token, deposit_id: deposit.id, tx_hash: TX_HASH as never, created_at: now }
  const { id } = await db
    .insertInto("transfers")
    .values({
      ...common,
      to_address: deposit.address,
      k: 0,
      from_address: payer,
      value: 3_000_000n,
      block_number: 9n,
      block_hash: TX_HASH as never,
      log_index: 0,
      block_time: now,
      state: "confirmed",
    })
    .returning("id")
    .executeTakeFirstOrThrow()
  const open = {
    id: `pay_${"a".repeat(24)}`,
    resource_id: EXAMPLE_SESSION,
    status: "open",
    exception: "underpaid",
  } as const
  await db
    .insertInto("payments")
    .values({
      ...common,
      ...open,
      payer,
      amount: 3_000_000n,
      merchant_id: await service.merchant("shop"),
      updated_at: now,
    })
    .execute()
  await db.insertInto("claims").values({ transfer_id: id, payment_id: open.id }).execute()
}

/** The contents of each table, but for the record of who was screened. */
async function contents(): Promise<Record<string, unknown>> {
  const { db } = service.ctx
  const tables = await sql<{ name: string }>`select tablename as name from pg_tables
    where schemaname = 'public' and tablename not in ('migrations', 'screenings') order by 1`.execute(db)
  const each = tables.rows.map(
    ({ name }) => sql`select ${name}::text as name, count(*)::int as rows,
      md5(coalesce(string_agg(t::text, '|' order by t::text), '')) as hash from ${sql.table(name)} t`,
  )
  const { rows } = await sql<{ name: string }>`${sql.join(each, sql` union all `)}`.execute(db)
  return Object.fromEntries(rows.map(({ name, ...found }) => [name, found]))
}

interface Sent {
  path?: Record<string, string>
  query?: string
  /** Text is sent as it is, undefined is none. */
  body?: string | undefined
  headers?: Record<string, string>
  as?: string
}

/** The wallet's signature for its subscriptions. */
async function subscriberProof(): Promise<object> {
  const { body } = await service.call("POST", "/api/subscriptions/nonce", { address: wallet.address })
  return { message: body.message, signature: await wallet.signMessage({ message: body.message }) }
}

/** Bodies that can't be written down beforehand: signed ones, and one that must be known. */
const signed: Record<string, () => Promise<object>> = {
  "POST /api/pay/authorize": takenAuthorization,
  "POST /api/auth/verify": async () => {
    const { body } = await service.call("POST", "/api/auth/nonce")
    return await signMessage(wallet, body.nonce, signInFields)
  },
  "POST /api/subscriptions/token": subscriberProof,
  "PUT /api/console/subscriptions/{id}": async () => ({ productId: ids.subscriptionProductId }),
  "POST /api/pay/return-address": async () => {
    const asked = { id: EXAMPLE_SESSION, address: BUYER }
    const { body } = await service.call("POST", "/api/pay/return-address/nonce", asked)
    const uri = "http://127.0.0.1:4000/api/pay/return-address"
    return { ...asked, ...(await signMessage(wallet, body.nonce, { uri, resources: [body.resource] })) }
  },
  "POST /api/paywalls/{id}/access": async () => {
    const { body } = await service.call("POST", `/api/paywalls/${ids.paywalls}/access/nonce`)
    return { address: wallet.address, ...(await signMessage(wallet, body.nonce, accessFields(ids.paywalls ?? ""))) }
  },
}

/** A request that is good but for what is given. */
function send(route: Route, given: Sent = {}) {
  const named = /^\/api\/(?:console\/|agent\/)?([\w-]+)/.exec(route.path)?.[1] ?? ""
  const isRefund = route.path.startsWith("/api/console/payments/refunds/")
  const kind = isRefund ? "refunds" : route.path.startsWith("/api/agent/payments") ? "settlements" : named
  const path = route.path.replaceAll(
    /\{(\w+)\}/g,
    (_, name) => given.path?.[name] ?? ids[name === "id" ? kind : name] ?? "",
  )
  const query = given.query ?? queryOf(route)
  const body = "body" in given ? given.body : route.body && JSON.stringify(route.body.example)
  const metrics = route.path === "/metrics" ? { authorization: `Bearer ${METRICS_TOKEN}` } : {}
  const key = route.needsKey ? { "x-api-key": apiKeys.shop } : {}
  const token = route.needsWallet ? { authorization: `Bearer ${walletToken}` } : {}
  const { as = route.isConsole && !given.headers?.authorization ? "shop" : undefined } = given
  return service.call(route.method, `${path}${query && `?${query}`}`, body, {
    headers: {
      ...metrics,
      ...key,
      ...token,
      ...(route.takesKey ? { "idempotency-key": randomUUID() } : {}),
      ...given.headers,
    },
    ...(as === undefined ? {} : { as }),
  })
}

/** The examples of the query, with one of them replaced or left out. */
function queryOf({ query }: Route, name?: string, value?: string): string {
  const pairs = query.flatMap(each => {
    const text = each.name === name ? value : each.example
    return text === undefined ? [] : [`${each.name}=${text}`]
  })
  return pairs.join("&")
}

/** Sends each and expects that it is refused, and that nothing was written in all. */
async function expectRefused(route: Route, all: Sent[], expected: { status?: number; error?: string } = {}) {
  const before = await contents()
  for (const sent of all) {
    const { status, headers, body } = await send(route, sent)
    const what = `${route.name} with ${JSON.stringify(sent).slice(0, 300)}: ${status} ${JSON.stringify(body).slice(0, 500)}`
    expect(status, what).toBeGreaterThanOrEqual(400)
    expect(status, what).toBeLessThan(500)
    expect({ status, ...body }, what).toMatchObject(expected)
    expect(body.requestId, what).toBe(headers["x-request-id"])
    expect(body.message, what).toMatch(/^\S.*[.?]$/s)
    for (const { message } of body.details ?? []) {
      note(message)
      // The words of validators and frameworks are for programmers of servers.
      expect(message, what).not.toMatch(/must NOT|must match|must be equal|pattern|schema|string|integer|boolean|^$/)
      if (body.details.length === 1) expect(message, what).not.toMatch(/undefined|NaN/)
    }
  }
  expect(await contents()).toEqual(before)
}

/** So deep that JSON can be parsed, and little else done with it. */
const nested = (depth: number): unknown => JSON.parse(`${'{"a":'.repeat(depth)}1${"}".repeat(depth)}`)

const samples: unknown[] = [null, 5, -1.5, "text", "", true, [], [null], {}, { a: { b: [] } }]
const isOf = (type: string, value: unknown): boolean =>
  type === "null"
    ? value === null
    : type === "array"
      ? Array.isArray(value)
      : type === "object"
        ? typeof value === "object" && value !== null && !Array.isArray(value)
        : type === "integer"
          ? Number.isInteger(value)
          : typeof value === type

/** Values that a schema does not take, each wrong in one place; `good` is one that it takes. */
function wrongs(schema: Schema, good: unknown): unknown[] {
  const types = [schema.type ?? []].flat()
  const found: unknown[] = types.length > 0 ? samples.filter(value => !types.some(type => isOf(type, value))) : []
  if (types.includes("string")) found.push("\0", "a\0b", "\ud800", "\udc00\ud800", "x".repeat(100_000))
  if (schema.maxLength !== undefined) found.push("x".repeat(schema.maxLength + 1))
  if (schema.minimum !== undefined) found.push(schema.minimum - 1)
  if (schema.exclusiveMinimum !== undefined) found.push(schema.exclusiveMinimum)
  if (schema.maximum !== undefined) found.push(schema.maximum + 1, 1e300)
  if (types.includes("array")) found.push(...wrongs(schema.items ?? {}, undefined).map(value => [value]))
  if (types.includes("object")) {
    const base = (good ?? {}) as Record<string, unknown>
    const { properties = {}, additionalProperties: other = {}, required = [] } = schema
    for (const [name, property] of Object.entries(properties))
      found.push(...wrongs(property, base[name]).map(value => ({ ...base, [name]: value })))
    for (const name of required) found.push(Object.fromEntries(Object.entries(base).filter(([key]) => key !== name)))
    const odd: unknown[] =
      other === true ? [] : typeof other === "object" ? [nested(2_300), ...wrongs(other, undefined)] : [1]
    found.push(...[...odd, "\0"].map(value => ({ ...base, unheardOf: value })), { ...base, "a\0": 1 })
  }
  return found
}

it("the committed document is the one that is served, so that no route is left out", () => {
  const withoutServers = (document: object) => ({ ...document, servers: [] })
  expect(withoutServers(committed)).toEqual(withoutServers(service.document))
  expect(routes.length).toBeGreaterThan(14)
})

/** What was said of faults, without the names of fields and values: each sentence of the API once. */
const said = new Set<string>()
function note(message: string): void {
  const subject = /^`[^`]+`(?= )/
  const values = message
    .replace(subject, "FIELD")
    .replaceAll(/`[^`]+`/g, "`…`")
    .replaceAll(/0x[0-9a-fA-F]{40,}/g, "0x…")
    .replace(/not valid JSON: .*/s, "not valid JSON: ….")
    .replace(/must be one of: .*/, "must be one of: ….")
    .replaceAll(/\b(?:pw|cs|spl|re)_[a-z0-9]{24}\b/g, "ID")
    .replace(/(?<=at (?:least|most) )[\d,]+/, "N")
  said.add(values)
}

describe.each(routes.map(route => [route.name, route] as const))("%s", (_name, route) => {
  it("takes its own examples: what is refused below is refused for its one fault", async () => {
    const own = await signed[route.name]?.()
    const { status, body } = await send(route, own ? { body: JSON.stringify(own) } : {})
    // Without a payment, what is sold to agents asks for one.
    if (status === 402) expect(body.accepts).toHaveLength(1)
    else expect(status, JSON.stringify(body)).toBeLessThan(300)
  })

  it("refuses queries that it can't read", async () => {
    const numbers = [
      "",
      "abc",
      "-1",
      "1.5",
      "NaN",
      "Infinity",
      "99999999999999999999",
      "null",
      "[]",
      "{}",
      "true",
      "0&",
    ]
    const texts = ["", "5", "null", "{}", "%ED%A0%80", "%zz", "x".repeat(5_000), `${BUYER}&`]
    const bad = route.query.flatMap(({ name, schema, required }) => {
      const { pattern } = schema as { pattern?: string }
      const isTaken = (text: string) => pattern !== undefined && new RegExp(pattern).test(text)
      const values = schema.type === "integer" ? numbers : texts.filter(text => !isTaken(text))
      // A name twice: which of the two was meant?
      const twice = values.map(value => (value.endsWith("&") ? `${value}${name}=${value.slice(0, -1)}` : value))
      const missing = required ? [{ query: queryOf(route, name) }] : []
      return [...twice.map(value => ({ query: `${queryOf(route, name)}&${name}=${value}` })), ...missing]
    })
    const unstorable = ["a=%00", "%00=a", "a=1&a=2%00"].map(query => ({ query: `${queryOf(route)}&${query}` }))
    await expectRefused(route, [...bad, ...unstorable], { status: 400, error: "VALIDATION_ERROR" })
  })

  if (route.params.length > 0)
    it("refuses paths that lead nowhere", async () => {
      const texts = [
        "%zz",
        "%",
        "%00",
        "%ED%A0%80",
        "%C0%80",
        "",
        "%20",
        "x",
        "-1",
        "null",
        "..%2f..",
        "%27%3B--",
        "%F0%9F%92%A9",
      ]
      const long = [101, 20_000].map(length => "x".repeat(length))
      const bad = route.params.flatMap(({ name }) => [...texts, ...long].map(text => ({ path: { [name]: text } })))
      await expectRefused(route, bad)
    })

  if (route.body)
    it("refuses bodies that it does not take", async () => {
      const { schema, example } = route.body as NonNullable<Route["body"]>
      const bad = wrongs(schema, example).map(body => ({ body: JSON.stringify(body) }))
      expect(bad.length).toBeGreaterThan(10)
      await expectRefused(route, bad, { status: 400 })
      if (route.operation.requestBody?.required) await expectRefused(route, [{ body: undefined }], { status: 400 })
    })

  if (route.method !== "GET")
    it("refuses what is no JSON body at all", async () => {
      const texts = ["{", "nul", '{"a":1,}', "{'a':1}", "\0", "\ufeff{}", '{"__proto__":{"a":1}}', "[".repeat(100_000)]
      await expectRefused(
        route,
        texts.map(body => ({ body })),
        { status: 400 },
      )
      await expectRefused(route, [{ body: JSON.stringify({ name: "x".repeat(1_000_000) }) }], { status: 413 })
      const types = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx", "%"]
      const others = types.map(type => ({ body: "{}", headers: { "content-type": type } }))
      await expectRefused(route, others, { status: 415, error: "UNSUPPORTED_MEDIA_TYPE" })
    })

  if (route.takesKey)
    it("refuses keys that can't be one", async () => {
      const keys = ["", " ", "a b", "x".repeat(256), "\u00e4", "a\tb"]
      const bad = keys.map(key => ({ headers: { "idempotency-key": key } }))
      await expectRefused(route, bad, { status: 400, error: "VALIDATION_ERROR" })
    })

  if (route.isConsole)
    it("refuses whoever has no good token", async () => {
      const { issuer } = service
      const now = Math.floor(Date.now() / 1_000)
      const tokens = [
        await issuer.token("shop", { exp: now - 120 }),
        await issuer.token("shop", { nbf: now + 600 }),
        await issuer.token("shop", { iss: "https://evil.example" }),
        await issuer.token("shop", { aud: `${AUDIENCE}-other` }),
        await issuer.token("shop", {}, { kid: "other" }),
        (await issuer.token("shop")).slice(0, -4),
        "a.b.c",
      ]
      const authorizations = [
        ...tokens.map(token => `Bearer ${token}`),
        "Bearer",
        "Basic c2hvcDo=",
        " ",
        tokens[0] ?? "",
      ]
      const bad = authorizations.map(authorization => ({ headers: { authorization } }))
      await expectRefused(route, bad, { status: 401, error: "UNAUTHORIZED" })
    })

  if (route.needsKey) {
    it("refuses whoever has no good key", async () => {
      const { shop } = apiKeys
      const keys = ["", " ", shop.slice(0, -1), `${shop}a`, shop.toLowerCase(), `${shop}, ${shop}`, "sk_test_", "a"]
      const other = `sk_test_${"a".repeat(40)}`
      const bad = [...keys, other].map(key => ({ headers: { "x-api-key": key } }))
      await expectRefused(route, bad, { status: 401, error: "UNAUTHORIZED" })
    })

    if (route.params.length > 0)
      it("has nothing of the shop's for another merchant's key", async () => {
        await expectRefused(route, [{ headers: { "x-api-key": apiKeys.rival } }], { status: 404 })
      })
  }

  if (route.isConsole && route.params.length > 0)
    it("has nothing of the shop's for another merchant", async () => {
      // Only splits have an answer of their own, unlike what does not exist.
      await expectRefused(route, [{ as: "rival" }], { status: route.path.includes("/splits/") ? 403 : 404 })
    })
})

describe("all that was said of faults", () => {
  it("stands in fault-sentences.txt, so that whoever adds a sentence reads it among the others", async context => {
    // Only a whole run has seen them all.
    if (context.task.file.tasks.some(task => task.mode === "skip")) context.skip()
    await expect(`${[...said].sort().join("\n")}\n`).toMatchFileSnapshot("fault-sentences.txt")
  })

  it("patterns have words of their own", () => {
    const patterns = JSON.stringify(routes.map(({ query, body }) => [query, body?.schema])).matchAll(
      /"pattern":("(?:[^"\\]|\\.)*")/g,
    )
    const all = [...new Set([...patterns].map(match => JSON.parse(match[1] ?? '""') as string))]
    expect(all.length).toBeGreaterThan(10)
    expect(all.filter(pattern => wordsOfPattern(pattern) === undefined)).toEqual([])
  })
})
