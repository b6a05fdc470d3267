// A relay that was not sent in time, signed or not: its payer no longer waits, and is not charged later, even if the
// authorization is valid.
import { sql } from "kysely"
import { type Hex, toHex } from "viem"
import { mnemonicToAccount } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { until } from "../../../test/e2e/program.ts"
import { type PayoutRig, startPayoutRig } from "../../../test/payouts.ts"
import { relaysOn, signAuthorization } from "../../../test/relays.ts"
import { type RemoteSigners, startRemoteSigners } from "../../../test/remote-signers.ts"
import { type Address, checksummed } from "../../platform/chain/hex.ts"
import { remoteSigner } from "../../platform/chain/signers/remote-signer.ts"
import { checkConsistency } from "../reconciliation/check-consistency.ts"
import { payoutRound } from "../txmanager/run-round.ts"
import { relayLane } from "./relay-lane.ts"

const payTo = `0x${"5e".repeat(20)}` as Address
const HOURS_MS = 6 * 3_600_000
let rig: PayoutRig
let on: ReturnType<typeof relaysOn>
let signers: RemoteSigners
let key: string

const keyOfRelayer = (): Hex => {
  const phrase = "test test test test test test test test test test test junk"
  return toHex(mnemonicToAccount(phrase, { addressIndex: 2 }).getHdKey().privateKey ?? new Uint8Array())
}

beforeAll(async () => {
  rig = await startPayoutRig()
  on = relaysOn(rig)
  signers = await startRemoteSigners(keyOfRelayer())
  await rig.service.listen()
})
afterAll(async () => {
  await signers?.stop()
  await rig?.stop()
})
beforeEach(async () => {
  signers.fault = () => undefined
  await on.begin()
  await rig.service.merchant("shop")
  key = (await rig.service.call("POST", "/api/console/api-keys", { name: "server" }, { as: "shop" })).body.key
})

const terms = () => ({
  scheme: "exact",
  network: "eip155:84532",
  amount: "10000",
  asset: checksummed(rig.token),
  payTo,
  maxTimeoutSeconds: 2,
  extra: { name: "USDC", version: "2" },
})
async function settle(signed: Awaited<ReturnType<typeof signAuthorization>>) {
  const authorization = Object.fromEntries(
    Object.entries(signed.authorization).map(([name, value]) => [name, `${value}`]),
  )
  const payload = { signature: signed.signature, authorization }
  const body = {
    x402Version: 2,
    paymentRequirements: terms(),
    paymentPayload: { x402Version: 2, accepted: terms(), payload },
  }
  return await rig.service.call("POST", "/x402/settle", body, { headers: { "x-api-key": key } })
}
const signer = () => remoteSigner(signers.keyOf("web3signer"), rig.relayer.address, { timeoutMs: 3_000 })
const AT_ONCE = { resendMs: 0, replaceMs: 60_000 }
const round = (pace = AT_ONCE) => payoutRound(rig.service.ctx, relayLane(rig.network, signer()), pace)
const attempts = () => rig.service.ctx.db.selectFrom("transaction_attempts").selectAll().orderBy("n").execute()
/** For each attempt: whether it is empty, signed and sent. */
const steps = async () => (await attempts()).map(({ empty, raw, sends }) => [empty, raw !== null, sends > 0])
const ends = async () => (await on.relays()).map(({ state, succeeded }) => [state, succeeded])
const setWallet = (status: "active" | "halted") =>
  rig.service.ctx.db
    .updateTable("wallets")
    .set({ status, halted_reason: status === "halted" ? "a look" : null })
    .where("lane", "=", "relay")
    .execute()

/**
 * Starts a relay, runs one round of the engine, and lets the caller's wait end; returns a function that asks for the
 * result again.
 */
async function relayed(validBefore = 2n ** 256n - 1n) {
  const buyer = await on.buyer(10_000_000n)
  const signed = await signAuthorization(buyer, rig.network, { to: payTo, value: 10_000n, validBefore })
  const asking = settle(signed)
  await until("the relay is written", async () => (await on.relays()).length === 1)
  await round()
  await asking
  return async () => (await settle(signed)).body
}

/** Lets time pass, also on the chain that the scan reads. */
async function later(ms: number): Promise<void> {
  const { ctx } = rig.service
  rig.service.advance(ms)
  await ctx.db.updateTable("cursors").set({ block_time: ctx.now() }).execute()
}

