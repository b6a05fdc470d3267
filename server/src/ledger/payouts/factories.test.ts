// When the payout wallet is changed: another factory's deposits are released by the old wallet, beside the new one; on the same
// factory the new wallet finishes what the old one had signed.
import type { Hex } from "viem"
import { afterAll, beforeAll, expect, it } from "vitest"
import { deployDepositFactory } from "../../../test/anvil.ts"
import { lifeOf } from "../../../test/life.ts"
import { makeOlder } from "../../../test/older-factory.ts"
import { type PayoutRig, recipient, startPayoutRig } from "../../../test/payouts.ts"
import { relaysOn } from "../../../test/relays.ts"
import { signerOf } from "../../../test/signer.ts"
import { waitingAlarms } from "../../operations/doctor/waiting-alarms.ts"
import { depositFactoryAbi, testUsdcAbi } from "../../platform/chain/abi.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { checkBooks } from "../reconciliation/check-books.ts"
import { checkConsistency } from "../reconciliation/check-consistency.ts"
import { relayLane } from "../relays/relay-lane.ts"
import { checkWallet } from "../txmanager/lock-wallet.ts"
import { alarmMessages } from "../txmanager/report-alarms.ts"
import { payoutRound } from "../txmanager/run-round.ts"
import { payoutLane } from "./payout-lane.ts"

let rig: PayoutRig
beforeAll(async () => {
  rig = await startPayoutRig()
})
afterAll(() => rig.stop())

it("signs for its own factory's deposits alone, and leaves the others to the process that has their key", async () => {
  const { ctx } = rig.service
  const { client, accounts } = rig.anvil
  const [, , , , account] = accounts
  const fresh = signerOf(account)
  await client.mine({ blocks: 3 })
  await rig.empty()
  const network = { ...rig.network, depositFactory: await deployDepositFactory(client, fresh.address) }
  await checkWallet(ctx, payoutLane(network, fresh))
  const before = await rig.sell([50, 50])
  ctx.chain.networks[0] = network
  const after = await rig.sell([20, 80])
  ctx.chain.networks[0] = rig.network
  expect([before.deposit.factory, after.deposit.factory]).toEqual([rig.network.depositFactory, network.depositFactory])
  await rig.paid(before, 1_000_000n)
  await rig.paid(after, 1_000_000n)
  const states = async () => (await rig.states()).sort()
  await payoutRound(ctx, payoutLane(network, fresh))
  expect(await states()).toEqual(["mined", "mined", "queued", "queued"])
  expect(await rig.balanceOf(recipient(0))).toBe(200_000n)
  await rig.round()
  expect(await rig.balanceOf(recipient(0))).toBe(700_000n)
  await client.mine({ blocks: 3 })
  await payoutRound(ctx, payoutLane(network, fresh))
  await rig.round()
  expect(await states()).toEqual(["final", "final", "final", "final"])
  expect((await rig.payouts()).map(row => row.wallet).sort()).toEqual(
    [fresh.address, fresh.address, rig.signer.address, rig.signer.address].sort(),
  )
  // An outflow without a payout halts both wallets, whichever process sees it first.
  const { address } = before.deposit
  await rig.mint(address, 1n)
  await client.impersonateAccount({ address })
  await client.setBalance({ address, value: 10n ** 18n })
  const args = [recipient(9), 1n] as const
  await client.writeContract({
    address: rig.token,
    abi: testUsdcAbi,
    functionName: "transfer",
    args,
    account: address,
  })
  await client.mine({ blocks: 80 })
  await ctx.db.updateTable("wallets").set({ check_at: null }).where("address", "=", fresh.address).execute()
  await checkBooks(ctx, network, fresh.address)
  const halted = await ctx.db
    .selectFrom("wallets")
    .select("status")
    .where("halted_reason", "like", "%left a deposit without a payout")
    .execute()
  expect(halted.length).toBe(2)
})

it("pays no authorization into an address whose own older wallet is halted, and goes on with those of the current one", async () => {
  const { ctx } = rig.service
  const on = relaysOn(rig)
  await on.begin()
  const { client, accounts } = rig.anvil
  const [, , , , , account] = accounts
  const current = account.address.toLowerCase() as Address
  const network = { ...rig.network, depositFactory: await deployDepositFactory(client, current) }
  const submitted = async () => {
    const session = await on.start()
    const answer = await on.submit(session, await on.sign(await on.buyer(), session))
    expect(answer.status, JSON.stringify(answer.body)).toBe(200)
    return session
  }
  const older = await submitted()
  ctx.chain.networks[0] = network
  ctx.settings.serviceWallets = [current]
  try {
    const newer = await submitted()
    // Its halt comes after the authorization was accepted.
    await ctx.db
      .updateTable("wallets")
      .set({ status: "halted", halted_reason: "its key may be stolen" })
      .where("address", "=", rig.signer.address)
      .execute()
    await payoutRound(ctx, relayLane(network, rig.relayer))
    const relays = await on.relays()
    expect(relays.map(({ state, held_detail }) => ({ state, held_detail }))).toEqual([
      { state: "cancelled", held_detail: "Payments on this network are paused." },
      { state: "mined", held_detail: null },
    ])
    expect([await on.received(older.payTo), await on.received(newer.payTo)]).toEqual([[], [5_000_000n]])
  } finally {
    ctx.chain.networks[0] = rig.network
    ctx.settings.serviceWallets = []
  }
})

