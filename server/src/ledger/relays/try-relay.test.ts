// Relays on a real chain: each authorization moves its money once, whatever happens between the promise and the block; and
// nobody waits for one that can't be carried out.
import { erc20Abi, parseAbi } from "viem"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { backUp } from "../../../test/database.ts"
import { openOperator } from "../../../test/operator.ts"
import { type PayoutRig, recipient, startPayoutRig } from "../../../test/payouts.ts"
import { relaysOn, type Session, type Signed } from "../../../test/relays.ts"
import { cancel } from "../../operations/operator/retry-payouts.ts"
import { testUsdcAbi } from "../../platform/chain/abi.ts"
import { type Endpoint, newEndpoint } from "../../platform/chain/endpoints.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { readWalletState } from "../../platform/chain/wallet-state.ts"
import { replayCaution } from "../../products/checkouts/session-rules.ts"
import { payoutLane } from "../payouts/payout-lane.ts"
import { checkConsistency } from "../reconciliation/check-consistency.ts"
import { checkDormantDeposits } from "../scanner/check-dormant-deposits.ts"
import { assignPayouts } from "../txmanager/assign-nonces.ts"
import { inFlight } from "../txmanager/count-in-flight.ts"
import { checkWallet } from "../txmanager/lock-wallet.ts"
import { payoutRound } from "../txmanager/run-round.ts"
import { DOUBTED_MS } from "./check-payer-limits.ts"
import { findPreempted } from "./find-preempted.ts"
import { relayLane } from "./relay-lane.ts"

type Buyer = Awaited<ReturnType<ReturnType<typeof relaysOn>["buyer"]>>

let rig: PayoutRig
let on: ReturnType<typeof relaysOn>
beforeAll(async () => {
  rig = await startPayoutRig()
  on = relaysOn(rig)
})
afterAll(() => rig?.stop())
beforeEach(() => on.begin())

const mine = (blocks = 3) => rig.anvil.client.mine({ blocks })
const states = async () => (await on.relays()).map(row => row.state)
const relayWallet = () =>
  rig.service.ctx.db.selectFrom("wallets").selectAll().where("lane", "=", "relay").executeTakeFirstOrThrow()
const chainNonce = () => rig.anvil.client.getTransactionCount({ address: rig.relayer.address })
const attempts = () => rig.service.ctx.db.selectFrom("transaction_attempts").selectAll().orderBy("id").execute()

/** A session whose authorization is accepted, and not yet signed by the relay wallet. */
async function submitted(given: Parameters<typeof on.sign>[2] = {}) {
  const session = await on.start()
  const buyer = await on.buyer()
  const signed = await on.sign(buyer, session, given)
  const answer = await on.submit(session, signed)
  expect(answer.body, JSON.stringify(answer.body)).toEqual({ status: "verifying", sessionId: session.id, txHash: null })
  return { session, buyer, signed }
}

/** Moves the buyer's tokens elsewhere, at once. */
async function emptied(buyer: { address: string }): Promise<void> {
  const from = buyer.address.toLowerCase() as Address
  const { client } = rig.anvil
  await client.setBalance({ address: from, value: 10n ** 18n })
  await client.impersonateAccount({ address: from })
  const args = [recipient(9), await rig.balanceOf(from)] as const
  await client.writeContract({ address: rig.token, abi: erc20Abi, functionName: "transfer", args, account: from })
}

/** The money arrived `times`, no nonce is missing, and no book promises anything. */
async function expectMoved(payTo: Address, times: number): Promise<void> {
  expect(await on.received(payTo)).toEqual(Array(times).fill(5_000_000n))
  expect((await relayWallet()).next_nonce).toBe(BigInt(await chainNonce()))
  const books = await rig.service.ctx.db.selectFrom("deposit_books").select("committed").execute()
  expect(books.filter(book => book.committed !== 0n)).toEqual([])
}

