// What one payer's relays may cost: its failures end its relays for a day, unless it paid, and what is in flight grows with what it paid.
import { sql } from "kysely"
import { erc20Abi } from "viem"
import type { PrivateKeyAccount } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { escrowsOn } from "../../../test/escrow.ts"
import { failed } from "../../../test/node.ts"
import { type PayoutRig, recipient, startPayoutRig } from "../../../test/payouts.ts"
import { FIRST, relaysOn, type Session, type Signed } from "../../../test/relays.ts"
import { reservesOn } from "../../../test/reserve.ts"
import { firstFees } from "../../platform/chain/fees.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { readWalletState } from "../../platform/chain/wallet-state.ts"
import { inTransaction } from "../../platform/context.ts"
import { checkConsistency } from "../reconciliation/check-consistency.ts"
import { giveNonces } from "../txmanager/give-nonces.ts"
import { beyondFlight, DOUBTED_MS, FIRST_IN_FLIGHT, failingPayers, MAX_OPEN } from "./check-payer-limits.ts"
import { findPreempted } from "./find-preempted.ts"
import { relayLane } from "./relay-lane.ts"

let rig: PayoutRig
let on: ReturnType<typeof relaysOn>
beforeAll(async () => {
  rig = await startPayoutRig()
  on = relaysOn(rig)
})
afterAll(() => rig?.stop())
beforeEach(() => on.begin())

/** Submits a wallet's authorization for a checkout of its own. */
async function submitted(wallet: PrivateKeyAccount): Promise<{ session: Session; signed: Signed }> {
  const session = await on.start()
  const signed = await on.sign(wallet, session)
  const answer = await on.submit(session, signed)
  expect([answer.status, JSON.stringify(answer.body)]).toEqual([200, expect.anything()])
  return { session, signed }
}

/** Runs a round, and mines what it sent together with what `others` sent first; then runs another. */
async function minedAfter(others: () => Promise<unknown>): Promise<void> {
  const { client } = rig.anvil
  await client.setAutomine(false)
  await on.round()
  await others()
  await client.mine({ blocks: 1 })
  await client.setAutomine(true)
  await on.round()
}

/** Moves what a wallet holds elsewhere, in a transaction of its own. */
async function moveAway(wallet: PrivateKeyAccount): Promise<void> {
  const { client } = rig.anvil
  await client.setBalance({ address: wallet.address, value: 10n ** 18n })
  const args = [recipient(8), await rig.balanceOf(addressOf(wallet))] as const
  await client.writeContract({
    address: rig.token,
    abi: erc20Abi,
    functionName: "transfer",
    args,
    account: wallet,
    ...FIRST,
  })
}

/** Asks the chain about failed relays, as the worker does beside its rounds. */
const explained = () => findPreempted(rig.service.ctx, rig.network, 0)
const outcomes = async () => (await on.relays()).map(row => [row.succeeded, row.preempted])
const addressOf = (wallet: PrivateKeyAccount) => wallet.address.toLowerCase() as Address
const standing = async (wallet: PrivateKeyAccount) =>
  (await failingPayers(rig.service.ctx, [addressOf(wallet)])).get(addressOf(wallet))

const relaysBy = async () => Map.groupBy(await on.relays(), row => row.state)
const attempts = () => rig.service.ctx.db.selectFrom("transaction_attempts").selectAll().orderBy("id").execute()
const counts = async () => Object.fromEntries([...(await relaysBy())].map(([state, rows]) => [state, rows.length]))
const expectSound = async () => expect(await checkConsistency(rig.service.ctx, rig.network.chainId)).toEqual([])

it("a payer whose authorizations a stranger carried out first has paid, and goes on", async () => {
  const { client } = rig.anvil
  const wallet = await on.buyer(25_000_000n)
  const sessions: Session[] = []
  for (let i = 0; i < 3; i++) {
    const { session, signed } = await submitted(wallet)
    sessions.push(session)
    await minedAfter(() => on.carryOutFirst(signed))
  }
  expect(await standing(wallet)).toBe("unexplained")
  await explained()
  expect(await outcomes()).toEqual(Array(3).fill([false, true]))
  expect(await standing(wallet)).toBeUndefined()
  await submitted(wallet)
  await client.mine({ blocks: 3 })
  await on.look()
  for (const { id } of sessions) expect((await on.status(id)).status).toBe("confirmed")
  await on.round()
  await expectSound()
})

