// What POST /api/pay/authorize accepts, and what it refuses without leaving a trace; and that an authorization is
// accepted once.
import { type Hex, hexToBigInt, numberToHex, parseAbi, slice } from "viem"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { deployContractWallet } from "../../../test/anvil.ts"
import { contents } from "../../../test/count-writes.ts"
import { type PayoutRig, startPayoutRig } from "../../../test/payouts.ts"
import { bodyOf, relaysOn, type Session, type Signed } from "../../../test/relays.ts"
import { RELAY_GAS } from "../../ledger/relays/try-relay.ts"
import { testUsdcAbi } from "../../platform/chain/abi.ts"
import { newEndpoint } from "../../platform/chain/endpoints.ts"
import type { Address } from "../../platform/chain/hex.ts"

const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n

let rig: PayoutRig
let on: ReturnType<typeof relaysOn>
beforeAll(async () => {
  rig = await startPayoutRig()
  on = relaysOn(rig)
})
afterAll(() => rig?.stop())
beforeEach(() => on.begin())

const lower = (address: string) => address.toLowerCase() as Address

/** Expects a refusal with this code, and that nothing was written. */
async function expectRefused(session: { id: string }, signed: Signed, status: number, error: string, words?: string) {
  const before = await contents(rig.service.ctx.db)
  const answer = await on.submit(session, signed)
  expect([answer.status, answer.body.error], JSON.stringify(answer.body)).toEqual([status, error])
  if (words !== undefined) expect(JSON.stringify(answer.body)).toContain(words)
  expect(await contents(rig.service.ctx.db)).toEqual(before)
}

describe("an authorization", () => {
  it("that twenty requests bring at once is one relay, and one answer to all", async () => {
    const session = await on.start()
    const signed = await on.sign(await on.buyer(), session)
    const answers = await Promise.all(Array.from({ length: 20 }, () => on.submit(session, signed)))
    for (const { status, body } of answers)
      expect([status, body]).toEqual([200, { status: "verifying", sessionId: session.id, txHash: null }])
    expect((await on.relays()).length).toBe(1)
    await Promise.all([on.round(), on.round()])
    await rig.anvil.client.mine({ blocks: 3 })
    await on.look()
    await on.round()
    expect(await on.received(session.payTo)).toEqual([5_000_000n])
    const [relay] = await on.relays()
    const again = await Promise.all(Array.from({ length: 20 }, () => on.submit(session, signed)))
    for (const { body } of again)
      expect(body).toEqual({ status: "confirmed", sessionId: session.id, txHash: relay?.tx_hash })
    expect((await on.relays()).length).toBe(1)
  })

  it("is one of two that race for the same session, and the other is answered to wait", async () => {
    const session = await on.start()
    const both = [await on.sign(await on.buyer(), session), await on.sign(await on.buyer(), session)]
    const answers = await Promise.all(both.map(signed => on.submit(session, signed)))
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409])
    expect((await on.relays()).length).toBe(1)
  })

  it("of one nonce for two sessions is honoured for one of them", async () => {
    const one = await on.start()
    const two = await on.start()
    const buyer = await on.buyer(10_000_000n)
    const first = await on.sign(buyer, one)
    const second = await on.sign(buyer, two, { nonce: first.authorization.nonce })
    const answers = await Promise.all([on.submit(one, first), on.submit(two, second)])
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409])
    expect(answers.find(({ status }) => status === 409)?.body.error).toBe("AUTHORIZATION_ALREADY_USED")
    expect((await on.relays()).length).toBe(1)
  })

  it("with the nonce of another, or for another session, is refused", async () => {
    const session = await on.start()
    const buyer = await on.buyer()
    const first = await on.sign(buyer, session)
    await on.submit(session, first)
    // Submitted for a session that it does not pay, it reveals nothing about the session that it pays.
    await expectRefused(await on.start(), first, 409, "AUTHORIZATION_ALREADY_USED")
    const other = await on.sign(buyer, session, { nonce: first.authorization.nonce, validAfter: 1n })
    await expectRefused(session, other, 409, "AUTHORIZATION_ALREADY_USED")
  })

  it("is taken with numbers that JSON can say, and with hexadecimal digits in any case", async () => {
    const session = await on.start()
    const signed = await on.sign(await on.buyer(), session)
    const body = bodyOf(session.id, signed)
    const upper = (hex: string) => `0x${hex.slice(2).toUpperCase()}`
    const { nonce, validBefore, ...rest } = body.authorization
    const answer = await rig.service.call("POST", "/api/pay/authorize", {
      sessionId: session.id,
      authorization: {
        ...rest,
        value: 5_000_000,
        validAfter: 0,
        validBefore: Number(validBefore),
        nonce: upper(nonce),
      },
      signature: upper(body.signature),
    })
    expect(answer.body.status, JSON.stringify(answer.body)).toBe("verifying")
    await on.round()
    expect(await on.received(session.payTo)).toEqual([5_000_000n])
  })

  it("pays what is missing where a part has arrived or is on its way, and no other amount", async () => {
    const session = await on.start()
    const buyer = await on.buyer()
    await rig.mint(session.payTo, 2_000_000n)
    await on.look()
    const words = "must be 3000000, the 3.00 USDC still to be paid"
    await expectRefused(session, await on.sign(buyer, session), 422, "AUTHORIZATION_REFUSED", words)
    // Seen, and not deep enough yet.
    await rig.service.ctx.db.updateTable("transfers").set({ state: "seen", run_at: null }).execute()
    await rig.service.ctx.db.deleteFrom("claims").execute()
    await expectRefused(session, await on.sign(buyer, session), 422, "AUTHORIZATION_REFUSED", words)
    const signed = await on.sign(buyer, session, { value: 3_000_000n })
    expect((await on.submit(session, signed)).body.status).toBe("verifying")
    await on.round()
    await rig.anvil.client.mine({ blocks: 3 })
    await on.look()
    expect(await on.status(session.id)).toMatchObject({ status: "confirmed", amountReceived: "5.00", exception: null })
    expect(await rig.balanceOf(lower(buyer.address))).toBe(2_000_000n)
  })
})