describe("a relay", () => {
  it("moves the money once, the buyer's ether untouched, and the session is confirmed", async () => {
    const { session, buyer, signed } = await submitted()
    expect((await on.status(session.id)).status).toBe("verifying")
    await on.round()
    const [relay] = await on.relays()
    expect(relay).toMatchObject({ state: "mined", kind: "authorize", wallet: rig.relayer.address, reserved: false })
    expect((await on.submit(session, signed)).body).toEqual({
      status: "verifying",
      sessionId: session.id,
      txHash: relay?.tx_hash,
    })
    // The next verification, which is due now, finds it.
    const { run_at } = await rig.service.ctx.db.selectFrom("cursors").select("run_at").executeTakeFirstOrThrow()
    expect(run_at.getTime()).toBeLessThanOrEqual(rig.service.ctx.now().getTime())
    await mine()
    await on.look()
    expect(await on.status(session.id)).toMatchObject({
      status: "confirmed",
      txHash: relay?.tx_hash,
      amountReceived: "5.00",
      exception: null,
    })
    await on.round()
    expect(await states()).toEqual(["final"])
    expect((await on.submit(session, signed)).body).toMatchObject({ status: "confirmed", txHash: relay?.tx_hash })
    await expectMoved(session.payTo, 1)
    expect(await rig.anvil.client.getBalance({ address: buyer.address })).toBe(0n)
  })

  it("has a wallet that is not the payouts', even when the settings say so", async () => {
    const { ctx } = rig.service
    const wrong = payoutRound(ctx, payoutLane(rig.network, rig.relayer))
    await expect(wrong).rejects.toThrow("is the relay wallet, and can't be the payout wallet too")
  })

  it("never waits behind payouts, however many are queued on its network", async () => {
    const shop = await rig.sell(Array.from({ length: 50 }, () => 2))
    for (let i = 0; i < 10; i++) await rig.paid(shop, 50_000_000n)
    const payouts = () =>
      rig.service.ctx.db.selectFrom("payouts").select(["state"]).where("lane", "=", "payout").execute()
    const { session } = await submitted()
    expect((await payouts()).length).toBe(500)
    await on.round()
    await mine()
    await on.round()
    expect(await states()).toEqual(["final"])
    expect(new Set((await payouts()).map(row => row.state))).toEqual(new Set(["queued"]))
    await on.look()
    expect((await on.status(session.id)).status).toBe("confirmed")
    // The payout lane's round sends no relay, though one is queued.
    await submitted()
    await rig.round()
    expect(await states()).toEqual(["final", "queued"])
    expect((await payouts()).some(row => row.state === "mined")).toBe(true)
  })

  it("that was signed and committed by a process that died before it sent is sent once", async () => {
    const { session } = await submitted()
    const { ctx } = rig.service
    const sight = await readWalletState(rig.network, rig.relayer.address, ctx.signal)
    await assignPayouts(ctx, relayLane(rig.network, rig.relayer), await relayWallet(), sight)
    expect(await states()).toEqual(["assigned"])
    expect((await attempts()).map(each => each.sends)).toEqual([0])
    await on.round()
    await on.round()
    await mine()
    await on.round()
    expect(await states()).toEqual(["final"])
    expect((await attempts()).length).toBe(1)
    await expectMoved(session.payTo, 1)
  })

  it("whose sending nobody answers is sent again, and mined once", async () => {
    const { session } = await submitted()
    rig.proxy.broken = "reset"
    rig.proxy.brokenFor = "eth_sendRawTransaction"
    await on.round().catch(() => {})
    expect(await states()).toEqual(["assigned"])
    rig.proxy.broken = undefined
    for (const endpoint of rig.network.endpoints) endpoint.silentUntil = 0
    await on.round({ resendMs: 0, replaceMs: 60_000 })
    await on.round({ resendMs: 0, replaceMs: 60_000 })
    await mine()
    await on.round()
    expect(await states()).toEqual(["final"])
    await expectMoved(session.payTo, 1)
  })

  it("whose block a reorg removes is sent again, the same bytes; the session waits, and is paid once", async () => {
    const { session } = await submitted()
    await on.round()
    await on.look()
    expect(await states()).toEqual(["mined"])
    await rig.anvil.client.reorg(1)
    expect(await rig.balanceOf(session.payTo)).toBe(0n)
    await rig.service.ctx.db
      .updateTable("checkout_sessions")
      .set({ run_at: new Date(0) })
      .execute()
    await on.look()
    await on.round()
    await on.round()
    await on.look()
    await mine()
    await on.round()
    await on.look()
    expect(await states()).toEqual(["final"])
    expect((await attempts()).length).toBe(1)
    expect((await on.status(session.id)).status).toBe("confirmed")
    await expectMoved(session.payTo, 1)
  })

  it("is not believed to be mined where its receipt shows another payer's transfer, or of another amount", async () => {
    await submitted()
    const lies: ((log: { topics: string[]; data: string }) => object)[] = [
      log => ({ ...log, topics: [log.topics[0], `0x${"5".repeat(64)}`, log.topics[2]] }),
      log => ({ ...log, data: `0x${"1".padStart(64, "0")}` }),
    ]
    for (const lie of lies) {
      rig.proxy.spoil = (method, _params, result) => {
        const receipt = result as { logs: { topics: string[]; data: string }[] }
        return method === "eth_getTransactionReceipt" && result ? { ...receipt, logs: receipt.logs.map(lie) } : result
      }
      await on.round()
      expect(await states()).toEqual(["assigned"])
    }
    rig.proxy.spoil = (_method, _params, result) => result
    await on.round()
    expect(await states()).toEqual(["mined"])
  })

  it("that somebody else carries out first pays the session anyway, once", async () => {
    const { session, signed } = await submitted()
    const { client } = rig.anvil
    await client.setAutomine(false)
    await on.round()
    await on.carryOutFirst(signed)
    await client.mine({ blocks: 1 })
    await client.setAutomine(true)
    await mine()
    await on.look()
    await on.round()
    await on.look()
    expect(await states()).toEqual(["reverted"])
    expect(await on.status(session.id)).toMatchObject({ status: "confirmed", exception: null })
    await expectMoved(session.payTo, 1)
  })
})

