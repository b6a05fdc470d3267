// Unpaid checkouts of long ago are put away, and come back as they were: by every way to ask for one, and by late money.
import { sql } from "kysely"
import { encodeFunctionData, erc20Abi, type Hex, parseUnits } from "viem"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import {
  type Anvil,
  deployDepositFactory,
  deployTestUsdc,
  placeSharedContracts,
  startAnvil,
} from "../../../test/anvil.ts"
import { fundPayers } from "../../../test/payers.ts"
import { type RpcProxy, startProxy } from "../../../test/proxy.ts"
import { startService, type TestService } from "../../../test/service.ts"
import { newEndpoint } from "../../platform/chain/endpoints.ts"
import type { Address } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { checkDormantDeposits, makeDepositsDormant, thinOut } from "../scanner/check-dormant-deposits.ts"
import { checkPutAway } from "../scanner/check-put-away.ts"
import { ensureCursor } from "../scanner/scan-round.ts"
import { verifyRound } from "../settlement/verify-payments.ts"
import { bringBack, crowdsAmong, putAway } from "./put-away.ts"

const MINUTE = 60_000
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR
let anvil: Anvil
let proxy: RpcProxy
let token: Address
let service: TestService

beforeAll(async () => {
  anvil = await startAnvil({ slotsInAnEpoch: 10 })
  token = await deployTestUsdc(anvil.client)
  const depositFactory = await deployDepositFactory(anvil.client, anvil.accounts[1].address)
  await placeSharedContracts(anvil.client)
  await fundPayers(anvil, token)
  proxy = await startProxy(anvil.rpcUrl)
  const rest = { token, depositFactory, confirmations: 1, sanctionsOracle: undefined }
  service = await startService({
    networks: [{ name: "base-sepolia", chainId: 84532, rpcUrls: [proxy.url], ...rest }],
  })
})
afterAll(async () => {
  await service?.stop()
  await proxy?.stop()
  await anvil?.stop()
})
beforeEach(async () => {
  await service.empty()
  await service.merchant("shop")
  await ensureCursor(service.ctx, network())
  await catchUp()
})

const ctx = () => service.ctx
const db = () => service.ctx.db
const network = (): Network => service.ctx.chain.networks[0] as Network
const as = { as: "shop" }

async function catchUp(): Promise<void> {
  const { timestamp } = await anvil.client.getBlock()
  const ahead = Number(timestamp) * 1_000 - ctx().now().getTime()
  if (ahead > 0) service.advance(ahead)
  else await anvil.client.setNextBlockTimestamp({ timestamp: BigInt(Math.floor(ctx().now().getTime() / 1_000)) + 1n })
}

/** Moves the time of the service and of the chain. */
async function pass(ms: number): Promise<void> {
  service.advance(ms)
  await catchUp()
  await anvil.client.mine({ blocks: 1 })
}

async function rounds(count = 2): Promise<void> {
  for (let i = 0; i < count; i++) {
    await anvil.client.mine({ blocks: 2 })
    await catchUp()
    await db()
      .updateTable("cursors")
      .set({ run_at: new Date(0) })
      .execute()
    await verifyRound(ctx(), network())
  }
}

async function pay(to: string, amount: string): Promise<Hex> {
  await catchUp()
  const data = encodeFunctionData({ abi: erc20Abi, functionName: "transfer", args: [to as Hex, parseUnits(amount, 6)] })
  const hash = await anvil.client.sendTransaction({ account: anvil.accounts[2], to: token, data })
  await anvil.client.waitForTransactionReceipt({ hash })
  return hash
}

interface Started {
  id: string
  payTo: string
}

async function start(body: object = { amount: 5 }): Promise<Started> {
  const { status, body: session } = await service.call("POST", "/api/console/checkouts", body, as)
  expect(status, JSON.stringify(session)).toBe(201)
  return session
}

/** A link, and checkouts that anyone opened from it. */
async function opened(count: number): Promise<Started[]> {
  await service.call("POST", "/api/console/payment-links", { title: "Sale", slug: "sale", amount: 5 }, as)
  const answers = []
  for (let i = 0; i < count; i++) answers.push(await service.call("POST", "/api/pay/sessions", { slug: "sale" }))
  return answers.map(({ body }) => ({ id: body.sessionId, payTo: body.payTo }))
}

