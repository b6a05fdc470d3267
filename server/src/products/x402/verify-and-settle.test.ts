// The facilitator: payments of another server, each settled once, whatever is asked twice or lost on the way.
import { randomUUID } from "node:crypto"
import { EventEmitter } from "node:events"
import { request as httpRequest } from "node:http"
import type { FastifyReply } from "fastify"
import { sql, type UpdateObject } from "kysely"
import { getGlobalDispatcher } from "undici"
import type { PrivateKeyAccount } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from "vitest"
import { backUp, onPostgres } from "../../../test/database.ts"
import { type Operator, openOperator } from "../../../test/operator.ts"
import { type PayoutRig, startPayoutRig } from "../../../test/payouts.ts"
import { relaysOn, type Signed, signAuthorization } from "../../../test/relays.ts"
import { relayRow, writeRelays } from "../../ledger/relays/accept-relay.ts"
import { relayLane } from "../../ledger/relays/relay-lane.ts"
import { checkWallet } from "../../ledger/txmanager/lock-wallet.ts"
import { checkDatabase } from "../../operations/doctor/check-database.ts"
import { type Authorization, authorizationDigest, relayCall } from "../../platform/chain/authorizations.ts"
import { type Address, checksummed, type Hash } from "../../platform/chain/hex.ts"
import type { Settings } from "../../platform/config/settings.ts"
import { type Context, inTransaction } from "../../platform/context.ts"
import { DatabaseUnavailable } from "../../platform/db/pool.ts"
import type { Database } from "../../platform/db/schema.ts"
import { newId } from "../../platform/ids.ts"
import { recordAnswered, takeServing } from "./lease-settlement.ts"
import { type Outcome, outcomeOf, readSettlement, readUnlessPending } from "./read-outcome.ts"
import { settle as settleCall } from "./verify-and-settle.ts"
import { writeFirstClaim } from "./write-claims.ts"

/** The selector of the call that carries a payment out with a key's signature. */
const TRANSFER_WITH_AUTHORIZATION = "0xe3ee160e"
const payTo = `0x${"5e".repeat(20)}` as Address

let rig: PayoutRig
let on: ReturnType<typeof relaysOn>
let origin: string
let key: string
beforeAll(async () => {
  rig = await startPayoutRig()
  on = relaysOn(rig)
  origin = await rig.service.listen()
})
afterAll(() => rig?.stop())
beforeEach(async () => {
  await on.begin()
  key = await keyOf("shop")
})

async function keyOf(as: string): Promise<string> {
  await rig.service.merchant(as)
  const { body } = await rig.service.call("POST", "/api/console/api-keys", { name: "server" }, { as })
  return body.key
}

const termsOf = (amount = "10000") => ({
  scheme: "exact",
  network: "eip155:84532",
  amount,
  asset: checksummed(rig.token),
  payTo,
  maxTimeoutSeconds: 60,
  extra: { name: "USDC", version: "2" },
})

const sign = (buyer: PrivateKeyAccount, given: Partial<Authorization> = {}): Promise<Signed> => {
  const validBefore = BigInt(Math.floor(rig.service.ctx.now().getTime() / 1_000) + 60)
  return signAuthorization(buyer, rig.network, { to: payTo, value: 10_000n, validBefore, ...given })
}

const payloadOf = ({ authorization, signature }: Signed, identifier?: string) => ({
  x402Version: 2,
  accepted: termsOf(),
  payload: {
    signature,
    authorization: Object.fromEntries(Object.entries(authorization).map(([name, value]) => [name, `${value}`])),
  },
  ...(identifier ? { extensions: { "payment-identifier": { info: { required: false, id: identifier } } } } : {}),
})
const bodyOf = (signed: Signed, identifier?: string) => ({
  x402Version: 2,
  paymentPayload: payloadOf(signed, identifier),
  paymentRequirements: termsOf(),
})

const post = (url: string, body: object, headers: Record<string, string> = {}) =>
  rig.service.request("POST", url, body, { headers: { "x-api-key": key, ...headers } })
const settle = (body: object, headers: Record<string, string> = {}) => post("/x402/settle", body, headers)
const relayed = (count = 1) =>
  expect.poll(async () => (await on.relays()).length, { interval: 5, timeout: 20_000 }).toBeGreaterThanOrEqual(count)

/** Settles a payment, while the engine carries it out. */
async function settled(body: object, headers: Record<string, string> = {}) {
  const count = (await on.relays()).length + 1
  const [{ body: answer }] = await Promise.all([settle(body, headers), relayed(count).then(() => on.round())])
  return answer
}
const stored = async () => {
  const { rows } = await sql<{ n: number }>`select count(*)::int as n from settlements`.execute(rig.service.ctx.db)
  return [rows[0]?.n, (await on.relays()).length]
}