describe("a relay beside money that the merchant decides about", () => {
  const decide = async (id: string, how: "accept" | "return", body: object = {}) => {
    const payment = await rig.service.ctx.db
      .selectFrom("payments")
      .select("id")
      .where("resource_id", "=", id)
      .where("status", "=", "open")
      .executeTakeFirstOrThrow()
    const answer = await rig.service.call("POST", `/api/console/payments/${payment.id}/${how}`, body, { as: "shop" })
    expect(answer.status, JSON.stringify(answer.body)).toBe(200)
  }

  it("that was signed in time and is mined after the end counts as in time", async () => {
    const session = await on.start({ amount: 5, expiresIn: 300 })
    const { client } = rig.anvil
    rig.service.advance(200_000)
    expect((await on.submit(session, await on.sign(await on.buyer(), session))).status).toBe(200)
    await client.setAutomine(false)
    await on.round()
    expect(await states()).toEqual(["assigned"])
    rig.service.advance(400_000)
    const { timestamp } = await client.getBlock()
    const now = BigInt(Math.floor(rig.service.ctx.now().getTime() / 1_000))
    await client.setNextBlockTimestamp({ timestamp: now > timestamp ? now : timestamp + 1n })
    await client.mine({ blocks: 1 })
    await client.setAutomine(true)
    await mine()
    await on.round()
    await on.look()
    expect(await states()).toEqual(["final"])
    expect(await on.status(session.id)).toMatchObject({ status: "confirmed", exception: null })
  })

  it("takes nothing more where the merchant accepted what had arrived; until then nobody is asked for it twice", async () => {
    const session = await on.start()
    await rig.mint(session.payTo, 2_000_000n)
    await on.look()
    const buyer = await on.buyer()
    expect((await on.submit(session, await on.sign(buyer, session, { value: 3_000_000n }))).status).toBe(200)
    const words = "2.00 of 5.00 USDC arrived, and more is being verified. Wait before you send the rest."
    expect(await on.status(session.id)).toMatchObject({ status: "verifying", message: words })
    await rig.service.ctx.db
      .updateTable("checkout_sessions")
      .set({ run_at: new Date(0) })
      .execute()
    await on.look()
    expect(await on.status(session.id)).toMatchObject({ status: "verifying", message: words })
    await decide(session.id, "accept")
    expect((await on.status(session.id)).status).toBe("confirmed")
    await on.round()
    expect(await states()).toEqual(["cancelled"])
    expect(await rig.balanceOf(buyer.address.toLowerCase() as Address)).toBe(5_000_000n)
  })

  it("waits for what has just arrived and was not looked at yet, and is refused until it was", async () => {
    const { session, buyer } = await submitted()
    await rig.mint(session.payTo, 5_000_000n)
    await on.round()
    expect(await states()).toEqual(["queued"])
    const { run_at } = await rig.service.ctx.db.selectFrom("cursors").select("run_at").executeTakeFirstOrThrow()
    expect(run_at.getTime()).toBeLessThanOrEqual(rig.service.ctx.now().getTime())
    await on.look()
    rig.service.advance(6_000)
    await on.round()
    expect(await states()).toEqual(["cancelled"])
    const other = await on.start()
    await rig.mint(other.payTo, 2_000_000n)
    const early = await on.submit(other, await on.sign(buyer, other))
    expect([early.status, early.body.error]).toEqual([409, "INVALID_OPERATION"])
    await on.look()
    const rest = await on.submit(other, await on.sign(buyer, other, { value: 3_000_000n }))
    expect(rest.body.status).toBe("verifying")
  })

  it("is not signed where what is missing changed between its simulation and its signature", async () => {
    await submitted()
    const { ctx } = rig.service
    const sight = await readWalletState(rig.network, rig.relayer.address, ctx.signal)
    let paid: Promise<unknown> | undefined
    rig.proxy.spoil = (method, params, result) => {
      const [call] = params as [{ from?: string }?]
      if (method !== "eth_call" || call?.from !== rig.relayer.address) return result
      paid ??= ctx.db.updateTable("checkout_sessions").set({ amount: 6_000_000n }).execute()
      return paid.then(() => result)
    }
    const done = await assignPayouts(ctx, relayLane(rig.network, rig.relayer), await relayWallet(), sight)
    await paid
    expect(done).toMatchObject({ assigned: [], postponed: 1 })
    expect(await states()).toEqual(["queued"])
  })

  it("is not asked for while money that can't be screened waits", async () => {
    const session = await on.start()
    const buyer = await on.buyer()
    const { settings } = rig.service.ctx
    settings.sanctionsFile = "/nowhere"
    try {
      await rig.mint(session.payTo, 5_000_000n)
      await on.look()
    } finally {
      settings.sanctionsFile = undefined
    }
    expect(await on.status(session.id)).toMatchObject({ status: "verifying", amountReceived: "0.00" })
    const answer = await on.submit(session, await on.sign(buyer, session))
    expect([answer.status, answer.body.error]).toEqual([422, "AUTHORIZATION_REFUSED"])
  })
})