async function finish(): Promise<void> {
  await round()
  await rig.anvil.client.mine({ blocks: 3 })
  await round()
}

/** Returns what the recipient got during `work`, in base units. */
async function moved(work: () => Promise<unknown>): Promise<bigint> {
  const before = await rig.balanceOf(payTo)
  await work()
  return (await rig.balanceOf(payTo)) - before
}

/** The chain has used each nonce that was given. */
async function expectNoGap(): Promise<void> {
  const { next_nonce, status } = await rig.service.ctx.db
    .selectFrom("wallets")
    .selectAll()
    .where("lane", "=", "relay")
    .executeTakeFirstOrThrow()
  const count = await rig.anvil.client.getTransactionCount({ address: rig.relayer.address })
  expect([status, next_nonce]).toEqual(["active", BigInt(count)])
  expect(await checkConsistency(rig.service.ctx, rig.network.chainId)).toEqual([])
}

it.each([
  ["for a day", () => BigInt(Math.floor(Date.now() / 1_000) + 86_400)],
  ["for ever", () => 2n ** 256n - 1n],
])(
  "with an authorization that is valid %s moves nothing, leaves no gap, and has failed",
  async (_what, validBefore) => {
    let said: (() => Promise<object>) | undefined
    const got = await moved(async () => {
      signers.fault = () => "down"
      said = await relayed(validBefore())
      expect((await on.relays()).map(({ state }) => state)).toEqual(["assigned"])
      await later(HOURS_MS)
      await round()
      expect(await steps()).toEqual([
        [false, false, false],
        [true, false, false],
      ])
      signers.fault = () => undefined
      await finish()
    })
    expect([got, await ends()]).toEqual([0n, [["reverted", false]]])
    expect((await attempts()).map(({ raw }) => raw !== null)).toEqual([false, true])
    // No transaction that carries it out was ever signed, so nobody else can submit one, and the payer may sign another
    // authorization.
    expect(await said?.()).toMatchObject({
      success: false,
      errorReason: "invalid_exact_evm_transaction_failed",
      errorMessage: "The authorization could not be executed before its deadline.",
      transaction: "",
    })
    await expectNoGap()
  },
)

it("before its time is not emptied by a process whose clock is days ahead of the chain", async () => {
  const { ctx } = rig.service
  const got = await moved(async () => {
    signers.fault = () => "down"
    await relayed()
    // As the calls of an escrow have it.
    const relayBy = new Date(ctx.now().getTime() + 86_400_000)
    await ctx.db.updateTable("payouts").set({ relay_by: relayBy }).execute()
    await on.look()
    const ahead = { ...ctx, now: () => new Date(ctx.now().getTime() + 2 * 86_400_000) }
    await payoutRound(ahead, relayLane(rig.network, signer()), AT_ONCE)
    expect(await steps()).toEqual([[false, false, false]])
    signers.fault = () => undefined
    await finish()
  })
  expect([got, await ends()]).toEqual([10_000n, [["final", true]]])
  await expectNoGap()
})

it("of a checkout lets its payer sign again, as often as it was the service's fault", async () => {
  const session = await on.start()
  const buyer = await on.buyer()
  const seconds = () => BigInt(Math.floor(rig.service.ctx.now().getTime() / 1_000))
  for (let i = 0; i < 3; i++) {
    signers.fault = () => "down"
    const signed = await on.sign(buyer, session, { validBefore: seconds() + 120n })
    expect((await on.submit(session, signed)).status).toBe(200)
    await round()
    await later(61_000)
    signers.fault = () => undefined
    await finish()
    await on.look()
    const { status, message } = await on.status(session.id)
    expect([status, message]).toEqual(["pending", expect.stringContaining("before its deadline. It paid nothing")])
  }
  const answer = await on.submit(session, await on.sign(buyer, session, { validBefore: seconds() + 120n }))
  expect(answer.status, JSON.stringify(answer.body)).toBe(200)
  await finish()
  expect(await ends()).toEqual([...Array(3).fill(["reverted", false]), ["final", true]])
  expect(await on.received(session.payTo)).toEqual([5_000_000n])
})