/** Makes the first claims of a merchant, before they are written. */
async function claimsOf(as: string) {
  const { ctx } = rig.service
  const merchant_id = await rig.service.merchant(as)
  const now = ctx.now()
  const { chainId: chain_id, token } = rig.network
  return async ({ authorization, signature }: Signed, identifier: string | null = null) => {
    const digest = authorizationDigest(rig.network, authorization)
    const id = randomUUID()
    const to = { merchantId: merchant_id }
    const relay = { kind: "settle" as const, authorization, digest, relayBy: now, to }
    const { from: payer, nonce, to: pay_to, value: amount, validBefore: valid_before } = authorization
    return {
      relay: relayRow(ctx, rig.network, { id, data: relayCall(authorization, signature, "key"), gas: 1n }, relay),
      settlement: {
        id: newId("set"),
        merchant_id,
        identifier,
        chain_id,
        token: token.address,
        payer,
        nonce,
        digest,
        pay_to,
        amount,
        valid_before,
        binding: "b",
        payload_hash: "p",
        payout_id: id,
        resource_id: null,
        claim_id: null,
        caller: "",
        created_at: now,
        updated_at: now,
      },
    }
  }
}

describe("the facilitator", () => {
  it("claims payments at once as it would each alone, though one has another's identifier, and one comes twice", async () => {
    const { ctx } = rig.service
    const claim = await claimsOf("shop")
    const buyer = await on.buyer()
    const twice = await sign(buyer)
    const claims = await Promise.all([
      claim(twice),
      claim(twice),
      claim(await sign(buyer)),
      claim(await sign(buyer)),
      claim(await sign(buyer), "same"),
      claim(await sign(buyer), "same"),
    ])
    const rows = await Promise.all(claims.map(each => writeFirstClaim(ctx, each)))
    const mine = rows.map((row, i) => row === undefined || row.id === claims[i]?.settlement.id)
    expect(mine).toEqual(Array(6).fill(true))
    const written = rows.map(row => row !== undefined)
    expect([written.slice(0, 2).sort(), written.slice(2, 4), written.slice(4).sort()]).toEqual([
      [false, true],
      [true, true],
      [false, true],
    ])
    expect(await stored()).toEqual([4, 4])

    // If the database is down, it is waited for only once.
    let tries = 0
    const transaction = () => {
      tries++
      throw new DatabaseUnavailable(new Error("no connection"))
    }
    const db = Object.assign(Object.create(ctx.db), { transaction })
    const gone: Context = { ...ctx, db }
    const refused = await Promise.allSettled(claims.map(each => writeFirstClaim(gone, each)))
    expect([tries, refused.map(({ status }) => status)]).toEqual([1, Array(6).fill("rejected")])

    // Of concurrent requests for the right to serve, one gets it for each payment, and only that one can end it.
    const [one, other] = rows.flatMap(row => row?.id ?? [])
    const rights = [one, other, one, other, one].map(id => ({ id: id ?? "", claimId: randomUUID() }))
    const callers = ["", "", "", "", "elsewhere"]
    const taken = await Promise.all(rights.map((right, i) => takeServing(ctx, right, callers[i] ?? "")))
    const ended = await Promise.all(rights.map(right => recordAnswered(ctx, right)))
    expect(ended).toEqual(taken.map(each => each !== undefined))
    expect([ended.filter((_, i) => i % 2 === 0), ended.filter((_, i) => i % 2 === 1)].map(each => each.sort())).toEqual(
      [
        [false, false, true],
        [false, true],
      ],
    )
    expect(ended[4]).toBe(false)
  })

  it.runIf(onPostgres)(
    "writes claims that come with one which another process holds, and leaves that one to wait",
    async () => {
      const { ctx } = rig.service
      const claim = await claimsOf("shop")
      const buyer = await on.buyer()
      const nonce = await sign(buyer)
      const id = await sign(buyer)
      const sameNonce = await claim(nonce)
      const sameId = await claim(id, "same")
      const innocents = await Promise.all([
        claim(await sign(buyer)),
        claim(await sign(buyer)),
        claim(await sign(buyer)),
      ])
      const held = Promise.withResolvers<void>()
      const letGo = Promise.withResolvers<void>()
      const gone = new Error("the other process has died")
      const frozen = inTransaction(ctx, async ctx => {
        const others = [await claim(nonce), await claim(await sign(buyer), "same")]
        await writeRelays(
          ctx,
          others.map(({ relay }) => relay),
        )
        await ctx.db
          .insertInto("settlements")
          .values(others.map(({ settlement }) => ({ ...settlement, from_block: 0n })))
          .execute()
        held.resolve()
        await letGo.promise
        throw gone
      })
      await Promise.race([held.promise, frozen])
      const waiting = [sameNonce, sameId].map(each => writeFirstClaim(ctx, each))
      const rows = await Promise.all(innocents.map(each => writeFirstClaim(ctx, each))).finally(letGo.resolve)
      expect(rows.map(row => row?.id)).toEqual(innocents.map(({ settlement }) => settlement.id))
      await expect(frozen).rejects.toBe(gone)
      expect((await Promise.all(waiting)).map(row => row?.id)).toEqual(
        [sameNonce, sameId].map(each => each.settlement.id),
      )
    },
  )

  it.runIf(onPostgres)("claims in two processes whose identifiers cross do not deadlock", async () => {
    const { db, log } = rig.service.ctx
    const retried: unknown[] = []
    const noting = Object.assign(Object.create(log), { info: (_: object, text: string) => retried.push(text) })
    const claim = await claimsOf("shop")
    const buyer = await on.buyer()
    // Each transaction takes its first identifier before either asks for its second.
    await sql`create function slow() returns trigger language plpgsql as $$ begin
      perform set_config('deadlock_timeout', '10ms', true), pg_sleep(0.05); return new; end $$`.execute(db)
    await sql`create trigger slow before insert on settlements for each row execute function slow()`.execute(db)
    const processes = await Promise.all(
      ["ab", "ba"].map(async identifiers => {
        const signed = [await sign(buyer), await sign(buyer)].sort((a, b) =>
          a.authorization.nonce < b.authorization.nonce ? -1 : 1,
        )
        const claims = await Promise.all(signed.map((each, i) => claim(each, identifiers[i])))
        return { ctx: { ...rig.service.ctx, log: noting }, claims }
      }),
    )
    const rows = await Promise.all(
      processes.flatMap(({ ctx, claims }) => claims.map(each => writeFirstClaim(ctx, each))),
    ).finally(() => sql`drop function slow cascade`.execute(db))
    expect(rows.flatMap(row => row?.identifier ?? []).sort()).toEqual(["a", "b"])
    expect(retried).toEqual([])
  })

  it("says what it supports, to anyone", async () => {
    const { body } = await rig.service.call("GET", "/x402/supported")
    const extra = { asset: checksummed(rig.token), decimals: 6, name: "USDC", version: "2" }
    expect(body).toEqual({
      kinds: [
        { x402Version: 1, scheme: "exact", network: "base-sepolia", extra },
        { x402Version: 2, scheme: "exact", network: "eip155:84532", extra },
      ],
      extensions: [],
      signers: { "eip155:*": [checksummed(rig.relayer.address)] },
    })
    expect((await rig.service.call("POST", "/x402/settle", bodyOf(await sign(await on.buyer())))).status).toBe(401)
  })

  it("verifies a payment of either version, and writes nothing", async () => {
    const buyer = await on.buyer()
    const signed = await sign(buyer)
    expect((await post("/x402/verify", bodyOf(signed))).body).toEqual({ isValid: true, payer: buyer.address })
    const { amount, ...rest } = termsOf()
    const requirements = {
      ...rest,
      network: "base-sepolia",
      maxAmountRequired: amount,
      resource: "http://a.test/",
      description: "",
      mimeType: "",
    }
    const v1 = { x402Version: 1, scheme: "exact", network: "base-sepolia", payload: payloadOf(signed).payload }
    const old = { x402Version: 1, paymentPayload: v1, paymentRequirements: requirements }
    expect((await post("/x402/verify", old)).body).toEqual({ isValid: true, payer: buyer.address })
    expect(await stored()).toEqual([0, 0])
    expect(await settled(old)).toMatchObject({ success: true, network: "base-sepolia" })
  })

  it.each<[string, (signed: Signed) => object, string]>([
    [
      "another scheme",
      s => ({ ...bodyOf(s), paymentRequirements: { ...termsOf(), scheme: "upto" } }),
      "unsupported_scheme",
    ],
    [
      "another network",
      s => ({ ...bodyOf(s), paymentRequirements: { ...termsOf(), network: "eip155:1" } }),
      "invalid_network",
    ],
    [
      "another token",
      s => ({ ...bodyOf(s), paymentRequirements: { ...termsOf(), asset: payTo } }),
      "invalid_payment_requirements",
    ],
    [
      "another amount",
      s => ({ ...bodyOf(s), paymentRequirements: termsOf("10001") }),
      "invalid_exact_evm_payload_authorization_value",
    ],
    [
      "a payment to somebody else",
      s => ({ ...bodyOf(s), paymentRequirements: { ...termsOf(), payTo: rig.token } }),
      "invalid_exact_evm_payload_recipient_mismatch",
    ],
    [
      "a forged signature",
      s => bodyOf({ ...s, signature: `0x${"11".repeat(64)}1b` }),
      "invalid_exact_evm_payload_signature",
    ],
  ])("refuses %s in both calls, and writes nothing", async (_name, make, reason) => {
    const body = make(await sign(await on.buyer()))
    expect((await post("/x402/verify", body)).body).toMatchObject({ isValid: false, invalidReason: reason })
    expect((await settle(body)).body).toMatchObject({ success: false, errorReason: reason, transaction: "" })
    expect(await stored()).toEqual([0, 0])
  })

  it("simulates what comes at once in one exchange, and answers each for itself", async () => {
    const rich = await on.buyer()
    const poor = await on.buyer(9_999n)
    const buyers = [rich, rich, poor, rich, rich, rich]
    const signed = await Promise.all(buyers.map(buyer => sign(buyer)))
    const exchanges = vi.spyOn(getGlobalDispatcher(), "dispatch")
    // Injected, so that they come in one turn.
    const headers = { "x-api-key": key }
    const verify = (each: Signed) => rig.service.call("POST", "/x402/verify", bodyOf(each), { headers })
    const answers = await Promise.all(signed.map(verify))
    const simulated = exchanges.mock.calls.filter(
      ([{ origin, body }]) =>
        origin === new URL(rig.proxy.url).origin && `${body}`.includes(TRANSFER_WITH_AUTHORIZATION),
    )
    exchanges.mockRestore()
    expect(answers.map(({ body }) => body.invalidReason ?? "valid")).toEqual(
      buyers.map(buyer => (buyer === poor ? "insufficient_funds" : "valid")),
    )
    expect(simulated.length).toBeGreaterThan(0)
    expect(simulated.length).toBeLessThan(signed.length)
  })

  it("reads again, of those who wait, whatever is not pending", async () => {
    const { ctx } = rig.service
    const claim = await claimsOf("shop")
    const row = await writeFirstClaim(ctx, await claim(await sign(await on.buyer())))
    const { id = "", payout_id: payout = "" } = row ?? {}
    const hash = `0x${"12".repeat(32)}` as Hash
    const at = { wallet: rig.relayer.address, nonce: 7n, tx_hash: hash, block_hash: hash, block_number: 1n }
    const of = (set: UpdateObject<Database, "payouts">) =>
      ctx.db.updateTable("payouts").set(set).where("id", "=", payout).execute()
    const note = (set: UpdateObject<Database, "settlements">) =>
      ctx.db.updateTable("settlements").set(set).where("id", "=", id).execute()
    const back = () =>
      ctx.db.transaction().execute(async db => {
        await sql`set local session_replication_role = replica`.execute(db)
        const none = { wallet: null, nonce: null, tx_hash: null, block_hash: null, block_number: null, succeeded: null }
        await db
          .updateTable("payouts")
          .set({ ...none, state: "queued" })
          .where("id", "=", payout)
          .execute()
        await db
          .updateTable("settlements")
          .set({ found_hash: null, found_block: null, failed_at: null })
          .where("id", "=", id)
          .execute()
      })
    const states: [Outcome["state"] | undefined, () => Promise<unknown>][] = [
      ["pending", async () => {}],
      ["settled", () => note({ found_hash: hash, found_block: 1n })],
      ["failed", () => note({ failed_at: ctx.now() })],
      [undefined, () => of({ state: "cancelled" })],
      ["settled", () => of({ ...at, state: "mined", succeeded: true })],
      [undefined, () => of({ ...at, state: "mined", succeeded: false })],
      ["pending", () => of({ wallet: at.wallet, nonce: at.nonce, state: "assigned" })],
    ]
    for (const [expected, become] of states) {
      await become()
      const [read, moved] = await Promise.all([readSettlement(ctx, id), readUnlessPending(ctx, id)])
      expect([read && outcomeOf(read)?.state, moved]).toEqual([expected, expected === "pending" ? undefined : read])
      await back()
    }
  })

  it("answers a malformed payload with every fault", async () => {
    const { status, body } = await settle({ paymentPayload: { x402Version: 2 }, paymentRequirements: termsOf() })
    expect([status, body.errorReason]).toEqual([200, "invalid_payload"])
    expect(body.errorMessage).toContain("`paymentPayload.accepted` must be the paid entry of `accepts`.")
    expect((await settle({ paymentPayload: {} })).body.error).toBe("VALIDATION_ERROR")
    expect(await stored()).toEqual([0, 0])
  })

  it("moves the money to the payee, and never through a deposit", async () => {
    const buyer = await on.buyer(10_000n)
    const signed = await sign(buyer)
    const answer = await settled(bodyOf(signed))
    expect(answer).toEqual({
      success: true,
      payer: buyer.address,
      transaction: expect.stringMatching(/^0x[0-9a-f]{64}$/),
      network: "eip155:84532",
    })
    expect(await on.received(payTo)).toContain(10_000n)
    const path = `/x402/settlements/${buyer.address}/${signed.authorization.nonce}`
    const read = await rig.service.call("GET", path, undefined, { headers: { "x-api-key": key } })
    expect(read.body).toMatchObject({
      status: "settled",
      txHash: answer.transaction,
      payer: buyer.address,
      amount: "10000",
      isAnswered: true,
    })
    const stranger = await keyOf("another")
    expect((await rig.service.call("GET", path, undefined, { headers: { "x-api-key": stranger } })).status).toBe(404)
    const { body } = await rig.service.call("GET", "/api/console/transactions?type=agent", undefined, { as: "shop" })
    expect(body.data).toMatchObject([
      { type: "agent", amount: "0.01", recipient: checksummed(payTo), txHash: answer.transaction },
    ])
  })

  it("answers success once of fifty requests, and the others with the transaction", async () => {
    const before = (await on.received(payTo)).length
    const body = bodyOf(await sign(await on.buyer()))
    const [answers] = await Promise.all([
      Promise.all(Array.from({ length: 50 }, () => settle(body))),
      relayed().then(() => on.round()),
    ])
    const good = answers.filter(each => each.body.success)
    expect(good.length).toBe(1)
    const rest = answers
      // A node that takes long on a busy machine counts as silent (503); such a request writes nothing.
      .filter(each => !each.body.success && each.status !== 503)
      .map(each => [each.status, each.body.errorReason, each.body.transaction])
    expect([...new Set(rest.map(each => each.join(" ")))]).toEqual([
      `200 duplicate_settlement ${good[0]?.body.transaction}`,
    ])
    expect((await on.received(payTo)).length).toBe(before + 1)
  })

  it("gives the first answer again to the same payment with its Idempotency-Key, and refuses another with it", async () => {
    const signed = await sign(await on.buyer())
    const headers = { "idempotency-key": "order-1" }
    const answer = await settled(bodyOf(signed), headers)
    expect(answer.success).toBe(true)
    expect((await settle(bodyOf(signed), headers)).body).toEqual(answer)
    const again = { errorReason: "duplicate_settlement", transaction: answer.transaction }
    expect((await settle(bodyOf(signed))).body).toMatchObject(again)
    const refused = await settle(bodyOf(await sign(await on.buyer())), headers)
    expect([refused.status, refused.body.error]).toEqual([409, "PAYMENT_IDENTIFIER_USED"])
    expect((await on.relays()).length).toBe(1)
  })

  it("answers success once, though a call that repeats the answer by its key is cut off", async () => {
    const { ctx } = rig.service
    const body = bodyOf(await sign(await on.buyer()))
    const headers = { "idempotency-key": "order-1" }
    expect((await settled(body, headers)).success).toBe(true)
    const raw = Object.assign(new EventEmitter(), { destroyed: false })
    const reply = { raw } as unknown as FastifyReply
    const options = { merchantId: await rig.service.merchant("shop"), idempotencyKey: "order-1", confirmations: 1 }
    expect((await settleCall(ctx, reply, body, options)).success).toBe(true)
    raw.emit("close")
    await sql`update settlements set lease_until = clock_timestamp() - interval '1 second'`.execute(ctx.db)
    for (const other of [{}, { "idempotency-key": "order-2" }])
      expect((await settle(body, other)).body.errorReason).toBe("duplicate_settlement")
    expect((await settle(body, headers)).body.success).toBe(true)
  })

  it("answers the next call at once where the caller of the one before was gone when its payment was settled", async () => {
    const { ctx } = rig.service
    const signed = bodyOf(await sign(await on.buyer()))
    const body = { ...signed, paymentRequirements: { ...termsOf(), maxTimeoutSeconds: 0.01 } }
    expect((await settle(body)).body.errorReason).toBe("settlement_pending")
    await on.round()
    const gone = { raw: Object.assign(new EventEmitter(), { destroyed: true }) } as unknown as FastifyReply
    const options = { merchantId: await rig.service.merchant("shop"), idempotencyKey: undefined, confirmations: 1 }
    await settleCall(ctx, gone, body, options)
    expect((await settle(body)).body.success).toBe(true)
    expect((await settle(body)).body.errorReason).toBe("duplicate_settlement")
  })

  it("repeats an answer by its key only once it was sent: another call with the key does not take the right away", async () => {
    const { ctx } = rig.service
    const body = {
      ...bodyOf(await sign(await on.buyer())),
      paymentRequirements: { ...termsOf(), maxTimeoutSeconds: 0.01 },
    }
    const headers = { "idempotency-key": "order-1" }
    expect((await settle(body, headers)).body.errorReason).toBe("settlement_pending")
    await on.round()
    const { id } = await ctx.db.selectFrom("settlements").select("id").executeTakeFirstOrThrow()
    const first = { id, claimId: randomUUID() }
    expect(await takeServing(ctx, first, await rig.service.merchant("shop"))).toBeDefined()
    expect((await settle(body, headers)).body.errorReason).toBe("settlement_pending")
    expect(await recordAnswered(ctx, first)).toBe(true)
    expect((await settle(body, headers)).body.success).toBe(true)
  })

  it("answers success once, though the key that named the payment was never answered", async () => {
    const signed = bodyOf(await sign(await on.buyer()))
    const body = { ...signed, paymentRequirements: { ...termsOf(), maxTimeoutSeconds: 0.01 } }
    const [one, other] = ["order-1", "order-2"].map(key => ({ "idempotency-key": key }))
    expect((await settle(body, one)).body.errorReason).toBe("settlement_pending")
    await on.round()
    expect((await settle(signed, other)).body.success).toBe(true)
    for (const later of [one, other]) expect((await settle(body, later)).body.errorReason).toBe("duplicate_settlement")
  })

  it("answers success once for a payment that its buyer named: the seller chose no such name", async () => {
    const body = bodyOf(await sign(await on.buyer()), "order_0123456789abcdef")
    expect((await settled(body)).success).toBe(true)
    expect((await settle(body)).body.errorReason).toBe("duplicate_settlement")
  })

  it("answers the next call where the first answer was lost", async () => {
    const body = bodyOf(await sign(await on.buyer()))
    const headers = { "content-type": "application/json", "x-api-key": key }
    const cut = httpRequest(`${origin}/x402/settle`, { method: "POST", headers })
    cut.on("error", () => {})
    cut.end(JSON.stringify(body))
    await relayed()
    cut.destroy()
    const { db } = rig.service.ctx
    const claim = () => db.selectFrom("settlements").select("claim_id").executeTakeFirst()
    await expect.poll(claim, { timeout: 20_000 }).toEqual({ claim_id: null })
    await on.round()
    expect((await settle(body)).body.success).toBe(true)
    expect((await settle(body)).body.errorReason).toBe("duplicate_settlement")
    expect((await on.relays()).length).toBe(1)
  })

  /** Has the database refuse the first change of a column of `settlements`, until the test ends. */
  async function failOnce(column: "answered_at" | "identifier"): Promise<void> {
    const { db } = rig.service.ctx
    const name = sql.ref(column)
    // A sequence counts on where a transaction is rolled back.
    await sql`create sequence refused`.execute(db)
    await sql`create function refuse_once() returns trigger language plpgsql as $$ begin
      if nextval('refused') = 1 then raise 'disk full' using errcode = '53100'; end if; return new; end $$`.execute(db)
    await sql`create trigger refuse_once before update of ${name} on settlements for each row
      when (old.${name} is distinct from new.${name}) execute function refuse_once()`.execute(db)
    onTestFinished(async () => {
      await sql`drop function refuse_once cascade`.execute(db)
      await sql`drop sequence refused`.execute(db)
    })
  }

  it("answers success once, though the database fails when the end of the answer is recorded", async () => {
    const { db } = rig.service.ctx
    const body = bodyOf(await sign(await on.buyer()))
    await failOnce("answered_at")
    expect((await settled(body)).success).toBe(true)
    const recorded = async () =>
      (await db.selectFrom("settlements").select("answered_at").executeTakeFirst())?.answered_at ?? null
    await expect.poll(recorded, { timeout: 20_000 }).not.toBeNull()
    await sql`update settlements set lease_until = clock_timestamp() - interval '1 second'`.execute(db)
    expect((await settle(body)).body.errorReason).toBe("duplicate_settlement")
  })

  it("answers success once after an error that came when the right to answer had been taken", async () => {
    const { db } = rig.service.ctx
    const body = bodyOf(await sign(await on.buyer()))
    const quick = { ...body, paymentRequirements: { ...termsOf(), maxTimeoutSeconds: 0.01 } }
    expect((await settle(quick, { "idempotency-key": "order-1" })).body.errorReason).toBe("settlement_pending")
    await on.round()
    await failOnce("identifier")
    expect((await settle(body, { "idempotency-key": "order-2" })).status).toBeGreaterThanOrEqual(500)
    const free = async () => (await db.selectFrom("settlements").select("claim_id").executeTakeFirst())?.claim_id
    await expect.poll(free, { timeout: 20_000 }).toBeNull()
    expect((await settle(body)).body.success).toBe(true)
    expect((await settle(body)).body.errorReason).toBe("duplicate_settlement")
  })

  it("takes no more of a wallet of which 256 payments wait, and still answers those that it took", async () => {
    const { db } = rig.service.ctx
    const wallet = await on.buyer()
    const first = { ...bodyOf(await sign(wallet)), paymentRequirements: { ...termsOf(), maxTimeoutSeconds: 0.01 } }
    expect((await settle(first)).body.errorReason).toBe("settlement_pending")
    await sql`insert into payouts select (jsonb_populate_record(i, jsonb_build_object('id', gen_random_uuid(),
        'source_key', 'copy:' || n, 'auth_nonce', '0x' || lpad(to_hex(n), 64, '0'), 'amount', 1))).*
      from payouts i, generate_series(1, 255) n`.execute(db)
    const next = bodyOf(await sign(wallet))
    expect((await settle(next)).body).toMatchObject({
      success: false,
      errorReason: "settlement_pending",
      errorMessage: expect.stringMatching(/^256 payments of this wallet .* This one paid nothing/),
    })
    expect((await stored())[0]).toBe(1)
    expect((await settle(first)).body.errorReason).toBe("settlement_pending")
    await sql`delete from payouts where source_key = 'copy:1'`.execute(db)
    expect((await settle({ ...first, ...next, paymentRequirements: first.paymentRequirements })).body.errorReason).toBe(
      "settlement_pending",
    )
    expect((await stored())[0]).toBe(2)
  })

  it("takes a wallet's payment, though hundreds that others forged in its name are being checked", async () => {
    const wallet = await on.buyer()
    const other = await on.buyer()
    const held = Promise.withResolvers<void>()
    // A forged signature may be a contract's, so the chain is asked.
    const isAsked = (params: unknown[]) => JSON.stringify(params).includes("1626ba7e")
    let asked = 0
    rig.proxy.spoil = async (_method, params, result) => {
      if (!isAsked(params)) return result
      asked++
      await held.promise
      return result
    }
    const from = wallet.address.toLowerCase() as Address
    // Signed before: the chain is waited for five seconds, and then the places would be free.
    const bodies = await Promise.all(Array.from({ length: 300 }, async () => bodyOf(await sign(other, { from }))))
    const own = { ...bodyOf(await sign(wallet)), paymentRequirements: { ...termsOf(), maxTimeoutSeconds: 0.01 } }
    const forged = bodies.map(body => settle(body))
    await expect.poll(() => asked, { timeout: 20_000 }).toBeGreaterThanOrEqual(256)
    expect((await settle(own)).body.errorReason).toBe("settlement_pending")
    held.resolve()
    // On a busy machine some end because the chain did not answer in time.
    const refused = new Set(["invalid_exact_evm_payload_signature", undefined])
    for (const { body } of await Promise.all(forged))
      expect([body.success === true, refused.has(body.errorReason)]).toEqual([false, true])
    expect((await stored())[0]).toBe(1)
  })

  it("refuses a payment for more than it was signed for, also where it is settled already or on its way", async () => {
    const body = bodyOf(await sign(await on.buyer()))
    const dear = { ...body, paymentRequirements: termsOf("100000000") }
    const elsewhere = { ...body, paymentRequirements: { ...termsOf(), payTo: `0x${"5f".repeat(20)}` } }
    const accepted = { ...body.paymentPayload, accepted: termsOf("100000000") }
    const others: [object, string][] = [
      [dear, "invalid_exact_evm_payload_authorization_value"],
      [elsewhere, "invalid_exact_evm_payload_recipient_mismatch"],
      [{ ...body, paymentPayload: accepted }, "invalid_payment_requirements"],
    ]
    const refused = async (headers: Record<string, string> = {}) => {
      for (const [other, errorReason] of others)
        expect((await settle(other, headers)).body).toMatchObject({ success: false, errorReason, transaction: "" })
    }
    const quick = { ...body, paymentRequirements: { ...termsOf(), maxTimeoutSeconds: 0.01 } }
    const headers = { "idempotency-key": "order-7" }
    expect((await settle(quick, headers)).body.errorReason).toBe("settlement_pending")
    await refused()
    await on.round()
    await refused(headers)
    expect((await settle(body, headers)).body.success).toBe(true)
    await refused(headers)
    expect((await on.relays()).length).toBe(1)
  })

  it("answers settlement_pending when the buyer's time is over, and the next call the result", async () => {
    const signed = await sign(await on.buyer())
    const body = bodyOf(signed)
    const quick = { ...body, paymentRequirements: { ...termsOf(), maxTimeoutSeconds: 0.01 } }
    expect((await settle(quick)).body).toMatchObject({ success: false, errorReason: "settlement_pending" })
    await on.round()
    expect((await settle(quick)).body).toMatchObject({ success: true })
    expect((await on.relays()).length).toBe(1)
  })

  it("waits for as many confirmations as it is asked for, and no more than the network's", async () => {
    const body = bodyOf(await sign(await on.buyer()))
    await rig.service.ctx.db.updateTable("cursors").set({ block_number: 0n }).execute()
    const quick = { ...body, paymentRequirements: { ...termsOf(), maxTimeoutSeconds: 0.01 } }
    Object.assign(rig.network, { confirmations: 3n })
    await settle(quick)
    await on.round()
    expect((await post("/x402/settle?confirmations=2", quick)).body.errorReason).toBe("settlement_pending")
    await rig.anvil.client.mine({ blocks: 1 })
    await on.look()
    expect((await post("/x402/settle?confirmations=2", quick)).body.success).toBe(true)
    Object.assign(rig.network, { confirmations: 1n })
  })

  it("counts no confirmations on a block that a reorg has displaced, though the scan has passed its height", async () => {
    const body = bodyOf(await sign(await on.buyer()))
    const quick = { ...body, paymentRequirements: { ...termsOf(), maxTimeoutSeconds: 0.01 } }
    Object.assign(rig.network, { confirmations: 3n })
    try {
      await settle(quick)
      await on.round()
      expect(await on.relays()).toMatchObject([{ state: "mined" }])
      await rig.anvil.client.reorg(1)
      await rig.anvil.client.dropAllTransactions()
      await rig.anvil.client.mine({ blocks: 4 })
      await on.look()
      expect((await post("/x402/settle?confirmations=2", quick)).body.errorReason).toBe("settlement_pending")
      // The same bytes are sent and mined again.
      await on.round()
      await rig.anvil.client.mine({ blocks: 2 })
      await on.round()
      await on.look()
      expect((await post("/x402/settle?confirmations=2", quick)).body.success).toBe(true)
    } finally {
      Object.assign(rig.network, { confirmations: 1n })
    }
  })

  it("pays a checkout here like any other wallet: it is confirmed, and its merchant is notified", async () => {
    const session = await on.start({ amount: 5 })
    const signed = await sign(await on.buyer(), { to: session.payTo, value: 5_000_000n })
    const terms = { ...termsOf("5000000"), payTo: checksummed(session.payTo) }
    const body = { paymentPayload: { ...payloadOf(signed), accepted: terms }, paymentRequirements: terms }
    expect((await settled(body)).success).toBe(true)
    await rig.anvil.client.mine({ blocks: 3 })
    await on.look()
    expect((await on.status(session.id)).status).toBe("confirmed")
    const events = await rig.service.ctx.db.selectFrom("events").select("type").execute()
    expect(events.map(({ type }) => type)).toContain("checkout.session.completed")
    const { body: list } = await rig.service.call("GET", "/api/console/transactions", undefined, { as: "shop" })
    expect(list.data.map(({ type }: { type: string }) => type)).toEqual(["payment"])
  })
})