/** The time of every open checkout passes, and their addresses leave the scan. */
async function expire(): Promise<void> {
  await pass(25 * HOUR)
  for (let i = 0; i < 3; i++) {
    await rounds(1)
    await pass(31_000)
  }
  await pass(2 * HOUR)
  await makeDepositsDormant(ctx(), network())
}

/** Reads the balances that are due. */
const check = async () => {
  await checkDormantDeposits(ctx(), network())
  await checkPutAway(ctx(), network())
}

/** Puts every unpaid checkout away. */
async function putAllAway(): Promise<void> {
  await expire()
  await pass(31 * DAY)
  await check()
}

const awayIds = async () => (await db().selectFrom("put_away").select("id").orderBy("id").execute()).map(({ id }) => id)
const sessionIds = async () =>
  (await db().selectFrom("checkout_sessions").select("id").orderBy("id").execute()).map(({ id }) => id)
const sorted = (sessions: readonly Started[]) => sessions.map(({ id }) => id).sort()
const rowsOf = async (table: "checkout_sessions" | "deposits") =>
  (await sql<Record<string, unknown>>`select * from ${sql.table(table)} order by created_at`.execute(db())).rows

describe("an unpaid checkout", () => {
  it("is put away 30 days after its end, and its rows come back as they were", async () => {
    await start({
      amount: "5.25",
      description: "Ham “and” eggs",
      redirectUrl: "https://shop.example/thanks",
      callbackUrl: "http://127.0.0.1:9/hook",
      customerEmail: "a@b.example",
      metadata: { order: 7, deep: { list: [1, 2, null], text: "ü" } },
      payerFields: ["name"],
    })
    await opened(1)
    await expire()
    const before = [await rowsOf("checkout_sessions"), await rowsOf("deposits")]
    await pass(29 * DAY)
    await check()
    expect(await awayIds()).toEqual([])
    await pass(2 * DAY)
    await check()
    expect([await rowsOf("checkout_sessions"), await rowsOf("deposits")]).toEqual([[], []])
    expect(await db().selectFrom("resources").select("id").execute()).toEqual([])
    const ids = await awayIds()
    expect(await bringBack(ctx(), { ids })).toEqual(expect.arrayContaining(ids))
    expect(await rowsOf("checkout_sessions")).toEqual(before[0])
    // The address gets another number, and its balance is due to be read. Both were made in the same moment.
    const at = expect.any(Date)
    const begun = { watched: false, watched_until: at, dormant_since: at, check_at: at, created_at: at }
    const number = expect.any(BigInt)
    const others = { id: number, watched_number: number, balanced_number: number }
    expect(await rowsOf("deposits")).toEqual(before[1]?.map(row => ({ ...row, ...begun, ...others })))
    const { rows } = await sql<{ n: number }>`select count(*)::int as n from deposits d join checkout_sessions s
      on s.id = d.resource_id and s.created_at = d.created_at`.execute(db())
    expect(rows).toEqual([{ n: 2 }])
    expect(await awayIds()).toEqual([])
  })

  it("of a link shares its terms with the link's others: a small row each", async () => {
    const sessions = await opened(20)
    await putAllAway()
    expect(await awayIds()).toEqual(sorted(sessions))
    expect((await db().selectFrom("put_away_terms").select("id").execute()).length).toBe(1)
    const { rows } = await sql<{ size: number }>`select max(pg_column_size(p)) as size from put_away p`.execute(db())
    expect(rows[0]?.size).toBeLessThan(260)
  })

  it("stays where anybody asked for it, submitted a hash, began to pay it, or was billed by it", async () => {
    const asked = await start()
    const submitted = await start()
    const paid = await start()
    const product = { name: "Club", price: "5", billingInterval: "month" }
    const { body } = await service.call("POST", "/api/console/products", product, as)
    const billed = await start({ productId: body.id })
    await pay(paid.payTo, "1")
    await rounds(2)
    const hash = `0x${"12".repeat(32)}`
    await service.call("POST", "/api/pay/confirm", { sessionId: submitted.id, txHash: hash })
    await expire()
    await pass(31 * DAY)
    await service.call("GET", `/pay/${asked.id}`)
    await rounds(3)
    // It is still looked for.
    await db().updateTable("submissions").set({ status: "verifying", reason: null }).execute()
    await pass(2 * HOUR)
    await makeDepositsDormant(ctx(), network())
    await check()
    expect(await awayIds()).toEqual([])
    await pass(2 * DAY)
    await check()
    expect(await awayIds()).toEqual([asked.id])
    expect(await sessionIds()).toEqual(sorted([submitted, paid, billed]))
  })

  it("takes the hashes along that were refused, and brings them back", async () => {
    const session = await start({ amount: 5, expiresIn: 3_600 })
    const txHash = await pay(anvil.accounts[5].address, "5")
    await service.call("POST", "/api/pay/confirm", { sessionId: session.id, txHash })
    await rounds(3)
    const { body: before } = await service.call("GET", `/api/pay/status/${session.id}?txHash=${txHash}`)
    expect(before.submission).toMatchObject({ txHash, status: "failed" })
    await putAllAway()
    expect(await awayIds()).toEqual([session.id])
    expect(await db().selectFrom("submissions").select("id").execute()).toEqual([])
    const { body: after } = await service.call("GET", `/api/pay/status/${session.id}?txHash=${txHash}`)
    expect(after).toMatchObject({ status: "failed", submission: before.submission })
  })

  it("stays, with all others of the part, while something new refers to it", async () => {
    await start()
    await opened(2)
    await expire()
    await pass(31 * DAY)
    const ids = (await db().selectFrom("deposits").select("id").execute()).map(({ id }) => id)
    await sql`create table refers (id text references resources)`.execute(db())
    try {
      await sql`insert into refers select min(id) from resources`.execute(db())
      expect(await putAway(ctx(), ids, { links: [], merchants: [] })).toBe(0)
      expect((await sessionIds()).length).toBe(3)
    } finally {
      await sql`drop table refers`.execute(db())
    }
    expect(await putAway(ctx(), ids, { links: [], merchants: [] })).toBe(3)
  })

  it("comes back once, whoever asks at the same time", async () => {
    const [session] = await opened(1)
    await putAllAway()
    const all = await Promise.all(Array.from({ length: 5 }, () => bringBack(ctx(), { ids: [session?.id ?? ""] })))
    expect(all.flat()).toEqual([session?.id])
    expect(await sessionIds()).toEqual([session?.id])
  })

  it("is there for everyone who asks at the same time", async () => {
    const [session] = (await opened(1)) as [Started]
    await putAllAway()
    const asked = Array.from({ length: 8 }, () => service.call("GET", `/api/pay/status/${session.id}`))
    expect((await Promise.all(asked)).map(({ status }) => status)).toEqual(Array.from({ length: 8 }, () => 200))
  })

  it("of an older factory stays, as its address could not be made again", async () => {
    const [session] = (await opened(2)) as [Started, Started]
    await expire()
    await pass(31 * DAY)
    await db()
      .transaction()
      .execute(async db => {
        await sql`set local session_replication_role = replica`.execute(db)
        await sql`update deposits set older_factory = true, approver = ${`0x${"0".repeat(40)}`}
          where resource_id = ${session.id}`.execute(db)
      })
    await check()
    expect((await awayIds()).length).toBe(1)
    expect(await sessionIds()).toEqual([session.id])
  })

  it("of before this version, whose address was no longer looked at, is put away too", async () => {
    await opened(1)
    await expire()
    await pass(40 * DAY)
    await db().updateTable("deposits").set({ check_at: null }).execute()
    await check()
    expect(await awayIds()).toEqual([])
    const { reconcileRound } = await import("../reconciliation/reconcile.ts")
    await reconcileRound(ctx(), network(), undefined)
    await check()
    expect((await awayIds()).length).toBe(1)
  })
})