describe("a contract wallet", () => {
  const wallet = async (amount = 5_000_000n) => {
    const key = await on.buyer(0n)
    const address = lower(await deployContractWallet(rig.anvil.client, key.address))
    await rig.mint(address, amount)
    return { key, address }
  }

  it("pays by its own word (ERC-1271)", async () => {
    const session = await on.start()
    const { key, address } = await wallet()
    const signed = await on.sign(key, session, { from: address })
    expect((await on.submit(session, signed)).body.status).toBe("verifying")
    await on.round()
    await rig.anvil.client.mine({ blocks: 3 })
    await on.look()
    expect(await on.status(session.id)).toMatchObject({ status: "confirmed" })
    expect(await rig.balanceOf(address)).toBe(0n)
  })

  it("is refused where another signed, and where one of two endpoints says no", async () => {
    const session = await on.start()
    const { key, address } = await wallet()
    const stranger = await on.buyer()
    const words = "is not the signature of"
    await expectRefused(
      session,
      await on.sign(stranger, session, { from: address }),
      422,
      "AUTHORIZATION_REFUSED",
      words,
    )
    const good = await on.sign(key, session, { from: address })
    const { endpoints } = rig.network
    const [mine] = endpoints
    if (!mine) throw new Error("no endpoint")
    // The second endpoint is down, and one endpoint alone is not enough.
    Object.assign(rig.network, { endpoints: [mine, newEndpoint(rig.network.name, "http://127.0.0.1:1")] })
    try {
      await expectRefused(session, good, 503, "CHAIN_UNAVAILABLE")
    } finally {
      Object.assign(rig.network, { endpoints })
    }
    expect((await on.submit(session, good)).status).toBe(200)
  })

  it("whose signature takes all the gas there is is refused, and holds nothing up", async () => {
    const session = await on.start()
    const address = lower((await on.buyer()).address)
    // A contract that loops forever.
    await rig.anvil.client.setCode({ address, bytecode: "0x5b600056" })
    const signed = await on.sign(await on.buyer(), session, { from: address })
    await expectRefused(session, signed, 422, "AUTHORIZATION_REFUSED")
    // Approves after a loop of 60,000 rounds of 26 gas: more than a relay gets.
    await rig.anvil.client.setCode({ address, bytecode: "0x61ea605b6001900380600357631626ba7e60e01b60005260206000f3" })
    await expectRefused(session, signed, 422, "AUTHORIZATION_REFUSED", "does not accept this wallet's signature")
  })
})