describe("a relay that can't be carried out", () => {
  const advice = "It paid nothing: sign again, or send the payment yourself."

  it("as the wallet was emptied after the submission ends at once: the session is pending, and says why", async () => {
    const { session, buyer, signed } = await submitted()
    await emptied(buyer)
    await on.round()
    await on.look()
    expect(await states()).toEqual(["cancelled"])
    expect(await on.status(session.id)).toMatchObject({
      status: "pending",
      message: `The wallet holds 0.00 of 5.00 USDC. ${advice}`,
    })
    expect(await attempts()).toEqual([])
    await expectMoved(session.payTo, 0)
    // Once the wallet has money, the same authorization is accepted again.
    await rig.mint(buyer.address.toLowerCase() as Address, 5_000_000n)
    expect((await on.submit(session, signed)).body.status).toBe("verifying")
    expect((await on.status(session.id)).message).not.toContain(advice)
    await on.round()
    await mine()
    await on.look()
    expect((await on.status(session.id)).status).toBe("confirmed")
    await on.round()
    await expectMoved(session.payTo, 1)
  })

  /** Submits, and has the relay revert for good: the buyer's tokens leave in the same block, before it. */
  async function reverted(session: Session, buyer: Buyer, signed: Signed): Promise<void> {
    const { client } = rig.anvil
    const from = buyer.address.toLowerCase() as Address
    expect((await on.submit(session, signed)).body.status).toBe("verifying")
    await client.setBalance({ address: buyer.address, value: 10n ** 18n })
    await client.setAutomine(false)
    await on.round()
    const args = [recipient(8), await rig.balanceOf(from)] as const
    const away = { address: rig.token, abi: erc20Abi, functionName: "transfer", args } as const
    const fees = { maxPriorityFeePerGas: 9_000_000_000n, maxFeePerGas: 20_000_000_000n }
    await client.writeContract({ ...away, account: buyer, gas: 100_000n, ...fees })
    await client.mine({ blocks: 1 })
    await client.setAutomine(true)
    await on.round()
    await on.look()
    // Mined and failed, but not for good: the session still waits.
    expect((await on.status(session.id)).status).toBe("verifying")
    await mine()
    await on.round()
    await on.look()
  }

  /** Anyone carries out an authorization, which is public once its relay was mined. */
  function replay({ authorization, signature }: Signed) {
    const { from, to, value, validAfter, validBefore, nonce } = authorization
    const args = [from, to, value, validAfter, validBefore, nonce, signature] as const
    const call = { address: rig.token, abi: testUsdcAbi, functionName: "transferWithAuthorization", args } as const
    return rig.anvil.client.writeContract({ ...call, account: rig.anvil.accounts[5], gas: 300_000n })
  }

  it("as the wallet was emptied in the block before reverts, is never made again, and three of them are all", async () => {
    const session = await on.start()
    const buyer = await on.buyer()
    const signed = await on.sign(buyer, session)
    const until = new Date(Number(signed.authorization.validBefore) * 1_000).toISOString()
    for (let n = 1; n <= 3; n++) {
      if (n > 1) await rig.mint(buyer.address.toLowerCase() as Address, 5_000_000n)
      await reverted(session, buyer, signed)
      expect(await states()).toEqual(Array(n).fill("reverted"))
      expect(await on.status(session.id)).toMatchObject({
        status: "pending",
        message: `The authorized transfer failed on chain. ${replayCaution(until, "pending")}`,
      })
    }
    await rig.mint(buyer.address.toLowerCase() as Address, 5_000_000n)
    const fourth = await on.submit(session, signed)
    expect([fourth.status, fourth.body.error]).toEqual([409, "INVALID_OPERATION"])
    expect(fourth.body.message).toContain(`a transfer from your wallet after ${until}`)
    await expectMoved(session.payTo, 0)
  })

  it("and reverted is followed by no other that could move money too: a payer who follows the answer pays once", async () => {
    const session = await on.start()
    const buyer = await on.buyer()
    const first = await on.sign(buyer, session)
    await reverted(session, buyer, first)
    await rig.mint(buyer.address.toLowerCase() as Address, 15_000_000n)
    const { nonce } = first.authorization
    // Another nonce, or another wallet, would be a second payment beside the one that anyone can carry out.
    for (const other of [buyer, await on.buyer()]) {
      const refused = await on.submit(session, await on.sign(other, session))
      expect([refused.status, refused.body.error]).toEqual([409, "INVALID_OPERATION"])
      expect(refused.body.message).toContain(`and nonce ${nonce}`)
    }
    const again = await on.sign(buyer, session, { nonce, validAfter: 1n })
    expect((await on.submit(session, again)).body.status).toBe("verifying")
    await on.round()
    await mine()
    await on.round()
    await replay(first)
    await mine()
    await on.look()
    expect(await states()).toEqual(["reverted", "final"])
    expect(await on.status(session.id)).toMatchObject({ status: "confirmed", exception: null })
    await expectMoved(session.payTo, 1)
  })

  it("and reverted leaves another wallet free to pay once it is cancelled on chain, or its time is over", async () => {
    const { client, accounts } = rig.anvil
    const buyer = await on.buyer()
    const other = await on.buyer(10_000_000n)
    const cancelled = await on.start()
    const signed = await on.sign(buyer, cancelled)
    await reverted(cancelled, buyer, signed)
    await client.writeContractSync({
      address: rig.token,
      abi: parseAbi(["function cancelAuthorization(address authorizer, bytes32 nonce, bytes signature)"]),
      functionName: "cancelAuthorization",
      args: [buyer.address, signed.authorization.nonce, await on.signCancel(buyer, signed.authorization)],
      account: accounts[5],
    })
    const endpoints = rig.network.endpoints as Endpoint[]
    endpoints.push(newEndpoint("base-sepolia", "http://127.0.0.1:1"))
    expect((await on.submit(cancelled, await on.sign(other, cancelled))).status, "on the report of one of two").toBe(
      503,
    )
    endpoints.pop()
    expect((await on.submit(cancelled, await on.sign(other, cancelled))).status).toBe(200)
    const outlived = await on.start()
    await rig.mint(buyer.address.toLowerCase() as Address, 5_000_000n)
    const short = await on.sign(buyer, outlived)
    await reverted(outlived, buyer, short)
    const waiting = await on.sign(other, outlived)
    expect((await on.submit(outlived, waiting)).status).toBe(409)
    rig.service.advance(7_200_000)
    const last = await on.sign(other, outlived)
    expect((await on.submit(outlived, last)).body, "after its validBefore").toMatchObject({ status: "verifying" })
  })

  it("and reverted, then paid by hand against our words and carried out by a stranger, is offered back", async () => {
    const session = await on.start()
    const buyer = await on.buyer()
    const first = await on.sign(buyer, session)
    await reverted(session, buyer, first)
    await rig.mint(session.payTo, 5_000_000n)
    await rig.mint(buyer.address.toLowerCase() as Address, 5_000_000n)
    await replay(first)
    await mine()
    await on.look()
    expect(await on.status(session.id)).toMatchObject({ status: "confirmed", exception: "duplicate" })
    const open = await rig.service.call("GET", "/api/console/payments?status=open", undefined, { as: "shop" })
    expect(open.body.data).toMatchObject([{ exception: "duplicate", amount: "5.00" }])
  })

  it("as the session was paid in another way meanwhile, or its link used up, takes nothing more", async () => {
    const { session, buyer } = await submitted()
    await rig.mint(session.payTo, 5_000_000n)
    await on.look()
    await on.round()
    expect(await states()).toEqual(["cancelled"])
    expect(await on.status(session.id)).toMatchObject({ status: "confirmed", exception: null })
    expect(await rig.balanceOf(buyer.address.toLowerCase() as Address)).toBe(5_000_000n)
    // Paid in part: the missing amount is different now.
    const partly = await submitted()
    await rig.mint(partly.session.payTo, 1_000_000n)
    await on.look()
    await on.round()
    await on.look()
    expect(await states()).toEqual(["cancelled", "cancelled"])
    expect(await on.status(partly.session.id)).toMatchObject({
      status: "verifying",
      exception: "underpaid",
      message: "1.00 of 5.00 USDC arrived; send 4.00 more.",
    })
    const link = { slug: "once", title: "Once", amount: 5, maxUses: 1 }
    await rig.service.call("POST", "/api/console/payment-links", link, { as: "shop" })
    const open = async () => {
      const { body } = await rig.service.call("POST", "/api/pay/sessions", { slug: "once" })
      return { id: body.sessionId, payTo: body.payTo.toLowerCase() as Address }
    }
    const first = await open()
    const second = await open()
    const late = await on.buyer()
    expect((await on.submit(second, await on.sign(late, second))).status).toBe(200)
    await rig.mint(first.payTo, 5_000_000n)
    await on.look()
    await on.round()
    expect(await states()).toEqual(["cancelled", "cancelled", "cancelled"])
    expect(await on.received(second.payTo)).toEqual([])
  })

  it("as its payer came on a sanctions list ends, and its status says so", async () => {
    const { mkdtempSync, writeFileSync } = await import("node:fs")
    const { session, buyer } = await submitted()
    const path = `${mkdtempSync("/tmp/sluice-list-")}/sdn.txt`
    writeFileSync(path, buyer.address)
    const { settings } = rig.service.ctx
    settings.sanctionsFile = path
    try {
      await on.round()
      await on.look()
    } finally {
      settings.sanctionsFile = undefined
    }
    expect(await states()).toEqual(["cancelled"])
    expect((await on.status(session.id)).message).toContain("sanctions list")
  })

  it("for want of gas is held, and continues when there is gas; the session does not expire meanwhile", async () => {
    const { client } = rig.anvil
    const balance = await client.getBalance({ address: rig.relayer.address })
    const { session } = await submitted()
    await client.setBalance({ address: rig.relayer.address, value: 1n })
    await on.round()
    expect((await on.relays()).map(row => [row.state, row.held_reason])).toEqual([["held", "low_gas"]])
    await rig.service.ctx.db
      .updateTable("checkout_sessions")
      .set({ run_at: new Date(0) })
      .execute()
    await on.look()
    expect((await on.status(session.id)).status).toBe("verifying")
    // A round of the payout lane does not release a held relay.
    rig.service.advance(31_000)
    await rig.round()
    await client.setBalance({ address: rig.relayer.address, value: balance })
    await on.round()
    await mine()
    await on.look()
    expect((await on.status(session.id)).status).toBe("confirmed")
  })

  it("as a person cancelled it ends; its payer learns nothing of the wallet's gas", async () => {
    const { client } = rig.anvil
    const { ctx } = rig.service
    const balance = await client.getBalance({ address: rig.relayer.address })
    const { session } = await submitted()
    await client.setBalance({ address: rig.relayer.address, value: 1n })
    await on.round()
    await client.setBalance({ address: rig.relayer.address, value: balance })
    const [row] = await on.relays()
    await cancel(ctx, { payout: row?.id ?? "", by: "ops", reason: "a test" })
    await on.look()
    expect(await on.status(session.id)).toMatchObject({
      status: "pending",
      message: `It was not executed. ${advice}`,
    })
  })

  it("before its time is over ends then, though no node answers and the wallet is halted", async () => {
    const { session } = await submitted()
    const { ctx } = rig.service
    const relay = ctx.db.updateTable("wallets").where("lane", "=", "relay")
    await relay.set({ status: "halted", halted_reason: "a test" }).execute()
    rig.service.advance(7_200_000)
    rig.proxy.broken = 503
    await on.round().catch(() => {})
    expect(await states()).toEqual(["cancelled"])
    rig.proxy.broken = undefined
    for (const endpoint of rig.network.endpoints) endpoint.silentUntil = 0
    await on.look()
    expect(await on.status(session.id)).toMatchObject({
      status: "pending",
      message: `The authorization could not be executed before its deadline. ${advice}`,
    })
    const refused = await on.submit(session, await on.sign(await on.buyer(), session))
    expect([refused.status, refused.body.error]).toEqual([503, "RELAY_UNAVAILABLE"])
    // It is refused, too, while the wallet's signer does not sign.
    await relay.set({ status: "active", halted_reason: null, alarms: ["signer"] }).execute()
    const unsigned = await on.submit(session, await on.sign(await on.buyer(), session))
    expect([unsigned.status, unsigned.body.error]).toEqual([503, "RELAY_UNAVAILABLE"])
    expect((await rig.payouts()).length).toBe(1)
  })

  it("keeps no payout from being made, and is none in the books", async () => {
    await submitted()
    const shop = await rig.sell([50, 50])
    await rig.paid(shop, 1_000_000n)
    await on.round()
    await rig.round()
    await mine()
    rig.service.advance(3_700_000)
    await payoutRound(rig.service.ctx, relayLane(rig.network, rig.relayer))
    await payoutRound(rig.service.ctx, payoutLane(rig.network, rig.signer))
    await rig.compareLogs()
    expect(new Set(await rig.states())).toEqual(new Set(["final"]))
    const wallets = await rig.service.ctx.db.selectFrom("wallets").selectAll().orderBy("lane").execute()
    expect(wallets.map(({ lane, status }) => [lane, status])).toEqual([
      ["payout", "active"],
      ["relay", "active"],
    ])
    // The comparison reached the final block and found nothing wrong.
    const { number } = await rig.anvil.client.getBlock({ blockTag: "finalized" })
    expect(wallets[0]?.checked_number).toBe(number)
  })
})