describe("whoever asks for one that was put away gets it:", () => {
  const key = async () => (await service.call("POST", "/api/console/api-keys", { name: "Server" }, as)).body.key
  const ways: [string, (session: Started) => Promise<{ status: number; body: unknown }>, number][] = [
    ["its status", ({ id }) => service.call("GET", `/api/pay/status/${id}`), 200],
    ["its page", ({ id }) => service.call("GET", `/pay/${id}`), 200],
    ["the page's state", ({ id }) => service.call("GET", `/pay/${id}/status`), 200],
    [
      "its merchant's server",
      async ({ id }) =>
        service.call("GET", `/api/checkouts/${id}`, undefined, { headers: { "x-api-key": await key() } }),
      200,
    ],
    ["its merchant", ({ id }) => service.call("GET", `/api/console/checkouts/${id}`, undefined, as), 200],
    ["a change of it", ({ id }) => service.call("PUT", `/api/console/checkouts/${id}`, { description: "x" }, as), 200],
    ["the terms of its address", ({ payTo }) => service.call("GET", `/api/deposits/${payTo}`), 200],
    ["the page of its address", ({ payTo }) => service.call("GET", `/address/${payTo}`), 200],
    [
      "answers to it, which are refused as before",
      ({ id }) => service.call("POST", "/api/pay/payer-info", { sessionId: id, payerInfo: {} }),
      410,
    ],
    [
      "a hash of it, which is refused as before",
      ({ id }) => service.call("POST", "/api/pay/confirm", { sessionId: id, txHash: `0x${"12".repeat(32)}` }),
      410,
    ],
  ]
  it.each(ways)("%s", async (_name, ask, expected) => {
    const [session] = (await opened(1)) as [Started]
    await putAllAway()
    expect(await sessionIds()).toEqual([])
    const { status, body } = await ask(session)
    expect(status, JSON.stringify(body)).toBe(expected)
    expect(await sessionIds()).toEqual([session.id])
    expect(await awayIds()).toEqual([])
  })

  it("404 for what never was, and for another merchant", async () => {
    const [session] = (await opened(1)) as [Started]
    await putAllAway()
    expect((await service.call("GET", `/api/pay/status/cs_${"a".repeat(24)}`)).status).toBe(404)
    expect((await service.call("GET", `/api/deposits/0x${"1".repeat(40)}`)).status).toBe(404)
    await service.merchant("other")
    expect((await service.call("GET", `/api/console/checkouts/${session.id}`, undefined, { as: "other" })).status).toBe(
      404,
    )
  })

  it("the file of all addresses has it, and a payout address must not be it", async () => {
    const sessions = await opened(3)
    await putAllAway()
    await opened(0)
    const present = await start()
    const { body } = await service.call("GET", "/api/console/deposits.csv", undefined, as)
    const [head, first, ...rest] = `${body}`.trimEnd().split("\r\n")
    expect(head).toMatch(/^address,chain,/)
    expect(first).toContain(present.id)
    expect(rest.length).toBe(3)
    for (const { id, payTo } of sessions)
      expect(rest.filter(line => line.startsWith(`${payTo},base-sepolia,84532,`) && line.includes(id)).length).toBe(1)
    const [{ payTo }] = sessions as [Started]
    const change = { payoutAddresses: { "base-sepolia": payTo } }
    expect((await service.call("PUT", "/api/console/settings", change, as)).status).toBe(400)
  })
})