describe("what relays of contract wallets may cost", () => {
  /** Approves at once if gas costs nothing, otherwise uses up all the gas. */
  const TWO_FACED = "0x3a60145763" + "1626ba7e" + "60e01b60005260206000f35b601456"

  it("is found out at the price that the relay will pay", async () => {
    const session = await on.start()
    const address = lower((await on.buyer()).address)
    await rig.anvil.client.setCode({ address, bytecode: TWO_FACED as Hex })
    const signed = await on.sign(await on.buyer(), session, { from: address })
    await expectRefused(session, signed, 422, "AUTHORIZATION_REFUSED", "does not accept this wallet's signature")
  })

  it("is what their trial took and a quarter, so that they can't burn more than they showed", async () => {
    const session = await on.start()
    const key = await on.buyer(0n)
    const address = lower(await deployContractWallet(rig.anvil.client, key.address))
    await rig.mint(address, 5_000_000n)
    await on.submit(session, await on.sign(key, session, { from: address }))
    const [relay] = await on.relays()
    expect(relay?.gas).toBeLessThan(RELAY_GAS.contract / 4n)
    await on.round()
    expect(await on.received(session.payTo)).toEqual([5_000_000n])
  })

  it("has a budget of its own on each network: then they are refused, and keys are not", async () => {
    const key = await on.buyer(0n)
    const address = lower(await deployContractWallet(rig.anvil.client, key.address))
    await rig.mint(address, 10_000_000n)
    const { settings } = rig.service.ctx
    const first = await on.start()
    expect((await on.submit(first, await on.sign(key, first, { from: address }))).status).toBe(200)
    settings.relayContractBudget = 1n
    try {
      // A relay that was accepted before is cancelled when it is due to be signed.
      await on.round()
      expect((await on.relays()).map(row => row.state)).toEqual(["cancelled"])
      const second = await on.start()
      const words =
        "The service relays no more payments of contract wallets on this network today. Send a transfer from your wallet instead."
      await expectRefused(second, await on.sign(key, second, { from: address }), 503, "RELAY_UNAVAILABLE", words)
      expect((await on.submit(second, await on.sign(await on.buyer(), second))).status).toBe(200)
      await on.round()
      expect(await on.received(second.payTo)).toEqual([5_000_000n])
    } finally {
      settings.relayContractBudget = 0n
    }
  })
})