it("finishes what the old wallet of the same factory had signed: confirms it, has it fail, and pays each once", async () => {
  const { ctx } = rig.service
  const { client, accounts } = rig.anvil
  const life = lifeOf(rig)
  await life.begin()
  const [, , , , , , fresh, , , merchant] = accounts
  const next = signerOf(fresh)
  const as = { as: "shop" }
  const put = (body: object) => rig.service.call("PUT", "/api/console/settings", body, as)
  const giveBack = (id: string, body: object) =>
    rig.service.call("POST", `/api/console/payments/${id}/return`, body, as)
  const owed = [recipient(0), recipient(1), recipient(20), recipient(21)]
  const balances = () => Promise.all(owed.map(each => rig.balanceOf(each)))
  const before = await balances()
  // Two shares are mined; two more and two returns, one of them approved by the merchant's wallet, are signed and in no block.
  const shop = await rig.sell([50, 50])
  await rig.paid(shop, 1_000_000n)
  const later = await rig.paid(shop, 2_000_000n)
  const due = (at: Date) => ctx.db.updateTable("payouts").set({ run_at: at }).where("payment_id", "=", later).execute()
  await due(new Date(ctx.now().getTime() + 60_000))
  const small = await rig.paid(await rig.sell(), 200_000n)
  expect((await put({ approver: "wallet" })).status).toBe(200)
  const signed = await rig.paid(await rig.sell(), 300_000n)
  await rig.round()
  await due(ctx.now())
  expect((await giveBack(small, { address: recipient(20) })).status).toBe(200)
  const { domain, types, primaryType, message } = (await giveBack(signed, { address: recipient(21) })).body.details[0]
    .typedData
  const { EIP712Domain: _, ...own } = types
  const signature: Hex = await merchant.signTypedData({ domain, types: own, primaryType, message })
  const approval = { deadline: Number.parseInt(message.deadline, 10), signature }
  expect((await giveBack(signed, { address: recipient(21), approval })).status).toBe(200)
  await client.setAutomine(false)
  await rig.round()
  await client.dropAllTransactions()
  await client.setAutomine(true)
  expect((await rig.states()).sort()).toEqual(["assigned", "assigned", "assigned", "assigned", "mined", "mined"])

  const setOperator = (operator: Address) =>
    client.writeContractSync({
      address: rig.network.depositFactory,
      abi: depositFactoryAbi,
      functionName: "setOperator",
      args: [operator],
    })
  const round = () => payoutRound(ctx, payoutLane(rig.network, next))
  const set = (values: object) => ctx.db.updateTable("wallets").set(values).where("address", "=", rig.signer.address)
  const sends = async () =>
    (await ctx.db.selectFrom("transaction_attempts").select("sends").orderBy("id").execute()).map(each => each.sends)
  await set({ status: "halted", halted_reason: "its key may be stolen" }).execute()
  ctx.settings.serviceWallets = [next.address]
  try {
    await checkWallet(ctx, payoutLane(rig.network, next))
    await client.mine({ blocks: 80 })
    const sent = await sends()
    await ctx.db.updateTable("transaction_attempts").set({ sent_at: null }).execute()
    // While the factory obeys the halted wallet, nothing of it is sent; what it had mined is confirmed.
    await round()
    expect((await rig.states()).sort()).toEqual(["assigned", "assigned", "assigned", "assigned", "final", "final"])
    expect(await sends()).toEqual(sent)
    await setOperator(next.address)
    await client.mine({ blocks: 80 })
    // The old wallet has no ether for gas.
    const gas = await client.getBalance({ address: rig.signer.address })
    await client.setBalance({ address: rig.signer.address, value: 0n })
    await life.advance(16 * 60_000)
    await round()
    expect(await alarmMessages(ctx, waitingAlarms)).toContainEqual(
      expect.stringContaining("an earlier wallet of its lane has"),
    )
    await client.setBalance({ address: rig.signer.address, value: gas })
    await ctx.db.updateTable("transaction_attempts").set({ sent_at: null }).execute()
    for (let i = 0; i < 8; i++) {
      await round()
      await life.advance(3_600_000)
    }
    await round()
    const rows = await rig.payouts()
    const by = (address: Address) => rows.filter(row => row.wallet === address).map(row => `${row.kind} ${row.state}`)
    expect(by(rig.signer.address).sort()).toEqual(
      ["return final", "return reverted", "share final", "share final", "share reverted", "share reverted"].sort(),
    )
    expect(by(next.address).sort()).toEqual(["return final", "share final", "share final"])
    const got = (await balances()).map((after, i) => after - (before[i] ?? 0n))
    expect(got).toEqual([1_500_000n, 1_500_000n, 200_000n, 300_000n])
    expect(await rig.balanceOf(shop.deposit.address)).toBe(0n)
    expect(await checkConsistency(ctx, rig.network.chainId)).toEqual([])
    expect(await alarmMessages(ctx, waitingAlarms)).toEqual([])
  } finally {
    ctx.settings.serviceWallets = []
    await setOperator(rig.signer.address)
  }
})