describe("late money at the address of one that was put away", () => {
  it("is found by its balance, and waits for the merchant", async () => {
    const [session, other] = (await opened(2)) as [Started, Started]
    await putAllAway()
    const txHash = await pay(session.payTo, "5")
    await pass(31 * DAY)
    await check()
    expect(await sessionIds()).toEqual([session.id])
    await rounds(3)
    const { body } = await service.call("GET", `/api/console/checkouts/${session.id}`, undefined, as)
    expect(body).toMatchObject({ status: "expired", exception: "late", amountReceived: "5.00" })
    const [payment] = await db().selectFrom("payments").selectAll().execute()
    expect(payment).toMatchObject({ resource_id: session.id, status: "open", tx_hash: txHash })
    expect(await awayIds()).toEqual([other.id])
  })

  it("is found when its payer looks at the page", async () => {
    const [session] = (await opened(1)) as [Started]
    await putAllAway()
    await pay(session.payTo, "5")
    await service.call("GET", `/pay/${session.id}`)
    await rounds(3)
    const { body } = await service.call("GET", `/api/pay/status/${session.id}`)
    expect(body).toMatchObject({ status: "expired", exception: "late", amountReceived: "5.00" })
  })

  it("is found when its merchant asks for it, by its balance", async () => {
    const [session] = (await opened(1)) as [Started]
    await putAllAway()
    await pay(session.payTo, "5")
    await service.call("GET", `/api/console/checkouts/${session.id}`, undefined, as)
    await check()
    await rounds(3)
    const { body } = await service.call("GET", `/api/console/checkouts/${session.id}`, undefined, as)
    expect(body).toMatchObject({ exception: "late", amountReceived: "5.00" })
  })

  it("is found by its hash, wherever that is submitted", async () => {
    const [session] = (await opened(1)) as [Started]
    await putAllAway()
    const other = await start()
    const txHash = await pay(session.payTo, "5")
    await service.call("POST", "/api/pay/confirm", { sessionId: other.id, txHash })
    await rounds(4)
    expect(await sessionIds()).toEqual(sorted([session, other]))
    const { body } = await service.call("GET", `/api/console/checkouts/${session.id}`, undefined, as)
    expect(body).toMatchObject({ status: "expired", exception: "late", amountReceived: "5.00" })
  })

  it("is not believed to be at many addresses on the word of one endpoint of two", async () => {
    await opened(120)
    await putAllAway()
    await pass(31 * DAY)
    const liar = await startProxy(anvil.rpcUrl)
    try {
      liar.spoil = (method, _params, result) =>
        method === "eth_call" ? String(result).replace(/0{64}(?=(0{62}01|$))/g, `${"0".repeat(63)}7`) : result
      const endpoints = [proxy.url, liar.url].map(url => newEndpoint("base-sepolia", url))
      await checkPutAway(ctx(), { ...network(), endpoints })
      expect((await sessionIds()).length).toBe(100)
    } finally {
      await liar.stop()
    }
  })
})

