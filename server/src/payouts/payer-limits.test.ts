// What one payer's relays may cost: its failures end its relays for a day, unless it paid, and what is in flight grows with what it paid.
import { erc20Abi } from "viem"
import type { PrivateKeyAccount } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { failed } from "../../test/node.ts"
import { type PayoutRig, recipient, startPayoutRig } from "../../test/payouts.ts"
import { FIRST, relaysOn, type Session, type Signed } from "../../test/relays.ts"
import { checkConsistency } from "../reconciliation/check-consistency.ts"
import { beyondFlight, FIRST_IN_FLIGHT } from "./payer-limits.ts"

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
  const args = [recipient(8), await rig.balanceOf(wallet.address.toLowerCase() as never)] as const
  await client.writeContract({
    address: rig.token,
    abi: erc20Abi,
    functionName: "transfer",
    args,
    account: wallet,
    ...FIRST,
  })
}

const relaysBy = async () => Map.groupBy(await on.relays(), row => row.state)
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
  expect((await on.relays()).map(row => [row.succeeded, row.preempted])).toEqual(Array(3).fill([false, true]))
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
  expect((await on.relays()).map(row => [row.succeeded, row.preempted])).toEqual(Array(3).fill([false, false]))
  const session = await on.start()
  const { status, body } = await on.submit(session, await on.sign(wallet, session))
  expect([status, body.message]).toEqual([409, expect.stringMatching(/^Too many authorizations of this wallet/)])
})

it("is asked about again where no quorum answered when the relay failed", async () => {
  const wallet = await on.buyer()
  const { signed } = await submitted(wallet)
  rig.proxy.spoil = (method, _params, result) => (method === "eth_getLogs" ? failed("no logs today") : result)
  await minedAfter(() => on.carryOutFirst(signed))
  expect((await on.relays()).map(row => [row.succeeded, row.preempted])).toEqual([[false, null]])
  rig.proxy.spoil = (_method, _params, result) => result
  await rig.anvil.client.mine({ blocks: 3 })
  await on.round()
  expect((await on.relays()).map(row => [row.state, row.preempted])).toEqual([["reverted", true]])
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

it("a payer that moves its money away has a few relays fail, and the others are not made", async () => {
  const wallet = await on.buyer(200_000_000n)
  for (let i = 0; i < 2 * FIRST_IN_FLIGHT; i++) await submitted(wallet)
  await minedAfter(() => moveAway(wallet))
  await rig.mint(wallet.address.toLowerCase() as never, 200_000_000n)
  expect(await counts()).toEqual({ mined: FIRST_IN_FLIGHT, queued: FIRST_IN_FLIGHT })
  rig.service.advance(1_000)
  await on.round()
  expect(await counts()).toEqual({ mined: FIRST_IN_FLIGHT, cancelled: FIRST_IN_FLIGHT })
  await expectSound()
})
