/**
 * One of everything that a merchant has, as rows on a network of paper, and each route of the OpenAPI document with a request that is
 * good: for tests that go through all routes.
 */
import { hash, randomUUID } from "node:crypto"
import { readFileSync } from "node:fs"
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts"
import { EXAMPLE_REQUEST_ID } from "../src/account/requests/schema.ts"
import { EXAMPLE_URL } from "../src/account/webhooks/schema.ts"
import { receiptKeys } from "../src/ledger/receipts/use-receipt-keys.ts"
import { authorizationDigest } from "../src/platform/chain/authorizations.ts"
import type { Address, Hash } from "../src/platform/chain/hex.ts"
import type { PayAuthorize } from "../src/products/checkouts/schema.ts"
import type { Operation, Parameter, Schema } from "./contract.ts"
import { plainDocument } from "./plain-document.ts"
import { type Receiver, startReceiver } from "./receiver.ts"
import { PAYOUT_ADDRESS, paperNetwork, startService, type TestService } from "./service.ts"
import { newRecurring, newSubscription } from "./subscriptions.ts"
import { accessFields, signInFields, signMessage } from "./wallet.ts"

const METRICS_TOKEN = "m-token"
const TX_HASH = `0x${"5f".repeat(32)}`
/** As the examples of the document name it. */
const EXAMPLE_SESSION = "cs_tz4a98xxat96iws9zmbrgj3a"
const EXAMPLE_REFUNDED = "cs_q7w2hc9n4m1xk8t5r3v6b0zd"
export const BUYER = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
/** The row of the capture. */
const CAPTURED = "0f8b2c1e-5d7a-4e0f-9b3c-6d8a1e2f4b5c"
const RESERVED = `0x${"6a".repeat(32)}` as Hash
const RELAY = `0x${"3c".repeat(20)}` as Address
/** The token of an open invitation, and the address that it names. */
const INVITATION = "i".repeat(43)
const INVITED = "grace@shop.example"
const wallet = privateKeyToAccount(generatePrivateKey())

export const committed = plainDocument(
  JSON.parse(readFileSync(new URL("../../docs/openapi.json", import.meta.url), "utf8")),
)

