// What a wallet sees of its subscriptions over HTTP, and what nobody else does.
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { deployContractWallet, startAnvil } from "../../../test/anvil.ts"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import { newInvoice, newRecurring, newSubscription } from "../../../test/subscriptions.ts"
import { accessFields, BASE_URL, type Fields, signInFields, signMessage } from "../../../test/wallet.ts"
import { newEndpoint } from "../../platform/chain/endpoints.ts"
import { countsOf } from "../../platform/limits/buckets.ts"

const account = privateKeyToAccount(generatePrivateKey())
const other = privateKeyToAccount(generatePrivateKey())
const DAY = 86_400_000
const fields = {
  ...signInFields,
  uri: `${BASE_URL}/api/subscriptions/token`,
  resources: ["urn:sluice:subscriptions"],
} satisfies Fields

let service: TestService
let product: string
/** Headers with the token of a wallet. */
let mine: Record<string, string>
let theirs: Record<string, string>

beforeAll(async () => {
  service = await startService()
  await service.merchant("shop")
  await service.call("PUT", "/api/console/settings", { name: "Blue Bottle Books" }, { as: "shop" })
  product = await newRecurring(service, "shop")
  mine = await signIn(account)
  theirs = await signIn(other)
})
afterAll(() => service.stop())

async function signIn(by: typeof account): Promise<Record<string, string>> {
  const offer = await service.call("POST", "/api/subscriptions/nonce", { address: by.address.toLowerCase() })
  expect(offer.body.message).toContain(`\n${by.address}\n`)
  const signature = await by.signMessage({ message: offer.body.message })
  const { status, body } = await service.call("POST", "/api/subscriptions/token", {
    message: offer.body.message,
    signature,
  })
  expect([status, body.address]).toEqual([200, by.address])
  const leftMs = Date.parse(body.expiresAt) - Date.now()
  expect(leftMs).toBeLessThanOrEqual(15 * 60_000)
  return { authorization: `Bearer ${body.accessToken}` }
}
const list = async (headers = mine) => (await service.call("GET", "/api/subscriptions", undefined, { headers })).body
const find = async (id: string) => (await list()).data.find((each: { id: string }) => each.id === id)
const invoices = (id: string, headers = mine) =>
  service.call("GET", `/api/subscriptions/${id}/invoices`, undefined, { headers })
const subscribe = (
  ...[change, first]: [Parameters<typeof newSubscription>[4]?, Parameters<typeof newSubscription>[5]?]
) => newSubscription(service, "shop", product, account.address, change, first)
const ask = (id: string, what: "cancel" | "resume", headers = mine) =>
  service.call("POST", `/api/subscriptions/${id}/${what}`, undefined, { headers })
const inDays = (days: number) => new Date(service.ctx.now().getTime() + days * DAY)
const rows = async () => [
  await service.ctx.db.selectFrom("subscriptions").selectAll().orderBy("id").execute(),
  await service.ctx.db.selectFrom("invoices").selectAll().orderBy("id").execute(),
]