it("a payer that cancelled its authorizations, or used them for something else, has not", async () => {
  const wallet = await on.buyer(25_000_000n)
  for (let i = 0; i < 3; i++) {
    const { session, signed } = await submitted(wallet)
    const { nonce } = signed.authorization
    const other = await on.sign(wallet, { ...session, payTo: recipient(3) }, { nonce, value: 5_000_000n })
    await minedAfter(() => (i === 0 ? on.cancelFirst(wallet, signed) : on.carryOutFirst(other)))
  }
  await explained()
  expect(await outcomes()).toEqual(Array(3).fill([false, false]))
  // A node that is behind may have said so.
  expect(await standing(wallet)).toBe("unexplained")
  rig.service.advance(DOUBTED_MS)
  expect(await standing(wallet)).toBe("failed")
  const session = await on.start()
  const { status, body } = await on.submit(session, await on.sign(wallet, session))
  expect([status, body.message]).toEqual([409, expect.stringMatching(/^Too many of this wallet's authorizations/)])
})

it("a payer that had its relay burn gas, and carried the authorization out behind it, has not paid first", async () => {
  const { client } = rig.anvil
  const burner = `0x${"bd".repeat(20)}` as Address
  await client.setCode({ address: burner, bytecode: "0xfe" })
  const wallet = await on.buyer()
  const { signed } = await submitted(wallet)
  await client.setAutomine(false)
  await on.round()
  const delegate = async (contractAddress: Address, nonce: number, fees: object) => {
    const delegation = await wallet.signAuthorization({ contractAddress, chainId: 84532, nonce })
    const [, , , account, , other] = rig.anvil.accounts
    const by = nonce === 0 ? account : other
    await client.sendTransaction({ account: by, to: by?.address, authorizationList: [delegation], ...fees } as never)
  }
  await delegate(burner, 0, FIRST)
  const { baseFeePerGas } = await client.getBlock()
  const last = { maxFeePerGas: ((baseFeePerGas ?? 0n) * 9n) / 8n, maxPriorityFeePerGas: 0n, gas: 200_000n }
  await delegate(`0x${"0".repeat(40)}` as Address, 1, last)
  await on.carryOut(signed, last)
  await client.mine({ blocks: 1 })
  await client.setAutomine(true)
  expect(await on.received(signed.authorization.to)).toEqual([5_000_000n])
  await on.round()
  await explained()
  expect(await outcomes()).toEqual([[false, false]])
})

it("what a node does not know yet is asked again: a node that is behind calls the nonce unused", async () => {
  const wallet = await on.buyer()
  const { signed } = await submitted(wallet)
  rig.proxy.spoil = (method, _params, result) => (method === "eth_getLogs" ? failed("no logs today") : result)
  await minedAfter(() => on.carryOutFirst(signed))
  await explained()
  expect(await outcomes()).toEqual([[false, null]])
  const isState = (params: unknown[]) => JSON.stringify(params[0]).includes("0xe94a0102")
  rig.proxy.spoil = (method, params, result) =>
    method === "eth_getLogs" ? [] : method === "eth_call" && isState(params) ? `0x${"0".repeat(64)}` : result
  await explained()
  expect(await outcomes()).toEqual([[false, false]])
  rig.proxy.spoil = (_method, _params, result) => result
  await explained()
  expect(await outcomes()).toEqual([[false, true]])
})

it("questions about failed relays silence no endpoint for the rounds of the wallet", async () => {
  const wallet = await on.buyer()
  const { signed } = await submitted(wallet)
  await minedAfter(() => on.carryOutFirst(signed))
  rig.proxy.broken = 500
  rig.proxy.brokenFor = "eth_getLogs"
  await explained()
  rig.proxy.broken = undefined
  expect(await outcomes()).toEqual([[false, null]])
  expect(rig.network.endpoints.map(({ failures, silentUntil }) => [failures, silentUntil])).toEqual([[0, 0]])
})

it("is found though the relay was mined thousands of blocks after it", async () => {
  const { client } = rig.anvil
  const wallet = await on.buyer()
  const { signed } = await submitted(wallet)
  await client.setAutomine(false)
  await on.round()
  await on.carryOutFirst(signed)
  await client.request({ method: "anvil_dropTransaction", params: [(await attempts()).at(-1)?.hash] } as never)
  await client.mine({ blocks: 2_100 })
  rig.service.advance(4_200_000)
  await client.setAutomine(true)
  await on.round({ resendMs: 0, replaceMs: 4_000_000_000 })
  await on.round()
  await explained()
  expect(await outcomes()).toEqual([[false, true]])
})

it("relays of a payer wait while it is not known whose fault its failures are, and are made when it is not its own", async () => {
  const wallet = await on.buyer(200_000_000n)
  const signed: Signed[] = []
  for (let i = 0; i < 2 * FIRST_IN_FLIGHT; i++) signed.push((await submitted(wallet)).signed)
  await minedAfter(async () => {
    for (const each of signed.slice(0, FIRST_IN_FLIGHT)) await on.carryOutFirst(each)
  })
  rig.service.advance(1_000)
  await on.round()
  expect(await counts()).toEqual({ mined: FIRST_IN_FLIGHT, queued: FIRST_IN_FLIGHT })
  expect(await explained()).toBe(0)
  rig.service.advance(1_000)
  await on.round()
  expect((await on.relays()).map(row => row.succeeded)).toEqual([
    ...Array(FIRST_IN_FLIGHT).fill(false),
    ...Array(FIRST_IN_FLIGHT).fill(true),
  ])
  await expectSound()
})

it("a new payer has a few relays in flight, and twice as many in each block while they succeed", async () => {
  const wallet = await on.buyer(200_000_000n)
  const { client } = rig.anvil
  for (let i = 0; i < 3 * FIRST_IN_FLIGHT; i++) await submitted(wallet)
  const other = await submitted(await on.buyer())
  await client.setAutomine(false)
  await on.round()
  expect(await counts()).toEqual({ assigned: FIRST_IN_FLIGHT + 1, queued: 2 * FIRST_IN_FLIGHT })
  await client.mine({ blocks: 1 })
  await client.setAutomine(true)
  await on.round()
  rig.service.advance(1_000)
  const due = (await on.relays()).filter(({ state }) => state === "queued")
  expect((await beyondFlight(rig.service.ctx, rig.network, due)).size).toBe(0)
  expect((await beyondFlight(rig.service.ctx, rig.network, [...due, ...due])).size).toBe(2 * FIRST_IN_FLIGHT)
  await on.round()
  expect((await on.relays()).map(row => row.succeeded)).toEqual(Array(3 * FIRST_IN_FLIGHT + 1).fill(true))
  await client.mine({ blocks: 3 })
  await on.look()
  expect((await on.status(other.session.id)).status).toBe("confirmed")
  await expectSound()
})

it("two workers that judged a payer's relays at the same time sign no more of them together", async () => {
  const { ctx } = rig.service
  const wallet = await on.buyer(200_000_000n)
  for (let i = 0; i < 2 * FIRST_IN_FLIGHT; i++) await submitted(wallet)
  const row = await ctx.db.selectFrom("wallets").selectAll().where("lane", "=", "relay").executeTakeFirstOrThrow()
  const {
    market,
    balance = 0n,
    latest = 0n,
    dataFee,
  } = await readWalletState(rig.network, rig.relayer.address, ctx.signal)
  const fees = market && firstFees(market, ctx.settings.payoutMaxFee)
  if (!fees) throw new Error("no fees")
  const approved = (await on.relays()).map(payout => ({ payout, verdict: { kind: "sign" } as const }))
  const lane = relayLane(rig.network, rig.relayer)
  const given: number[] = []
  for (const half of [approved.slice(0, FIRST_IN_FLIGHT), approved.slice(FIRST_IN_FLIGHT)])
    await inTransaction(ctx, async ctx => {
      const { assigned } = await giveNonces(ctx, lane, row, half, { fees, balance, count: latest, dataFee })
      given.push(assigned.length)
    })
  expect(given).toEqual([FIRST_IN_FLIGHT, 0])
})

it("a payer that moves its money away has a few relays fail, and the others are not made", async () => {
  const wallet = await on.buyer(200_000_000n)
  for (let i = 0; i < 2 * FIRST_IN_FLIGHT; i++) await submitted(wallet)
  await minedAfter(() => moveAway(wallet))
  await rig.mint(addressOf(wallet), 200_000_000n)
  expect(await counts()).toEqual({ mined: FIRST_IN_FLIGHT, queued: FIRST_IN_FLIGHT })
  await explained()
  rig.service.advance(1_000)
  await on.round()
  expect(await counts()).toEqual({ mined: FIRST_IN_FLIGHT, queued: FIRST_IN_FLIGHT })
  rig.service.advance(DOUBTED_MS)
  await on.round()
  expect(await counts()).toEqual({ mined: FIRST_IN_FLIGHT, cancelled: FIRST_IN_FLIGHT })
  await expectSound()
})

it("what a payer paid one merchant lets no more of its relays be in flight at another", async () => {
  const { ctx } = rig.service
  const wallet = await on.buyer(200_000_000n)
  for (let i = 0; i < 3; i++) await submitted(wallet)
  await on.round()
  const [{ merchant_id: merchant } = { merchant_id: "" }] = await on.relays()
  const due = (merchant_id: string) =>
    Array.from({ length: 20 }, (_, i) => ({ id: `${merchant_id} ${i}`, payer: addressOf(wallet), merchant_id }))
  const beyond = await beyondFlight(ctx, rig.network, [...due(merchant), ...due("another")])
  expect([...beyond].map(id => id.split(" ")[0]).filter(id => id === merchant)).toHaveLength(20 - FIRST_IN_FLIGHT - 3)
  expect(beyond.size).toBe(2 * (20 - FIRST_IN_FLIGHT) - 3)
})

/** Has as many of a wallet's relays wait as may, as copies of its first. */
const fill = () =>
  sql`insert into payouts select (jsonb_populate_record(i, jsonb_build_object('id', gen_random_uuid(),
      'source_key', 'copy:' || n, 'auth_nonce', '0x' || lpad(to_hex(n), 64, '0'), 'deposit_id', null, 'kind', 'settle'))).*
    from payouts i, generate_series(1, ${MAX_OPEN - 1}::int) n`.execute(rig.service.ctx.db)

it("no more authorizations of a wallet are taken while 256 wait, and a transfer still pays", async () => {
  const { ctx } = rig.service
  const wallet = await on.buyer(200_000_000n)
  await submitted(wallet)
  await fill()
  const session = await on.start()
  const { status, body } = await on.submit(session, await on.sign(wallet, session))
  expect([status, body.error, body.message]).toEqual([
    429,
    "RATE_LIMITED",
    "256 authorizations of this wallet are already waiting. Send a transfer from your wallet instead.",
  ])
  await sql`delete from payouts where source_key = 'copy:1'`.execute(ctx.db)
  expect((await on.submit(session, await on.sign(wallet, session))).status).toBe(200)
})

it("no more of a wallet's reservations are taken while 256 of its relays wait", async () => {
  const { begin, escrow } = await escrowsOn(rig)
  await begin()
  const reserves = reservesOn(rig, escrow)
  const wallet = await reserves.buyer(200_000_000n)
  await submitted(wallet)
  await fill()
  const id = await reserves.start()
  const { status, body } = await reserves.submit(id, await reserves.sign(wallet, id))
  expect([status, body.error, body.message]).toEqual([
    429,
    "RATE_LIMITED",
    expect.stringMatching(/^256 authorizations of this wallet are already waiting\./),
  ])
})