export interface Route {
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

export const routes = Object.entries(committed.paths).flatMap(([path, item]) =>
  Object.entries(item).map(([method, operation]): Route => {
    const parameters = (operation.parameters ?? []).filter(each => "in" in each)
    return {
      name: `${method.toUpperCase()} ${path}`,
      method: method.toUpperCase() as Route["method"],
      path,
      operation,
      isConsole: path.startsWith("/api/console/") && !/\/(config|session)$/.test(path),
      needsKey: JSON.stringify(operation.security) === '[{"apiKey":[]}]',
      needsWallet: JSON.stringify(operation.security) === '[{"wallet":[]}]',
      takesKey: parameters.some(({ name }) => name === "Idempotency-Key"),
      params: parameters.filter(each => each.in === "path"),
      query: parameters.filter(each => each.in === "query"),
      body: structuredClone(operation.requestBody?.content["application/json"]),
    }
  }),
)

export let service: TestService
let receiver: Receiver
/** The address of webhooks in the examples. */
let exampleUrl = EXAMPLE_URL
/** What stands in paths: things that exist and are the shop's, `id` by the first part of the path. */
export let ids: Record<string, string>
export let apiKeys: Record<"shop" | "rival", string>
let walletToken: string

/** Starts the service, with nothing in it. */
export async function startEverything(): Promise<void> {
  service = await startService({ settings: { metricsToken: METRICS_TOKEN, relayWallet: RELAY } })
  receiver = await startReceiver()
  // An example's address must answer to be good: this receiver's, also where another file had one before.
  for (const { body } of routes)
    if (body) body.example = JSON.parse(JSON.stringify(body.example).replaceAll(exampleUrl, receiver.url))
  exampleUrl = receiver.url
}

export async function stopEverything(): Promise<void> {
  await service.stop()
  await receiver.stop()
}

/** Empties the database, and makes one of everything. */
export async function prepare(): Promise<void> {
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
  // It can be adopted.
  await service.ctx.db
    .updateTable("api_keys")
    .set({ beyond_until: new Date(Date.now() + 7 * 86_400_000), beyond_by: "maker_left" })
    .where("id", "=", shopKey.id)
    .execute()
  apiKeys = { shop: shopKey.key, rival: (await keyOf("rival")).key }
  const hook = { url: receiver.url, events: ["*"] }
  const webhook = (await service.call("POST", "/api/console/webhooks", hook, { as: "shop" })).body.data.id
  const named = { events: ["checkout.failed"] }
  const listener = (await service.call("POST", "/api/console/listeners", named, { as: "shop" })).body.id
  const test = await service.call("POST", `/api/console/webhooks/${webhook}/test`, {}, { as: "shop" })
  const { id: delivery, eventId } = test.body.data
  await service.ctx.db
    .insertInto("requests")
    .values({
      merchant_id: await service.merchant("shop"),
      at: service.ctx.now(),
      request_id: EXAMPLE_REQUEST_ID,
      method: "GET",
      route: "/api/console/products",
      status: 200,
      duration_ms: 1,
    })
    .execute()
  ids = {
    requests: EXAMPLE_REQUEST_ID,
    paywalls: id,
    "api-keys": shopKey.id,
    webhooks: webhook,
    listeners: listener,
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
    ...(await team()),
    settlements: await settlement(),
    timeline: `pay_${"a".repeat(24)}`,
    root: await receiptBatch(),
    payouts: `po_${CAPTURED.replaceAll("-", "")}`,
    payer: BUYER,
    sessions: `ses_${"a".repeat(24)}`,
    refunds: await refund(),
    from: BUYER,
    nonce: TX_HASH,
    txHash: TX_HASH,
    address: (await service.call("GET", `/api/paywalls/${id}`)).body.payTo,
  }
  await grant(id)
  await session()
  await device()
  const subscriber = await service.call("POST", "/api/subscriptions/token", await subscriberProof())
  walletToken = subscriber.body.accessToken
  // Used, so that it is not noted for another minute.
  for (const key of Object.values(apiKeys))
    await service.call("GET", `/api/paywalls/${id}/verify?address=${BUYER}`, undefined, {
      headers: { "x-api-key": key },
    })
}

/** A file of receipts; returns its root. */
async function receiptBatch(): Promise<string> {
  const [network] = service.ctx.chain.networks
  if (!network) throw new Error("no network")
  const [{ id } = { id: "" }] = await receiptKeys(service.ctx, network)
  const root = `0x${"ab".repeat(32)}` as Hash
  const batch = { root, chain_id: network.chainId, key_id: id, receipts: 1, size: 256, bytes: new Uint8Array(256) }
  await service.ctx.db
    .insertInto("receipt_batches")
    .values({ ...batch, created_at: new Date() })
    .execute()
  return root
}

/** A further member of the shop, and an open invitation. */
async function team(): Promise<Record<string, string>> {
  const { db } = service.ctx
  const merchant_id = await service.merchant("shop")
  const created_at = new Date()
  const id = `per_${"a".repeat(24)}`
  await db
    .insertInto("persons")
    .values({ id, iss: service.issuer.issuer, sub: "helper", email: "helper@shop.example", created_at })
    .execute()
  await db.insertInto("members").values({ merchant_id, person_id: id, role: "viewer", created_at }).execute()
  const owner = await db.selectFrom("persons").select("id").where("sub", "=", "shop").executeTakeFirstOrThrow()
  const invitations = `tinv_${"a".repeat(24)}`
  await db
    .insertInto("team_invitations")
    .values({
      id: invitations,
      merchant_id,
      hash: hash("sha256", INVITATION),
      email: INVITED,
      wallet: null,
      role: "viewer",
      invited_by: owner.id,
      by_wallet: false,
      created_at,
      expires_at: new Date(created_at.getTime() + 86_400_000),
    })
    .execute()
  return { team: id, invitations }
}

/** A device that was approved, whose code is that of the examples. */
async function device(): Promise<void> {
  const { db } = service.ctx
  const owner = await db.selectFrom("persons").select("id").where("sub", "=", "shop").executeTakeFirstOrThrow()
  const example = routes.find(({ name }) => name === "POST /api/device/token")?.body?.example as { device_code: string }
  await db
    .insertInto("device_sign_ins")
    .values({
      id: `dev_${"a".repeat(24)}`,
      device_hash: hash("sha256", example.device_code),
      user_hash: hash("sha256", "BBBBBBBB"),
      host: "laptop",
      scopes: ["read"],
      interval_s: 5,
      decision: "approved",
      for_merchant: await service.merchant("shop"),
      person_id: owner.id,
      session_id: ids.sessions ?? "",
      created_at: new Date(),
      expires_at: new Date(Date.now() + 600_000),
    })
    .execute()
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
  const now = new Date()
  const payer = BUYER.toLowerCase() as Address
  const digest = TX_HASH as Hash
  const id = `set_${"a".repeat(24)}`
  const payoutId = randomUUID()
  const merchant_id = await service.merchant("shop")
  const common = { chain_id: 84532, token: paperNetwork.token.address, payer, merchant_id, amount: 1n }
  const times = { created_at: now, updated_at: now }
  await db
    .insertInto("payouts")
    .values({
      ...common,
      ...times,
      id: payoutId,
      kind: "settle",
      source_key: "settle:example",
      recipient: payer,
      to_address: common.token,
      data: "0x00",
      auth_nonce: digest,
      auth_digest: digest,
      relay_by: now,
      reserved: false,
      state: "queued",
      run_at: now,
    })
    .execute()
  await db
    .insertInto("settlements")
    .values({
      ...common,
      ...times,
      id,
      nonce: digest,
      digest,
      pay_to: payer,
      valid_before: 1n,
      payout_id: payoutId,
      binding: "",
      payload_hash: "",
      from_block: 0n,
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
  const now = new Date()
  const payer = BUYER.toLowerCase() as Address
  const hash = TX_HASH as Hash
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
      ...common,
      ...times,
      session_id: EXAMPLE_REFUNDED,
      escrow: payer,
      collector: payer,
      version: "v1.1",
      refund_collector: payer,
      operator: RELAY,
      receiver: payer,
      payer,
      auth_id: hash,
      salt: hash,
      nonce: hash,
      pre_approval_expiry: later,
      authorization_expiry: later,
      refund_expiry: later,
      void_at: soon,
      max_amount: 10_000_000n,
      authorized: 10_000_000n,
      captured: 5_000_000n,
      authorized_at: now,
    })
    .execute()
  const called = (kind: "reserve" | "capture" | "refund", n: bigint, amount: bigint) => ({
    ...common,
    ...times,
    id: kind === "capture" ? CAPTURED : randomUUID(),
    kind,
    escrow_id: EXAMPLE_REFUNDED,
    source_key: `escrow:${kind}`,
    recipient: payer,
    amount,
    to_address: payer,
    data: "0x00" as const,
    relay_by: later,
    reserved: false,
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
  const paid = { tx_hash: TX_HASH as never }
  const bought = { resource_id: paywall }
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

/** A browser in which the shop's person is signed in. */
async function session(): Promise<void> {
  const now = new Date()
  const person = { iss: service.issuer.issuer, sub: "shop", way: "provider", address: null, user_agent: null } as const
  const times = { created_at: now, last_seen_at: now, expires_at: new Date(now.getTime() + 3_600_000) }
  await service.ctx.db
    .insertInto("sessions")
    .values({ id: ids.sessions ?? "", hash: "aa", ...person, ...times })
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
export interface Sent {
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

/** The wallet's signature for a sign-in. */
async function signInProof(): Promise<object> {
  const { body } = await service.call("POST", "/api/auth/nonce")
  return await signMessage(wallet, body.nonce, signInFields)
}

/** Bodies that can't be written down beforehand: signed ones, and one that must be known. */
export const signed: Record<string, () => Promise<object>> = {
  "POST /api/pay/authorize": takenAuthorization,
  "POST /api/auth/verify": signInProof,
  "POST /api/console/session": signInProof,
  "POST /api/subscriptions/token": subscriberProof,
  "POST /api/console/team/accept": async () => ({ token: INVITATION }),
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

/** Whose request it is, where the shop's would change what its later ones mean. */
export const personOf: Record<string, string> = {
  "POST /api/console/merchants": "founder",
  "POST /api/console/team/accept": "invited",
}

/** A request that is good but for what is given. */
export async function send(route: Route, given: Sent = {}) {
  const named = /^\/api\/(?:console\/|agent\/)?([\w-]+)/.exec(route.path)?.[1] ?? ""
  const isRefund = route.path.startsWith("/api/console/payments/refunds/")
  const isInvitation = route.path.startsWith("/api/console/team/invitations/")
  const kind = isInvitation
    ? "invitations"
    : isRefund
      ? "refunds"
      : route.path.startsWith("/api/agent/payments")
        ? "settlements"
        : named
  const path = route.path.replaceAll(
    /\{(\w+)\}/g,
    (_, name) => given.path?.[name] ?? ids[name === "id" ? kind : name] ?? "",
  )
  const query = given.query ?? queryOf(route)
  const body = "body" in given ? given.body : route.body && JSON.stringify(route.body.example)
  const metrics = route.path === "/metrics" ? { authorization: `Bearer ${METRICS_TOKEN}` } : {}
  const key = route.needsKey ? { "x-api-key": apiKeys.shop } : {}
  // Only the console's own page may begin a session.
  const { host, origin } = new URL("http://127.0.0.1:4000")
  const own = route.path === "/api/console/session" ? { host, origin } : {}
  const token = route.needsWallet ? { authorization: `Bearer ${walletToken}` } : {}
  const isNamed = given.headers?.authorization !== undefined || given.headers?.["x-api-key"] !== undefined
  const { as = route.isConsole && !isNamed ? (personOf[route.name] ?? "shop") : undefined } = given
  const verified = { email: INVITED, email_verified: true }
  const invited = as === "invited" ? { authorization: `Bearer ${await service.issuer.token(as, verified)}` } : {}
  return await service.call(route.method, `${path}${query && `?${query}`}`, body, {
    headers: {
      ...metrics,
      ...own,
      ...key,
      ...token,
      ...(route.takesKey ? { "idempotency-key": randomUUID() } : {}),
      ...invited,
      ...given.headers,
    },
    ...(as === undefined || as === "invited" ? {} : { as }),
  })
}

/** The examples of the query, with one of them replaced or left out. */
export function queryOf({ query }: Route, name?: string, value?: string): string {
  const pairs = query.flatMap(each => {
    const text = each.name === name ? value : each.example
    return text === undefined ? [] : [`${each.name}=${text}`]
  })
  return pairs.join("&")
}