describe("a subscriber", () => {
  it("sees its subscriptions with what is to be paid, and nothing that its merchant keeps of it", async () => {
    const { id, invoiceId, sessionId } = await subscribe()
    const open = await newInvoice(service, "shop", id, { invoice: { due_at: inDays(2) } })
    const seen = await find(id)
    expect(seen).toEqual({
      id,
      merchant: "Blue Bottle Books",
      product: "Press pass",
      amount: "5.00",
      currency: "USDC",
      chain: "base-sepolia",
      billingInterval: "month",
      billingCount: 1,
      status: "active",
      startedAt: expect.any(String),
      paidUntil: expect.any(String),
      accessUntil: expect.any(String),
      cancelAtPeriodEnd: false,
      canResume: false,
      nextDueAt: null,
      endsAt: null,
      openInvoice: {
        id: open.invoiceId,
        url: `${BASE_URL}/invoice/${open.invoiceId}`,
        amount: "5.00",
        currency: "USDC",
        dueAt: expect.any(String),
      },
    })
    const { body } = await invoices(id)
    expect(body).toMatchObject({
      total: 2,
      data: [
        { id: open.invoiceId, status: "open", receiptUrl: null, paidAt: null },
        { id: invoiceId, status: "paid", receiptUrl: `${BASE_URL}/receipt/${sessionId}` },
      ],
    })
    expect(JSON.stringify([seen, body])).not.toContain("secret")
  })

  it("learns what follows: the next payment, the end, or nothing while it is paused or over", async () => {
    const times = async (...made: Parameters<typeof subscribe>) => {
      const { paidUntil, nextDueAt, endsAt, openInvoice } = await find((await subscribe(...made)).id)
      return [nextDueAt === paidUntil, endsAt === paidUntil, openInvoice]
    }
    expect(await times()).toEqual([true, false, null])
    const ending = { cancel_at_period_end: true, cancel_asked_by: "subscriber" } as const
    expect(await times(ending)).toEqual([false, true, null])
    expect(await times({ max_periods: 1 })).toEqual([false, true, null])
    expect(await times({ max_periods: 2 })).toEqual([true, false, null])
    expect(await times({ status: "paused", paused_at: inDays(-1) })).toEqual([false, false, null])
    const over = { status: "canceled", cancel_reason: "unpaid", ended_at: inDays(-1) } as const
    expect(await times({ ...over, ...ending })).toEqual([false, false, null])
    // Voided but not closed yet: nobody is asked to pay it, unless somebody has begun to.
    const { id } = await subscribe()
    const withdrawn = await newInvoice(service, "shop", id, { invoice: { void_asked_at: inDays(0) } })
    expect([(await find(id)).openInvoice, (await invoices(id)).body.data[0].status]).toEqual([null, "void"])
    const session = service.ctx.db.updateTable("checkout_sessions").set({ status: "verifying" })
    await session.where("id", "=", withdrawn.sessionId).execute()
    expect([(await find(id)).openInvoice?.id, (await invoices(id)).body.data[0].status]).toEqual([
      withdrawn.invoiceId,
      "open",
    ])
  })

  it("cancels with the time that is paid, and takes that back; a pause is its merchant's", async () => {
    const { id } = await subscribe()
    const { invoiceId } = await newInvoice(service, "shop", id, { invoice: { due_at: inDays(2) } })
    const canceled = await ask(id, "cancel")
    const { paidUntil } = canceled.body
    expect(canceled).toMatchObject({
      status: 200,
      body: {
        id,
        status: "active",
        cancelAtPeriodEnd: true,
        canResume: true,
        endsAt: paidUntil,
        accessUntil: paidUntil,
        openInvoice: null,
      },
    })
    expect((await invoices(id)).body.data[0]).toMatchObject({ id: invoiceId, status: "void" })
    const refused = { status: 409, body: { error: "INVALID_OPERATION" } }
    expect(await ask(id, "cancel")).toMatchObject({ status: 200, body: { cancelAtPeriodEnd: true } })
    // Its invoice is still being closed, so a second one can't be created.
    expect(await ask(id, "resume")).toMatchObject(refused)

    const again = await subscribe()
    const resumed = [(await ask(again.id, "cancel")).status, await ask(again.id, "resume")]
    expect(resumed).toMatchObject([200, { status: 200, body: { cancelAtPeriodEnd: false, endsAt: null } }])
    expect(await ask(again.id, "resume")).toMatchObject({ status: 200, body: { cancelAtPeriodEnd: false } })
    const paused = await subscribe({ status: "paused", paused_at: inDays(-1) })
    expect(await ask(paused.id, "resume")).toMatchObject(refused)
    expect([(await ask(paused.id, "cancel")).status, await ask(paused.id, "resume")]).toMatchObject([
      200,
      { status: 200, body: { status: "paused", cancelAtPeriodEnd: false } },
    ])
    const over = await subscribe(
      { paid_until: inDays(-1) },
      { invoice: { period_end: inDays(-1), period_start: inDays(-30) } },
    )
    expect((await ask(over.id, "cancel")).body).toMatchObject({ status: "canceled" })
    expect(await ask(over.id, "cancel")).toMatchObject(refused)
  })

  it("that is a contract wallet (ERC-1271) sees and changes those of the network whose contract signed", async () => {
    const anvil = await startAnvil()
    const { chain } = service.ctx
    const { networks } = chain
    try {
      const base = { ...paperNetwork, name: "base" as const, chainId: 8453 }
      chain.networks = [{ ...paperNetwork, endpoints: [newEndpoint("base-sepolia", anvil.rpcUrl)] }, base]
      const address = await deployContractWallet(anvil.client, account.address)
      const made = (change?: object) => newSubscription(service, "shop", product, address, change)
      const here = await made()
      const elsewhere = await made({ chain_id: base.chainId })
      const asked = async () => (await service.call("POST", "/api/subscriptions/nonce", { address })).body.nonce
      const take = async (by: typeof account) =>
        service.call("POST", "/api/subscriptions/token", await signMessage(by, await asked(), { ...fields, address }))
      expect(await take(other)).toMatchObject({ status: 401, body: { error: "SIGNATURE_REFUSED" } })
      const { status, body } = await take(account)
      expect([status, body.address.toLowerCase()]).toEqual([200, address])
      const headers = { authorization: `Bearer ${body.accessToken}` }
      expect((await list(headers)).data.map((each: { id: string }) => each.id)).toEqual([here.id])
      expect(await ask(elsewhere.id, "cancel", headers)).toMatchObject({ status: 404 })
      expect((await ask(here.id, "cancel", headers)).body).toMatchObject({ cancelAtPeriodEnd: true, canResume: true })
    } finally {
      chain.networks = networks
      await anvil.stop()
    }
  })

  it("404 for another's, and nothing of it changes; one that has not begun is nobody's", async () => {
    const { id } = await subscribe()
    const none = { status: null, paid_until: null, access_until: null }
    const reversed = await subscribe(none, { session: { status: "pending", confirmed_at: null, tx_hash: null } })
    const before = await rows()
    const answers = [
      await invoices(id, theirs),
      await ask(id, "cancel", theirs),
      await ask(id, "resume", theirs),
      await invoices(reversed.id),
      await ask(reversed.id, "cancel"),
      await ask("sub_none", "cancel"),
    ]
    for (const answer of answers) expect(answer).toMatchObject({ status: 404, body: { error: "NOT_FOUND" } })
    expect(await rows()).toEqual(before)
    expect(await list(theirs)).toEqual({ data: [], total: 0 })
    expect(await find(reversed.id)).toBeUndefined()
  })

  it("401 without a token of its own kind, and its token is rejected elsewhere", async () => {
    const nonce = async (path: string, body?: object) => (await service.call("POST", path, body)).body.nonce
    const signedIn = await signMessage(account, await nonce("/api/auth/nonce"))
    const console = (await service.call("POST", "/api/auth/verify", signedIn)).body.accessToken
    const film = await service.call(
      "POST",
      "/api/console/paywalls",
      { name: "Film", price: 5, subscriptionProductId: product },
      { as: "shop" },
    )
    const { id } = film.body
    await subscribe()
    const opened = await signMessage(account, await nonce(`/api/paywalls/${id}/access/nonce`), accessFields(id))
    const { accessToken } = (
      await service.call("POST", `/api/paywalls/${id}/access`, { address: account.address, ...opened })
    ).body
    for (const headers of [
      {},
      { authorization: `Bearer ${console}` },
      { authorization: `Bearer ${accessToken}` },
      { authorization: `${mine.authorization}x` },
    ]) {
      const answer = await service.call("GET", "/api/subscriptions", undefined, { headers })
      expect(answer).toMatchObject({ status: 401, body: { error: "UNAUTHORIZED" } })
    }
    expect((await service.call("GET", "/api/console/settings", undefined, { headers: mine })).status).toBe(401)
    // A signature for one purpose is not valid for another, and each is valid once.
    const asked = () => nonce("/api/subscriptions/nonce", { address: account.address })
    const take = (body: object) => service.call("POST", "/api/subscriptions/token", body)
    expect((await take(await signMessage(account, await nonce("/api/auth/nonce"), fields))).status).toBe(401)
    expect((await take(await signMessage(account, await asked(), signInFields))).status).toBe(401)
    const good = await signMessage(account, await asked(), fields)
    expect([(await take(good)).status, (await take(good)).status]).toEqual([200, 401])
  })

  it("counts against its address, as all that is public", () => {
    const limits = { ...service.ctx.settings.limits, public: 5, linkStart: 3 }
    const caller = { subject: undefined, apiKey: undefined, ip: "192.0.2.1" }
    const bucketsOf = (method: string, path: string) =>
      countsOf(limits, method, path, caller).map(({ key }) => key.split(":").at(-1))
    for (const path of ["/api/subscriptions", "/api/subscriptions/nonce", "/api/subscriptions/sub_a/cancel"])
      expect([path, bucketsOf("POST", path)]).toEqual([path, ["public"]])
    expect(bucketsOf("POST", "/api/paywalls/pw_a/subscribe")).toEqual(["linkStart"])
  })
})
