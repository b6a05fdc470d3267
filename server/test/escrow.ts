/** Escrows in a test: the contracts on a rig's chain, checkouts that are paid through them, and a merchant's wallet. */
import { randomUUID } from "node:crypto"
import { encodeFunctionData, type Hex } from "viem"
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts"
import { expect } from "vitest"
import {
  authCaptureEscrowAbi,
  authCaptureEscrowBytecode,
  erc3009CollectorAbi,
  erc3009CollectorBytecode,
  refundCollectorAbi,
  refundCollectorBytecode,
  testUsdcAbi,
} from "../src/chain/abi.ts"
import {
  authorizeCall,
  paymentInfoHash,
  paymentStateCall,
  readPaymentState,
  typedPayment,
} from "../src/chain/escrow.ts"
import { type Address, checksummed } from "../src/chain/hex.ts"
import type { Row } from "../src/db/schema.ts"
import { advanceEscrows } from "../src/escrow/advance-escrows.ts"
import { paymentInfoOf } from "../src/escrow/payment-info.ts"
import { deploy } from "./anvil.ts"
import type { PayoutRig } from "./payouts.ts"
import { relaysOn } from "./relays.ts"

/** What {@link escrowsOn} returns. */
export type Escrows = Awaited<ReturnType<typeof escrowsOn>>

/** Deploys an escrow that the rig's relay wallet operates, and has the rig's network sell through it. */
export async function escrowsOn(rig: PayoutRig) {
  const { service, anvil, network } = rig
  const { ctx } = service
  const { client } = anvil
  const address = await deploy(client, authCaptureEscrowAbi, authCaptureEscrowBytecode)
  const collector = await deploy(client, erc3009CollectorAbi, erc3009CollectorBytecode, [address])
  const operator = rig.relayer.address
  const refundCollector = await deploy(client, refundCollectorAbi, refundCollectorBytecode, [address, operator])
  const deployed = { address, version: "v1.1" as const, collector, refundCollector }
  network.escrow = deployed
  const relays = relaysOn(rig)
  const state = { merchant: rig.signer.address }

  /** The scan's head is the chain's, and every escrow is due. */
  async function look(): Promise<void> {
    const [{ number: block_number }, { number: finalized_number }] = [
      await client.getBlock({ blockTag: "latest" }),
      await client.getBlock({ blockTag: "finalized" }),
    ]
    await ctx.db.updateTable("cursors").set({ block_number, finalized_number }).execute()
    await ctx.db.updateTable("escrows").set({ run_at: ctx.now() }).execute()
    await advanceEscrows(ctx)
  }

  /** Carries out what is due until it is final. */
  async function settle(): Promise<void> {
    for (let i = 0; i < 3; i++) {
      await relays.round()
      await client.mine({ blocks: 2 })
      await look()
    }
    await client.mine({ blocks: 2 })
    await relays.round()
    await look()
  }

  /** Writes what takes a signature: the call that reserves, and whose it is. */
  async function reserve(escrow: Row<"escrows">, payer: Address, data: Hex): Promise<void> {
    const { session_id: id, chain_id, merchant_id, nonce } = escrow
    const now = ctx.now()
    const auth_id = paymentInfoHash(paymentInfoOf(escrow, payer), chain_id, escrow.escrow)
    await ctx.db.updateTable("escrows").set({ payer, auth_id }).where("session_id", "=", id).execute()
    await ctx.db
      .insertInto("payouts")
      .values({
        ...{ id: randomUUID(), chain_id, merchant_id, escrow_id: id, kind: "reserve" },
        ...{ source_key: `escrow:${id}:reserve:0`, token: rig.token, recipient: collector, amount: escrow.max_amount },
        ...{ to_address: address, data, gas: 400_000n, reserved: false, state: "queued", run_at: now },
        ...{ payer, auth_nonce: nonce, auth_digest: nonce, relay_by: escrow.pre_approval_expiry },
        ...{ created_at: now, updated_at: now },
      })
      .execute()
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
    look,
    settle,
    asMerchant: (call: { to: Address; data: Hex }) => sendAs(state.merchant, call),
    round: relays.round,
    begin: async () => {
      await relays.begin()
      state.merchant = privateKeyToAccount(generatePrivateKey()).address.toLowerCase() as Address
      const payoutAddress = checksummed(state.merchant)
      const { status } = await service.call("PUT", "/api/console/settings", { payoutAddress }, { as: "shop" })
      expect(status).toBe(200)
      await service.merchant("rival")
    },
    advance: async (ms: number) => {
      service.advance(ms)
      await client.setNextBlockTimestamp({ timestamp: BigInt(Math.floor(ctx.now().getTime() / 1_000)) })
      await client.mine({ blocks: 2 })
    },
    /** A checkout that its buyer has paid, and that is captured unless it is manual. */
    paid: async (
      amount: string,
      capture: "automatic" | "manual" = "automatic",
    ): Promise<{ id: string; buyer: Address }> => {
      const made = await service.call("POST", "/api/console/checkouts", { amount, capture }, { as: "shop" })
      expect(made.status, JSON.stringify(made.body)).toBe(201)
      const { id } = made.body
      const escrow = await ctx.db
        .selectFrom("escrows")
        .selectAll()
        .where("session_id", "=", id)
        .executeTakeFirstOrThrow()
      const account = await relays.buyer(escrow.max_amount)
      const payer = account.address.toLowerCase() as Address
      const info = paymentInfoOf(escrow, payer)
      const signature = await account.signTypedData(typedPayment(network, deployed, info))
      await reserve(escrow, payer, authorizeCall(info, escrow.max_amount, collector, signature))
      await settle()
      const { status } = (await service.call("GET", `/api/pay/status/${id}`)).body
      expect(status).toBe(capture === "manual" ? "authorized" : "confirmed")
      return { id, buyer: account.address.toLowerCase() as Address }
    },
    /** The merchant's wallet allows refunds of so much. */
    allow: (amount: bigint) =>
      sendAs(state.merchant, {
        to: rig.token,
        data: encodeFunctionData({ abi: testUsdcAbi, functionName: "approve", args: [refundCollector, amount] }),
      }),
    calls: (kind: "capture" | "void" | "refund") =>
      ctx.db.selectFrom("payouts").selectAll().where("kind", "=", kind).orderBy("created_at").orderBy("id").execute(),
    attempts: () => ctx.db.selectFrom("transaction_attempts").selectAll().orderBy("id", "desc").execute(),
    /** What was signed is sent again at once. */
    resend: async () => {
      await ctx.db.updateTable("transaction_attempts").set({ sent_at: null }).execute()
      await relays.round()
    },
    /** What the escrow holds of the checkouts here, by the chain. */
    held: async (): Promise<bigint> => {
      const rows = await ctx.db.selectFrom("escrows").select("auth_id").execute()
      let sum = 0n
      for (const { auth_id: id } of rows) {
        const { data } = id ? await client.call({ to: address, data: paymentStateCall(id) }) : {}
        if (data) sum += readPaymentState(data).capturableAmount
      }
      return sum
    },
  }
}