it("sent in time is carried out later, also by what replaces it after its time", async () => {
  const { client } = rig.anvil
  const got = await moved(async () => {
    signers.fault = async () => {
      await client.setAutomine(false)
      return undefined
    }
    await relayed()
    signers.fault = () => undefined
    const [first] = await attempts()
    expect(first?.sends).toBeGreaterThan(0)
    await client.dropTransaction({ hash: first?.hash as Hex })
    await client.setAutomine(true)
    await later(HOURS_MS)
    const pace = { resendMs: 3_600_000, replaceMs: 0 }
    await round(pace)
    await round(pace)
    await finish()
  })
  expect([got, await ends()]).toEqual([10_000n, [["final", true]]])
  expect(await steps()).toEqual([
    [false, true, true],
    [false, true, true],
  ])
  await expectNoGap()
})

it("signed while its wallet was halted, which is resumed hours later, moves nothing", async () => {
  let said: (() => Promise<object>) | undefined
  const got = await moved(async () => {
    signers.fault = async () => {
      await setWallet("halted")
      return undefined
    }
    said = await relayed()
    expect(await steps()).toEqual([[false, true, false]])
    await later(HOURS_MS)
    signers.fault = () => "down"
    await setWallet("active")
    // Nothing is sent while its replacement waits to be signed.
    await round()
    expect(await steps()).toEqual([
      [false, true, false],
      [true, false, false],
    ])
    signers.fault = () => undefined
    await finish()
  })
  expect([got, await ends()]).toEqual([0n, [["reverted", false]]])
  expect(await steps()).toEqual([
    [false, true, false],
    [true, true, true],
  ])
  // Its process might have sent it before it died.
  const [first] = await attempts()
  expect(await said?.()).toMatchObject({ errorReason: "settlement_pending", transaction: first?.hash })
  await expectNoGap()
})

it("sent by a process that died before it wrote so is paid once or not at all, as the chain has it", async () => {
  const { client } = rig.anvil
  const got = await moved(async () => {
    signers.fault = async () => {
      await client.setAutomine(false)
      return undefined
    }
    await relayed()
    signers.fault = () => undefined
    const { db } = rig.service.ctx
    await sql`update transaction_attempts set sends = 0, sent_at = null, last_result = null`.execute(db)
    await later(HOURS_MS)
    await round()
    expect(await steps()).toEqual([
      [false, true, false],
      [true, true, true],
    ])
    // The node has the first transaction, and refuses another at the same fee.
    await client.setAutomine(true)
    await finish()
  })
  const [first] = await attempts()
  expect((await on.relays()).map(({ state, succeeded, tx_hash }) => [state, succeeded, tx_hash])).toEqual([
    ["final", true, first?.hash],
  ])
  expect(got).toBe(10_000n)
  await expectNoGap()
})

it("mined, and displaced by a reorg, is sent again, though the process that had sent it died before it wrote so", async () => {
  const { client } = rig.anvil
  const got = await moved(async () => {
    await relayed()
    const { db } = rig.service.ctx
    await sql`update transaction_attempts set sends = 0, sent_at = null, last_result = null`.execute(db)
    await round()
    expect((await on.relays()).map(({ state }) => state)).toEqual(["mined"])
    await client.reorg(1)
    await client.dropAllTransactions()
    await later(HOURS_MS)
    await finish()
  })
  expect([got, await ends(), (await attempts()).length]).toEqual([10_000n, [["final", true]], 1])
  await expectNoGap()
})

it("and above a PAYOUT_MAX_FEE that was lowered meanwhile is emptied within it", async () => {
  const { settings } = rig.service.ctx
  const cap = settings.payoutMaxFee
  try {
    const got = await moved(async () => {
      signers.fault = () => "down"
      await relayed()
      const [first] = await attempts()
      settings.payoutMaxFee = (first?.max_fee ?? 0n) - 1n
      await later(HOURS_MS)
      signers.fault = () => undefined
      await finish()
    })
    expect([got, await ends()]).toEqual([0n, [["reverted", false]]])
    expect((await attempts()).map(({ empty, max_fee }) => [empty, max_fee <= settings.payoutMaxFee])).toEqual([
      [false, false],
      [true, true],
    ])
    await expectNoGap()
  } finally {
    settings.payoutMaxFee = cap
  }
})