describe("a refused authorization", () => {
  const now = () => BigInt(Math.floor(rig.service.ctx.now().getTime() / 1_000))

  it.each([
    ["that is not yet valid", () => ({ validAfter: now() + 60n }), "authorization.validAfter"],
    ["that is expired", () => ({ validBefore: now() - 1n }), "authorization.validBefore"],
    ["that leaves too little time to be mined", () => ({ validBefore: now() + 59n }), "authorization.validBefore"],
    ["that nobody could wait to be over", () => ({ validBefore: 2n ** 256n - 1n }), "two hours after this checkout"],
    ["that outlives it too long", () => ({ validBefore: now() + 93_700n }), "two hours after this checkout ends"],
    ["to another address", () => ({ to: rig.relayer.address }), "authorization.to"],
    ["of too much", () => ({ value: 5_000_001n }), "must be 5000000, the 5.00 USDC still to be paid"],
    ["of too little", () => ({ value: 4_999_999n }), "must be 5000000, the 5.00 USDC still to be paid"],
    ["of nothing", () => ({ value: 0n }), "authorization.value"],
  ])("is one %s", async (_what, given, words) => {
    const session = await on.start()
    const signed = await on.sign(await on.buyer(), session, given())
    await expectRefused(session, signed, 422, "AUTHORIZATION_REFUSED", words)
  })

  it("is answered with every fault at once", async () => {
    const session = await on.start()
    const given = { to: rig.relayer.address, value: 1n, validAfter: now() + 5n, validBefore: 7n }
    const { body } = await on.submit(session, await on.sign(await on.buyer(), session, given))
    expect(body.details.map(({ path }: { path: string }) => path)).toEqual([
      "authorization.to",
      "authorization.value",
      "authorization.validAfter",
      "authorization.validBefore",
    ])
  })

  it("is one of what is missing, where that is below MIN_AMOUNT", async () => {
    const session = await on.start()
    await rig.mint(session.payTo, 4_990_001n)
    await on.look()
    const signed = await on.sign(await on.buyer(), session, { value: 9_999n })
    await expectRefused(session, signed, 422, "AUTHORIZATION_REFUSED", "too little to relay")
  })

  it("is one with another's signature, or a good one in a form that tokens don't take", async () => {
    const session = await on.start()
    const buyer = await on.buyer()
    const stranger = await on.buyer()
    const good = await on.sign(buyer, session)
    const strange = await on.sign(stranger, session, { ...good.authorization })
    await expectRefused(session, strange, 422, "AUTHORIZATION_REFUSED", `is not the signature of ${buyer.address}`)
    const { signature } = good
    const r = slice(signature, 0, 32)
    const s = hexToBigInt(slice(signature, 32, 64))
    const v = hexToBigInt(slice(signature, 64))
    const written = (s: bigint, v: bigint) =>
      `${r}${numberToHex(s, { size: 32 }).slice(2)}${numberToHex(v, { size: 1 }).slice(2)}` as Hex
    // The other form of the same signature, which anybody who sees one can compute.
    const malleable = { ...good, signature: written(ORDER - s, v === 27n ? 28n : 27n) }
    await expectRefused(session, malleable, 422, "AUTHORIZATION_REFUSED", "s must be in the lower half")
    for (const bad of [
      "0x00",
      `0x${"00".repeat(65)}`,
      `0x${"ff".repeat(65)}`,
      slice(signature, 0, 63),
      `${signature}00`,
    ])
      await expectRefused(
        session,
        { ...good, signature: bad as Hex },
        422,
        "AUTHORIZATION_REFUSED",
        "is not the signature of",
      )
    // The original stays valid.
    expect((await on.submit(session, good)).status).toBe(200)
  })

  it("is one whose nonce was used on chain, or taken back", async () => {
    const session = await on.start()
    const { client, accounts } = rig.anvil
    const buyer = await on.buyer()
    const signed = await on.sign(buyer, session)
    const cancel = await on.signCancel(buyer, signed.authorization)
    await client.writeContract({
      address: rig.token,
      abi: parseAbi(["function cancelAuthorization(address authorizer, bytes32 nonce, bytes signature)"]),
      functionName: "cancelAuthorization",
      args: [buyer.address, signed.authorization.nonce, cancel],
      account: accounts[5],
    })
    await expectRefused(session, signed, 409, "AUTHORIZATION_ALREADY_USED")
  })

  it("is one of a wallet that holds too little, or that the token's issuer has blocked", async () => {
    const session = await on.start()
    const poor = await on.buyer(3_000_000n)
    const words = "The wallet holds 3.00 of 5.00 USDC."
    await expectRefused(session, await on.sign(poor, session), 422, "AUTHORIZATION_REFUSED", words)
    const blocked = await on.buyer()
    const args = [blocked.address] as const
    await rig.anvil.client.writeContractSync({ address: rig.token, abi: testUsdcAbi, functionName: "blacklist", args })
    const signed = await on.sign(blocked, session)
    await expectRefused(session, signed, 422, "AUTHORIZATION_REFUSED", "The issuer of USDC has blocked this wallet.")
    expect((await on.status(session.id)).status).toBe("pending")
  })

  it("is one of a sanctioned wallet", async () => {
    const { mkdtempSync, writeFileSync } = await import("node:fs")
    const session = await on.start()
    const buyer = await on.buyer()
    const path = `${mkdtempSync("/tmp/sluice-list-")}/sdn.txt`
    writeFileSync(path, buyer.address)
    const { settings } = rig.service.ctx
    settings.sanctionsFile = path
    try {
      await expectRefused(session, await on.sign(buyer, session), 403, "SANCTIONS_MATCH")
    } finally {
      settings.sanctionsFile = undefined
    }
  })

  it("is one for a session that is not there, paid, over or nearly over, or of a link that is used up", async () => {
    const buyer = await on.buyer(50_000_000n)
    const nowhere: Session = { id: "cs_nowhere", payTo: rig.relayer.address }
    await expectRefused(nowhere, await on.sign(buyer, nowhere), 404, "SESSION_NOT_FOUND")
    const paid = await on.start()
    await rig.mint(paid.payTo, 5_000_000n)
    await on.look()
    await expectRefused(paid, await on.sign(buyer, paid), 409, "SESSION_ALREADY_CONFIRMED")
    const make = (path: string, body: object) => rig.service.call("POST", path, body, { as: "shop" })
    await make("/api/console/payment-links", { slug: "once", title: "Once", amount: 5, maxUses: 1 })
    const open = async (): Promise<Session> => {
      const { body } = await rig.service.call("POST", "/api/pay/sessions", { slug: "once" })
      return { id: body.sessionId, payTo: lower(body.payTo) }
    }
    const first = await open()
    const second = await open()
    await rig.mint(first.payTo, 5_000_000n)
    await on.look()
    await expectRefused(second, await on.sign(buyer, second), 410, "LINK_UNAVAILABLE")
    const over = await on.start({ amount: 5, expiresIn: 300 })
    rig.service.advance(245_000)
    await expectRefused(over, await on.sign(buyer, over), 410, "SESSION_EXPIRED", "within a minute")
    rig.service.advance(60_000)
    await expectRefused(over, await on.sign(buyer, over), 410, "SESSION_EXPIRED", "has expired")
  })

  it("is any while no node answers, while there is no relay wallet, or while it is halted", async () => {
    const session = await on.start()
    const signed = await on.sign(await on.buyer(), session)
    rig.proxy.broken = 503
    await expectRefused(session, signed, 503, "CHAIN_UNAVAILABLE")
    rig.proxy.broken = undefined
    for (const endpoint of rig.network.endpoints) endpoint.silentUntil = 0
    const { settings, db } = rig.service.ctx
    const { relayWallet } = settings
    settings.relayWallet = undefined
    await expectRefused(session, signed, 503, "RELAY_UNAVAILABLE")
    settings.relayWallet = relayWallet
    const relay = db.updateTable("wallets").where("lane", "=", "relay")
    await relay.set({ status: "halted", halted_reason: "a test" }).execute()
    await expectRefused(session, signed, 503, "RELAY_UNAVAILABLE")
    await relay.set({ status: "active", halted_reason: null }).execute()
    expect((await on.submit(session, signed)).status).toBe(200)
  })

  it("is one whose form is wrong: all faults at once, by path", async () => {
    const session = await on.start()
    const good = bodyOf(session.id, await on.sign(await on.buyer(), session))
    const before = await contents(rig.service.ctx.db)
    const send = async (change: object, rest: object = {}) => {
      const authorization = { ...good.authorization, ...change }
      const { status, body } = await rig.service.call("POST", "/api/pay/authorize", { ...good, authorization, ...rest })
      expect([status, body.error], JSON.stringify(body)).toEqual([400, "VALIDATION_ERROR"])
      return body.details.map(({ path }: { path: string }) => path)
    }
    expect(
      await send(
        { from: "0x1", to: 5, value: "5.0", validAfter: -1, validBefore: "0x10", nonce: "0x00" },
        { signature: "0x0" },
      ),
    ).toEqual([
      "authorization.from",
      "authorization.to",
      "authorization.value",
      "authorization.validAfter",
      "authorization.validBefore",
      "authorization.nonce",
      "signature",
    ])
    const wrongCase = "0x833589fcd6eDb6E08f4c7C32D4f71b54bdA02913"
    const tooLarge = `${2n ** 256n}`
    expect(await send({ from: wrongCase, value: tooLarge, validBefore: 2 ** 60 })).toEqual([
      "authorization.from",
      "authorization.value",
      "authorization.validBefore",
    ])
    expect(await send({ valueOf: "1" })).toEqual(["authorization.valueOf"])
    expect(await send({}, { signature: `0x${"00".repeat(4_097)}` })).toEqual(["signature"])
    expect(await contents(rig.service.ctx.db)).toEqual(before)
  })
})