describe("what relays may cost", () => {
  const refusal = async (session: { id: string }, buyer: Awaited<ReturnType<typeof on.buyer>>) => {
    const answer = await on.submit(session, await on.sign(buyer, session as Awaited<ReturnType<typeof on.start>>))
    return [answer.status, answer.body.error, answer.body.message]
  }

  it("is half of a merchant's budget: then it is refused at once, and payouts go on", async () => {
    const { settings } = rig.service.ctx
    const { session } = await submitted()
    await on.round()
    const [{ gas_cost: cost = null } = {}] = await on.relays()
    const limit = 4n * (cost ?? 0n)
    try {
      // A relay reserves several times what it costs in the end.
      settings.gasBudget = limit
      const other = await on.start()
      const words =
        "The service relays no more payments for this merchant today. Send a transfer from your wallet instead."
      expect(await refusal(other, await on.buyer())).toEqual([503, "RELAY_UNAVAILABLE", words])
      settings.gasBudget = 0n
      expect((await on.submit(other, await on.sign(await on.buyer(), other))).status).toBe(200)
      // A relay that was accepted earlier is cancelled when it would be signed, and its session is settled soon.
      settings.gasBudget = limit
      await on.round()
      expect(await states()).toEqual(["final", "cancelled"])
      await rig.service.ctx.db
        .updateTable("payouts")
        .set({ gas_cost: 10n ** 16n })
        .where("succeeded", "=", true)
        .execute()
      settings.gasBudget = 2n * 10n ** 16n
      expect(await refusal(await on.start(), await on.buyer())).toEqual([503, "RELAY_UNAVAILABLE", words])
      await rig.paid(await rig.sell([50, 50]), 1_000_000n)
      await rig.round()
      const payouts = (await rig.payouts()).filter(row => row.lane === "payout")
      expect(payouts.map(row => row.nonce !== null)).toEqual([true, true])
      expect((await on.status(session.id)).status).toBe("verifying")
    } finally {
      settings.gasBudget = 0n
    }
  })

  it("ends for a wallet of which three failed, whichever sessions they were for", async () => {
    const { client } = rig.anvil
    const wallet = await on.buyer()
    const address = wallet.address.toLowerCase() as Address
    const early = [await on.start(), await on.start(), await on.start(), await on.start()]
    for (const session of early) {
      const answer = await on.submit(session, await on.sign(wallet, session))
      expect([answer.status, JSON.stringify(answer.body)]).toEqual([200, expect.anything()])
    }
    const ids = (await on.relays()).map(row => row.id)
    // The last waits, while the others fail.
    await rig.service.ctx.db
      .updateTable("payouts")
      .set({ run_at: new Date(4_000_000_000_000) })
      .where("id", "=", ids[3] ?? "")
      .execute()
    await client.setAutomine(false)
    await client.setBalance({ address: wallet.address, value: 10n ** 18n })
    await on.round()
    const args = [recipient(8), 5_000_000n] as const
    const away = { address: rig.token, abi: erc20Abi, functionName: "transfer", args } as const
    const fees = { maxPriorityFeePerGas: 9_000_000_000n, maxFeePerGas: 20_000_000_000n }
    await client.writeContract({ ...away, account: wallet, gas: 100_000n, ...fees })
    await client.mine({ blocks: 1 })
    await client.setAutomine(true)
    await on.round()
    // They failed, but not in a final block yet.
    expect((await on.relays()).map(row => row.succeeded)).toEqual([false, false, false, null])
    await rig.mint(address, 5_000_000n)
    const words = "Too many of this wallet's authorizations failed today. Send a transfer from your wallet instead."
    expect(await refusal(await on.start(), wallet)).toEqual([409, "INVALID_OPERATION", words])
    await rig.service.ctx.db
      .updateTable("payouts")
      .set({ run_at: new Date(0) })
      .where("id", "=", ids[3] ?? "")
      .execute()
    await findPreempted(rig.service.ctx, rig.network, 0)
    rig.service.advance(DOUBTED_MS)
    await on.round()
    expect((await states())[3]).toBe("cancelled")
    await mine()
    await on.round()
    expect(await states()).toEqual(["reverted", "reverted", "reverted", "cancelled"])
    expect(await refusal(await on.start(), wallet)).toEqual([409, "INVALID_OPERATION", words])
    rig.service.advance(86_400_000)
    const later = await on.start()
    expect((await on.submit(later, await on.sign(wallet, later))).status).toBe(200)
  })

  it("is what its data costs too, by its size", async () => {
    const oracle = "0x420000000000000000000000000000000000000f"
    // Answers 10^15 wei to any call.
    await rig.anvil.client.setCode({
      address: oracle,
      bytecode: `0x67${(10n ** 15n).toString(16).padStart(16, "0")}60005260206000f3`,
    })
    const balance = await rig.anvil.client.getBalance({ address: rig.relayer.address })
    try {
      const { session } = await submitted()
      const [row] = await on.relays()
      // As one of a contract wallet whose signature has three kilobytes.
      const long = `${row?.data}${"00".repeat(3_000)}`
      await rig.service.ctx.db.deleteFrom("payouts").execute()
      await rig.service.ctx.db
        .insertInto("payouts")
        .values({ ...row, data: long } as never)
        .execute()
      await rig.anvil.client.setBalance({ address: rig.relayer.address, value: 9n * 10n ** 15n })
      await on.round()
      expect((await on.relays()).map(each => each.held_reason)).toEqual(["low_gas"])
      await rig.anvil.client.setBalance({ address: rig.relayer.address, value: 10n ** 18n })
      rig.service.advance(31_000)
      await rig.anvil.client.setAutomine(false)
      await on.round()
      expect(await inFlight(rig.service.ctx, await relayWallet())).toMatchObject({ n: 1, parts: 5n })
      await rig.anvil.client.setAutomine(true)
      await mine()
      expect(session.id).toBeTruthy()
    } finally {
      await rig.anvil.client.setCode({ address: oracle, bytecode: "0x" })
      await rig.anvil.client.setBalance({ address: rig.relayer.address, value: balance })
    }
  })

  it("does not have the addresses that it paid looked at for ever", async () => {
    const { session } = await submitted()
    await on.round()
    await mine()
    await on.round()
    await on.look()
    const { db } = rig.service.ctx
    await db
      .updateTable("deposits")
      .set({ watched: false, watched_number: 0n, dormant_since: new Date(0), check_at: new Date(0) })
      .execute()
    await checkDormantDeposits(rig.service.ctx, rig.network)
    const { watched } = await db
      .selectFrom("deposits")
      .select("watched")
      .where("resource_id", "=", session.id)
      .executeTakeFirstOrThrow()
    expect(watched).toBe(false)
  })
})

