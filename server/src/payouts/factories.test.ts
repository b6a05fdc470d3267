// When the payout wallet is changed, deposits of the old factory are released by the old wallet, beside the new one.
import { afterAll, beforeAll, expect, it } from "vitest"
import { deployDepositFactory } from "../../test/anvil.ts"
import { type PayoutRig, recipient, startPayoutRig } from "../../test/payouts.ts"
import { relaysOn } from "../../test/relays.ts"
import { testUsdcAbi } from "../chain/abi.ts"
import type { Address } from "../chain/hex.ts"
import type { Signer } from "../chain/signer.ts"
import { checkBooks } from "../reconciliation/check-books.ts"
import { payoutRound } from "./pay-out.ts"
import { checkWallet } from "./wallet-row.ts"

let rig: PayoutRig
beforeAll(async () => {
  rig = await startPayoutRig()
})
afterAll(() => rig.stop())

it("signs for its own factory's deposits alone, and leaves the others to the process that has their key", async () => {
  const { ctx } = rig.service
  const { client, accounts } = rig.anvil
  const [, , , , account] = accounts
  const fresh: Signer = {
    address: account.address.toLowerCase() as Address,
    sign: transaction => account.signTransaction({ type: "eip1559", ...transaction }),
  }
  await client.mine({ blocks: 3 })
  await rig.empty()
  const network = { ...rig.network, depositFactory: await deployDepositFactory(client, fresh.address) }
  await checkWallet(ctx, network, { lane: "payout", signer: fresh })
  const before = await rig.sell([50, 50])
  ctx.chain.networks[0] = network
  const after = await rig.sell([20, 80])
  ctx.chain.networks[0] = rig.network
  expect([before.deposit.factory, after.deposit.factory]).toEqual([rig.network.depositFactory, network.depositFactory])
  await rig.paid(before, 1_000_000n)
  await rig.paid(after, 1_000_000n)
  const states = async () => (await rig.states()).sort()
  await payoutRound(ctx, network, { lane: "payout", signer: fresh })
  expect(await states()).toEqual(["mined", "mined", "queued", "queued"])
  expect(await rig.balanceOf(recipient(0))).toBe(200_000n)
  await rig.round()
  expect(await rig.balanceOf(recipient(0))).toBe(700_000n)
  await client.mine({ blocks: 3 })
  await payoutRound(ctx, network, { lane: "payout", signer: fresh })
  await rig.round()
  expect(await states()).toEqual(["final", "final", "final", "final"])
  expect((await rig.payouts()).map(row => row.wallet).sort()).toEqual(
    [fresh.address, fresh.address, rig.signer.address, rig.signer.address].sort(),
  )
  // What left without a payout halts both, whichever process sees it first.
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
    .where("halted_reason", "like", "%meant it")
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
    await payoutRound(ctx, network, { lane: "relay", signer: rig.relayer })
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
