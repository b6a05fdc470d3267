/** Escrows in a test: the contracts on a rig's chain, checkouts that are paid through them, and a merchant's wallet. */
import { encodeFunctionData, type Hex } from "viem"
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts"
import { expect } from "vitest"
import { testUsdcAbi } from "../src/platform/chain/abi.ts"
import { type Address, checksummed } from "../src/platform/chain/hex.ts"
import type { PayoutRig } from "./payouts.ts"
import { placeEscrow, reservesOn } from "./reserve.ts"

/** What {@link escrowsOn} returns. */
export type Escrows = Awaited<ReturnType<typeof escrowsOn>>

/** Deploys an escrow that the rig's relay wallet operates, and has the rig's network sell through it. */
export async function escrowsOn(rig: PayoutRig) {
  const { service, anvil } = rig
  const { ctx } = service
  const { client } = anvil
  const deployed = await placeEscrow(rig)
  const { address } = deployed
  const reserves = reservesOn(rig, deployed)
  const state = { merchant: rig.signer.address, key: privateKeyToAccount(generatePrivateKey()) }

  /** Carries out what is due until it is final. */
  async function settle(): Promise<void> {
    for (let i = 0; i < 3; i++) {
      await reserves.round()
      await client.mine({ blocks: 2 })
      await reserves.look()
    }
    await client.mine({ blocks: 2 })
    await reserves.round()
    await reserves.look()
  }

  /** What an account that has no key here sends. */
  async function sendAs(account: Address, { to, data }: { to: Address; data: Hex }): Promise<void> {
    await client.setBalance({ address: account, value: 10n ** 18n })
    await client.impersonateAccount({ address: account })
    await client.sendTransaction({ account, to, data })
  }

  return {
    escrow: deployed,
    sendAs,
    /** The payout wallet of the shop; a new one in each test. */
    get merchant(): Address {
      return state.merchant
    },
    get merchantShown(): string {
      return checksummed(state.merchant)
    },
    shown: checksummed,
    look: reserves.look,
    settle,
    asMerchant: (call: { to: Address; data: Hex }) => sendAs(state.merchant, call),
    round: reserves.round,
    begin: async () => {
      await reserves.begin()
      state.key = privateKeyToAccount(generatePrivateKey())
      state.merchant = state.key.address.toLowerCase() as Address
      const payoutAddress = checksummed(state.merchant)
      const { status } = await service.call("PUT", "/api/console/settings", { payoutAddress }, { as: "shop" })
      expect(status).toBe(200)
      await service.merchant("rival")
    },
    /** The shop switches its wallet lock on, or off, which its payout wallet signs. */
    lock: async (walletLock: boolean) => {
      const send = (headers = {}) =>
        service.call("PUT", "/api/console/settings", { walletLock }, { as: "shop", headers })
      const { details } = (await send()).body
      const signatures = details.map((each: { typedData: never }) => state.key.signTypedData(each.typedData))
      const header = [details[0].typedData.message.nonce, ...(await Promise.all(signatures))].join(" ")
      const answer = await send({ "wallet-signature": header })
      expect(answer.status, JSON.stringify(answer.body)).toBe(200)
    },
    advance: async (ms: number) => {
      service.advance(ms)
      await client.setNextBlockTimestamp({ timestamp: BigInt(Math.floor(ctx.now().getTime() / 1_000)) })
      await client.mine({ blocks: 2 })
    },
    /** A checkout of a merchant that its buyer has paid, and that is captured unless it is manual. */
    paid: async (
      amount: string,
      capture: "automatic" | "manual" = "automatic",
      as = "shop",
    ): Promise<{ id: string; buyer: Address }> => {
      const id = await reserves.start({ amount, capture }, as)
      const account = await reserves.buyer((await reserves.rowOf(id)).max_amount)
      const taken = await reserves.submit(id, await reserves.sign(account, id))
      expect(taken.status, JSON.stringify(taken.body)).toBe(200)
      await settle()
      const { status } = (await service.call("GET", `/api/pay/status/${id}`)).body
      expect(status).toBe(capture === "manual" ? "authorized" : "confirmed")
      return { id, buyer: account.address.toLowerCase() as Address }
    },
    /** The merchant's wallet allows refunds of so much. */
    allow: (amount: bigint) =>
      sendAs(state.merchant, {
        to: rig.token,
        data: encodeFunctionData({
          abi: testUsdcAbi,
          functionName: "approve",
          args: [deployed.refundCollector ?? address, amount],
        }),
      }),
    calls: (kind: "capture" | "void" | "refund") =>
      ctx.db.selectFrom("payouts").selectAll().where("kind", "=", kind).orderBy("created_at").orderBy("id").execute(),
    attempts: () => ctx.db.selectFrom("transaction_attempts").selectAll().orderBy("id", "desc").execute(),
    /** What was signed is sent again at once. */
    resend: async () => {
      await ctx.db.updateTable("transaction_attempts").set({ sent_at: null }).execute()
      await reserves.round()
    },
    /** What the escrow holds of the checkouts here, by the chain. */
    held: async (): Promise<bigint> => {
      const rows = await ctx.db.selectFrom("escrows").select("session_id").where("auth_id", "is not", null).execute()
      let sum = 0n
      for (const { session_id: id } of rows) sum += (await reserves.onChain(id)).capturableAmount
      return sum
    },
  }
}