it("takes no payment at an address of an older version's factory: it could not be moved", async () => {
  const on = relaysOn(rig)
  await on.begin()
  const session = await on.start()
  const signed = await on.sign(await on.buyer(), session)
  expect(await on.status(session.id)).toMatchObject({ paused: false, payTo: expect.any(String) })
  await makeOlder(rig.service.ctx.db)
  const status = await on.status(session.id)
  expect([status.paused, status.payTo]).toEqual([true, undefined])
  expect((await rig.service.call("GET", `/pay/${session.id}`)).body).not.toContain(session.payTo.slice(2, 20))
  const answer = await on.submit(session, signed)
  expect([answer.status, answer.body.error]).toEqual([503, "PAYMENTS_PAUSED"])
  expect(await on.relays()).toEqual([])
})

it("finishes the relay that an earlier relay wallet had signed, after both wallets changed, and pays it once", async () => {
  const { ctx } = rig.service
  const on = relaysOn(rig)
  await on.begin()
  const { client, accounts } = rig.anvil
  const [, , , , , , next, fresh] = accounts
  const payout = signerOf(next)
  const relay = signerOf(fresh)
  const setOperator = (operator: Address) =>
    client.writeContractSync({
      address: rig.network.depositFactory,
      abi: depositFactoryAbi,
      functionName: "setOperator",
      args: [operator],
    })
  const submitted = async () => {
    const session = await on.start()
    expect((await on.submit(session, await on.sign(await on.buyer(), session))).status).toBe(200)
    return session
  }
  const older = await submitted()
  await client.setAutomine(false)
  await on.round()
  await client.dropAllTransactions()
  await client.setAutomine(true)
  expect((await on.relays()).map(({ state, wallet }) => `${state} ${wallet}`)).toEqual([
    `assigned ${rig.relayer.address}`,
  ])
  const stolen = { status: "halted", halted_reason: "its key may be stolen" } as const
  await ctx.db.updateTable("wallets").set(stolen).execute()
  ctx.settings.serviceWallets = [payout.address, relay.address]
  const { relayWallet } = ctx.settings
  ctx.settings.relayWallet = relay.address
  const round = () => payoutRound(ctx, relayLane(rig.network, relay))
  const sendAgain = () => ctx.db.updateTable("transaction_attempts").set({ sent_at: null }).execute()
  try {
    await setOperator(payout.address)
    await checkWallet(ctx, payoutLane(rig.network, payout))
    await checkWallet(ctx, relayLane(rig.network, relay))
    await client.mine({ blocks: 80 })
    const newer = await submitted()
    await sendAgain()
    for (let i = 0; i < 2; i++) await round()
    // What a halted relay wallet signed is not sent by anybody.
    expect([await on.received(older.payTo), await on.received(newer.payTo)]).toEqual([[], [5_000_000n]])
    await ctx.db
      .updateTable("wallets")
      .set({ status: "active", halted_reason: null })
      .where("address", "=", rig.relayer.address)
      .execute()
    await sendAgain()
    for (let i = 0; i < 3; i++) {
      await round()
      await client.mine({ blocks: 80 })
    }
    await round()
    await on.look()
    expect([await on.received(older.payTo), await on.received(newer.payTo)]).toEqual([[5_000_000n], [5_000_000n]])
    expect((await on.relays()).map(({ state, wallet }) => `${state} ${wallet}`)).toEqual([
      `final ${rig.relayer.address}`,
      `final ${relay.address}`,
    ])
    expect((await on.status(older.id)).status).toBe("confirmed")
    expect(await checkConsistency(ctx, rig.network.chainId)).toEqual([])
  } finally {
    ctx.settings.serviceWallets = []
    ctx.settings.relayWallet = relayWallet
    await setOperator(rig.signer.address)
  }
})