describe("the checkouts of a link that has too many", () => {
  const depositIds = async () => (await db().selectFrom("deposits").select("id").execute()).map(({ id }) => id)

  it("are put away a day after their end, and the balances of their addresses are read daily from then on", async () => {
    const sessions = await opened(4)
    const own = await start()
    await expire()
    const ids = await depositIds()
    expect(await crowdsAmong(ctx(), ids, { ofLink: 4 })).toEqual({ links: [], merchants: [] })
    const crowds = await crowdsAmong(ctx(), ids, { ofLink: 3 })
    expect(crowds).toEqual({ links: [expect.stringMatching(/^plink_/)], merchants: [] })
    expect(await putAway(ctx(), ids, crowds)).toBe(0)
    await pass(DAY)
    expect(await putAway(ctx(), ids, crowds)).toBe(4)
    expect(await sessionIds()).toEqual([own.id])
    const [session] = sessions as [Started]
    await pay(session.payTo, "5")
    await pass(DAY + MINUTE)
    await check()
    await rounds(3)
    const { body } = await service.call("GET", `/api/console/checkouts/${session.id}`, undefined, as)
    expect(body).toMatchObject({ exception: "late", amountReceived: "5.00" })
    expect((await awayIds()).length).toBe(3)
  })

  it("have their balances read hourly while their payer, who looked at the page, may still pay", async () => {
    const [seen, unseen] = (await opened(4)) as [Started, Started]
    service.advance(MINUTE)
    await service.call("GET", `/pay/${seen.id}`)
    await pass(2 * HOUR)
    await makeDepositsDormant(ctx(), network())
    await pass(HOUR)
    await db()
      .updateTable("deposits")
      .set({ check_at: new Date(0) })
      .execute()
    await checkDormantDeposits(ctx(), network(), { ofLink: 3 })
    const waits = async ({ id }: Started) => {
      const { check_at } = await db()
        .selectFrom("deposits")
        .select("check_at")
        .where("resource_id", "=", id)
        .executeTakeFirstOrThrow()
      return ((check_at?.getTime() ?? 0) - ctx().now().getTime()) / HOUR
    }
    expect([await waits(seen), await waits(unseen)].map(Math.round)).toEqual([1, 24])
  })

  it("can still be paid by a hash where they were put away within 30 days of their end", async () => {
    const [session] = (await opened(2)) as [Started]
    await expire()
    await pass(DAY)
    const ids = await depositIds()
    await putAway(ctx(), ids, await crowdsAmong(ctx(), ids, { ofLink: 1 }))
    expect(await sessionIds()).toEqual([])
    const txHash = await pay(session.payTo, "5")
    const { status } = await service.call("POST", "/api/pay/confirm", { sessionId: session.id, txHash })
    expect(status).toBe(200)
    await rounds(3)
    const { body } = await service.call("GET", `/api/pay/status/${session.id}`)
    expect(body).toMatchObject({ exception: "late", submission: { status: "granted" } })
  })

  it("leave the scan while they are open, except the newest and those that somebody looks at", async () => {
    const sessions = await opened(6)
    const own = await start()
    await rounds(1)
    const watched = async () => {
      const rows = await db()
        .selectFrom("deposits")
        .select("resource_id")
        .where("watched", "=", true)
        .orderBy("id")
        .execute()
      return rows.map(row => row.resource_id)
    }
    service.advance(MINUTE)
    const [first, second] = sessions as [Started, Started]
    await service.call("GET", `/pay/${first.id}`)
    await pay((sessions[2] as Started).payTo, "1")
    await rounds(1)
    await thinOut(ctx(), network(), { ofLink: 3 })
    // One that got money counts no more.
    const kept = [first, sessions[2], sessions[4], sessions[5], own]
    expect(await watched()).toEqual(kept.map(each => each?.id))
    // Whoever asks for one puts it back, and nothing that came meanwhile is missed.
    await pay(second.payTo, "5")
    await rounds(2)
    await service.call("GET", `/api/pay/status/${second.id}`)
    await rounds(3)
    expect((await service.call("GET", `/api/pay/status/${second.id}`)).body.status).toBe("confirmed")
    // The balance of those that nobody asks for is still read.
    await pay((sessions[3] as Started).payTo, "5")
    await pass(HOUR)
    await check()
    await rounds(3)
    expect((await service.call("GET", `/api/pay/status/${(sessions[3] as Started).id}`)).body.status).toBe("confirmed")
  })

  it("of all links of a merchant are counted together", async () => {
    await opened(3)
    await service.call("POST", "/api/console/payment-links", { title: "Two", slug: "two", amount: 5 }, as)
    for (let i = 0; i < 3; i++) await service.call("POST", "/api/pay/sessions", { slug: "two" })
    await rounds(1)
    await thinOut(ctx(), network(), { ofLink: 3, ofMerchant: 4 })
    const watched = await db().selectFrom("deposits").select("id").where("watched", "=", true).execute()
    expect(watched.length).toBe(4)
    expect((await crowdsAmong(ctx(), await depositIds(), { ofMerchant: 5 })).merchants.length).toBe(1)
  })
})

it("a thousand addresses that were put away cost two calls a day for 30 days, and two in 30 days after that", async () => {
  const [session] = (await opened(1)) as [Started]
  await putAllAway()
  await sql`update put_away set expires_at = ${new Date(ctx().now().getTime() - DAY)}, check_at = ${ctx().now()}`.execute(
    db(),
  )
  await sql`insert into put_away select 'cs_' || lpad(g::text, 24, '0'), merchant_id, chain_id, terms_id,
      decode(lpad(to_hex(g), 40, '0'), 'hex'), salt, open_after_s, watched_number, created_at, expires_at, updated_at, check_at
    from put_away p, generate_series(1, 999) g where p.id = ${session.id}`.execute(db())
  let day = 0
  const callsUntil = async (end: number) => {
    proxy.calls.clear()
    for (; day < end; day++) {
      await checkPutAway(ctx(), network())
      service.advance(DAY + 1)
    }
    return proxy.calls.get("eth_call") ?? 0
  }
  expect(await callsUntil(1)).toBe(2)
  expect(await callsUntil(29)).toBe(56)
  expect(await callsUntil(60)).toBe(4)
})
