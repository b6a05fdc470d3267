/** Money through a whole service in a test: the real scan, payouts, sweeps and recoveries, until all of it is final. */
import { sweepDue } from "../src/ledger/payouts/make-payouts.ts"
import { ensureCursor } from "../src/ledger/scanner/scan-round.ts"
import { verifyRound } from "../src/ledger/settlement/verify-payments.ts"
import { depositFactoryAbi, testUsdcAbi } from "../src/platform/chain/abi.ts"
import type { Address } from "../src/platform/chain/hex.ts"
import { termsOf } from "../src/platform/chain/release-call.ts"
import type { PayoutRig } from "./payouts.ts"

export const DAY_MS = 86_400_000

type Shop = Awaited<ReturnType<PayoutRig["sell"]>>

export type Life = ReturnType<typeof lifeOf>

/** What can happen to a rig's money. */
export function lifeOf(rig: PayoutRig) {
  const { ctx } = rig.service
  const { client } = rig.anvil
  const mine = (blocks = 3) => client.mine({ blocks })

  /** An empty database whose scan has begun. */
  async function begin(): Promise<void> {
    rig.proxy.spoil = (_method, _params, result) => result
    rig.proxy.broken = rig.proxy.brokenFor = undefined
    for (const endpoint of rig.network.endpoints) endpoint.silentUntil = 0
    await mine()
    await rig.empty()
    await ensureCursor(ctx, rig.network)
  }

  /** The chain's clock goes with the service's. */
  async function advance(ms: number): Promise<void> {
    rig.service.advance(ms)
    await client.setNextBlockTimestamp({ timestamp: BigInt(Math.floor(ctx.now().getTime() / 1_000)) })
    await mine()
  }

  async function verify(): Promise<void> {
    await ctx.db.updateTable("cursors").set({ run_at: ctx.now() }).execute()
    await verifyRound(ctx, rig.network)
  }

  /** Waits until everything that was begun is final. */
  async function settle(): Promise<void> {
    for (let i = 0; i < 3; i++) {
      await rig.round()
      await mine()
      await verify()
    }
    await rig.round()
  }

  const recover = ({ deposit }: Shop, token = rig.token) =>
    client.writeContractSync({
      address: deposit.factory,
      abi: depositFactoryAbi,
      functionName: "recover",
      args: [deposit.salt, termsOf(deposit), token],
    })

  const send = (to: Address, value: bigint) =>
    client.writeContractSync({
      address: rig.token,
      abi: testUsdcAbi,
      functionName: "transfer",
      args: [to, value],
      account: rig.anvil.accounts[3],
    })

  const haltedReason = async () =>
    (await ctx.db.selectFrom("wallets").select("halted_reason").executeTakeFirstOrThrow()).halted_reason

  /** The hourly comparison of logs, now; returns why the wallet is halted. */
  async function compareLogs(): Promise<string | null> {
    await rig.round()
    await rig.compareLogs()
    return await haltedReason()
  }

  /** Shares, a sweep, money that belongs to no payment, and a recovery; all of it final and compared. */
  async function live(): Promise<{ split: Shop; swept: Shop; old: Shop }> {
    const old = await rig.sell()
    await send(old.deposit.address, 70_000n)
    await verify()
    await advance(366 * DAY_MS)
    await recover(old)
    const split = await rig.sell([50, 50])
    const swept = await rig.sell()
    await rig.paid(split, 1_000_001n)
    await rig.paid(swept, 600_000n)
    await rig.paid(swept, 700_000n)
    await send(swept.deposit.address, 10n)
    await verify()
    await advance(2 * DAY_MS)
    await sweepDue(ctx, rig.network)
    await settle()
    // It records the recovery.
    const halted = await compareLogs()
    if (halted !== null) throw new Error(halted)
    return { split, swept, old }
  }
  return { mine, begin, advance, verify, settle, recover, send, haltedReason, compareLogs, live }
}