describe("an operator", () => {
  let operator: Operator
  beforeAll(() => {
    operator = openOperator(rig)
    rig.service.ctx.settings.relaySigner = rig.relayer
  })
  afterAll(() => operator.stop())

  const quick = (signed: Signed) => ({
    ...bodyOf(signed),
    paymentRequirements: { ...termsOf(), maxTimeoutSeconds: 0.01 },
  })
  /** A settlement in progress, whose relay has no deposit. */
  async function begun() {
    const buyer = await on.buyer(10_000n)
    const signed = await sign(buyer)
    expect((await settle(quick(signed))).body.errorReason).toBe("settlement_pending")
    const path = `/x402/settlements/${buyer.address}/${signed.authorization.nonce}`
    const read = async () => (await rig.service.call("GET", path, undefined, { headers: { "x-api-key": key } })).body
    const before = (await on.received(payTo)).length
    const [{ id } = { id: "" }] = await on.relays()
    return { body: quick(signed), read, id, moved: async () => (await on.received(payTo)).length - before }
  }
  const resume = () => operator.ask("/resume", { wallet: "relay", reason: "mended" })

  it("adopts a settlement after an old backup: it is answered, and not carried out again", async () => {
    const { body, moved, id } = await begun()
    const restore = await backUp(rig.service.ctx)
    await on.round()
    await rig.anvil.client.mine({ blocks: 3 })
    await on.round()
    const [{ tx_hash: hash } = { tx_hash: null }] = await on.relays()
    await restore()
    await checkWallet(rig.service.ctx, relayLane(rig.network, rig.relayer))
    expect((await settle(body)).body.errorReason).toBe("settlement_pending")
    const { status, body: adopted } = await operator.ask("/adopt", { hash })
    expect([status, adopted.said]).toEqual([200, expect.stringContaining(`pays the payout ${id}`)])
    expect((await resume()).status).toBe(200)
    await on.round()
    expect((await settle(body)).body).toMatchObject({ success: true, transaction: hash })
    expect([await moved(), (await on.relays()).map(({ state }) => state)]).toEqual([1, ["final"]])
  })

  it("uses up the nonce of a settlement that can't be mined: nothing is moved or made again, and it fails in the end", async () => {
    const { client } = rig.anvil
    const { body, read, moved } = await begun()
    await client.setAutomine(false)
    await on.round()
    const [{ nonce } = { nonce: null }] = await on.relays()
    const unstick = { wallet: "relay", nonce: `${nonce}`, reason: "it can't be mined", maxFeeGwei: "900" }
    const { status, body: said } = await operator.ask("/unstick", unstick)
    expect([status, said.said]).toEqual([
      200,
      expect.stringContaining("nothing was moved, and nothing is created again"),
    ])
    await on.round()
    await client.setAutomine(true)
    await client.mine({ blocks: 4 })
    await on.round()
    await on.round()
    expect((await on.relays()).map(({ state }) => state)).toEqual(["reverted"])
    // Until it ends, anyone can still carry it out.
    expect(await read()).toMatchObject({ status: "pending", txHash: null })
    expect((await settle(body)).body.errorReason).toBe("settlement_pending")
    rig.service.advance(61_000)
    expect(await read()).toMatchObject({ status: "failed", txHash: null })
    expect(await moved()).toBe(0)
  })

  it("cancels one that waits, and the doctor finds nothing in it", async () => {
    const { ctx } = rig.service
    const { read, id, moved } = await begun()
    rig.service.advance(3_600_001)
    const query = async (text: string) => (await sql.raw<Record<string, unknown>>(text).execute(ctx.db)).rows
    const { name, chainId, depositFactory } = rig.network
    const settings = { ...ctx.settings, networks: [{ ...ctx.settings.networks[0], name, chainId, depositFactory }] }
    const found = await checkDatabase(settings as Settings, query, ctx.now)
    expect(found.filter(({ check }) => check === "unserved")).toEqual([])
    const { status, body } = await operator.ask("/cancel", { payout: id, reason: "not wanted" })
    expect([status, body.said]).toEqual([200, expect.stringMatching(/It moved no money/)])
    expect(await read()).toMatchObject({ status: "failed", message: expect.stringContaining("Nothing was paid") })
    expect(await moved()).toBe(0)
    // A cancelled relay has nothing to retry.
    expect((await operator.ask("/retry", { payout: id })).status).toBe(409)
  })
})