describe("the database refuses", () => {
  const refused = (work: Promise<unknown>, words: string) => expect(work).rejects.toThrow(words)
  const insert = (row: object) =>
    rig.service.ctx.db
      .insertInto("payouts")
      .values(row as never)
      .execute()

  it("two relays of one authorization, or two at once for one session", async () => {
    await submitted()
    const [row] = await on.relays()
    const other = `0x${"12".repeat(32)}`
    const more = (change: object) => ({ ...row, id: crypto.randomUUID(), source_key: "another", ...change })
    const session = await on.start()
    const [deposit] = await rig.service.ctx.db
      .selectFrom("deposits")
      .selectAll()
      .where("resource_id", "=", session.id)
      .execute()
    await refused(insert(more({ deposit_id: deposit?.id })), "payouts_of_authorization")
    await refused(insert(more({ auth_nonce: other })), "payouts_relay_of_deposit")
    // An agent's, of the same authorization.
    await refused(insert(more({ kind: "settle", deposit_id: deposit?.id })), "payouts_of_authorization")
    await insert(more({ deposit_id: deposit?.id, auth_nonce: other }))
  })

  it("a relay that a book counts, one of nobody's, and a payout of somebody's", async () => {
    await submitted()
    const [row] = await on.relays()
    const more = (change: object) => ({ ...row, id: crypto.randomUUID(), source_key: "another", ...change })
    await refused(insert(more({ reserved: true })), "payouts_reserved")
    await refused(insert(more({ payer: null })), "payouts_relay_whole")
    await refused(insert(more({ relay_by: null })), "payouts_relay_whole")
    await refused(insert(more({ kind: "return" })), "payouts_relay_whole")
  })
})

describe("a relay that an old backup does not know to be signed", () => {
  it("is adopted, and in no book: its session is paid, once", async () => {
    const { ctx } = rig.service
    const operator = openOperator(rig)
    ctx.settings.relaySigner = rig.relayer
    const { session } = await submitted()
    const restore = await backUp(ctx)
    await on.round()
    await mine()
    const [relay] = await on.relays()
    await restore()
    expect(await states()).toEqual(["queued"])
    await checkWallet(ctx, relayLane(rig.network, rig.relayer))
    expect((await relayWallet()).status).toBe("halted")
    const { status, body } = await operator.ask("/adopt", { hash: relay?.tx_hash })
    expect([status, body.said], JSON.stringify(body)).toEqual([200, expect.stringContaining("pays the payout")])
    expect((await operator.ask("/resume", { wallet: "relay", reason: "backup" })).status).toBe(200)
    await on.round()
    expect(await states()).toEqual(["final"])
    await on.look()
    expect((await on.status(session.id)).status).toBe("confirmed")
    await expectMoved(session.payTo, 1)
    expect(await checkConsistency(ctx, rig.network.chainId)).toEqual([])
    await operator.stop()
  })
})
