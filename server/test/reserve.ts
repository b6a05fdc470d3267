/** Escrows in a test: the contracts on a rig's chain, and buyers who sign what a checkout's status asks them to. */
import type { PrivateKeyAccount } from "viem/accounts"
import { expect } from "vitest"
import {
  authCaptureEscrowAbi,
  authCaptureEscrowBytecode,
  authCaptureEscrowV10Abi,
  authCaptureEscrowV10Bytecode,
  erc3009CollectorAbi,
  erc3009CollectorBytecode,
  refundCollectorAbi,
  refundCollectorBytecode,
} from "../src/platform/chain/abi.ts"
import type { Authorization } from "../src/platform/chain/authorizations.ts"
import { type PaymentState, paymentStateCall, readPaymentState, typedPayment } from "../src/platform/chain/escrow.ts"
import type { EscrowDeployment, EscrowVersion } from "../src/platform/chain/escrow-deployments.ts"
import type { Address, Hash } from "../src/platform/chain/hex.ts"
import type { Row } from "../src/platform/db/schema.ts"
import { advanceEscrows } from "../src/products/escrow/advance-escrows.ts"
import { paymentInfoOf } from "../src/products/escrow/payment-info.ts"
import { deploy } from "./anvil.ts"
import type { PayoutRig } from "./payouts.ts"
import { bodyOf, keepUp, relaysOn, type Signed } from "./relays.ts"

/** Deploys an escrow that the rig's relay wallet operates, and has the rig's network sell through it. */
export async function placeEscrow(
  { anvil: { client }, network, relayer }: PayoutRig,
  version: EscrowVersion = "v1.1",
): Promise<EscrowDeployment> {
  const address =
    version === "v1.0"
      ? await deploy(client, authCaptureEscrowV10Abi, authCaptureEscrowV10Bytecode)
      : await deploy(client, authCaptureEscrowAbi, authCaptureEscrowBytecode)
  const collector = await deploy(client, erc3009CollectorAbi, erc3009CollectorBytecode, [address])
  const args = [address, relayer.address]
  const refundCollector = await deploy(client, refundCollectorAbi, refundCollectorBytecode, args)
  network.escrow = { address, version, collector, refundCollector }
  return network.escrow
}

/** What a test of escrows does with a rig whose network has one. */
export function reservesOn(rig: PayoutRig, escrow: EscrowDeployment) {
  const { service, anvil, network } = rig
  const { ctx } = service
  const relays = relaysOn(rig)
  const rowOf = (id: string): Promise<Row<"escrows">> =>
    ctx.db.selectFrom("escrows").selectAll().where("session_id", "=", id).executeTakeFirstOrThrow()
  /** What the payer's wallet signs; `given` changes the message alone. */
  const sign = async (account: PrivateKeyAccount, id: string, given: Partial<Authorization> = {}): Promise<Signed> => {
    const typed = typedPayment(
      network,
      escrow,
      paymentInfoOf(await rowOf(id), account.address.toLowerCase() as Address),
    )
    const message = { ...(typed.message as unknown as Authorization), ...given }
    return { authorization: message, signature: await account.signTypedData({ ...typed, message } as never) }
  }
  /** Reads the chain and folds what changed. */
  const look = async () => {
    await relays.look()
    await relook()
  }
  /** Folds what is known, also where another process has the key of the relay wallet. */
  const relook = async () => {
    const at = new Date(Math.min(Date.now(), ctx.now().getTime()) - 10_000)
    await ctx.db.updateTable("escrows").set({ run_at: at }).where("run_at", "is not", null).execute()
    await keepUp(ctx)
    await advanceEscrows(ctx)
  }
  return {
    ...relays,
    start: async (body: object = {}, as = "shop"): Promise<string> => {
      const asked = { amount: 5, capture: "manual", ...body }
      const answer = await service.call("POST", "/api/console/checkouts", asked, { as })
      expect(answer.status, JSON.stringify(answer.body)).toBe(201)
      return answer.body.id
    },
    rowOf,
    sign,
    look,
    relook,
    /** Signs, sends, mines and folds whatever is due. */
    work: async () => {
      for (let i = 0; i < 3; i++) {
        await relays.round()
        await anvil.client.mine({ blocks: 1 })
        await look()
      }
    },
    submit: (id: string, signed: Signed) => service.call("POST", "/api/pay/authorize", bodyOf(id, signed)),
    capture: (id: string, amount?: string) =>
      service.call(
        "POST",
        "/api/console/payments/capture",
        { sessionId: id, ...(amount ? { amount } : {}) },
        { as: "shop" },
      ),
    void: (id: string) => service.call("POST", "/api/console/payments/void", { sessionId: id }, { as: "shop" }),
    session: async (id: string) =>
      (await service.call("GET", `/api/console/checkouts/${id}`, undefined, { as: "shop" })).body,
    calls: (kind: "reserve" | "capture" | "void"): Promise<Row<"payouts">[]> =>
      ctx.db.selectFrom("payouts").selectAll().where("kind", "=", kind).orderBy("created_at").orderBy("id").execute(),
    /** What the contract knows of a session's payment. */
    onChain: async (id: string): Promise<PaymentState> => {
      const { auth_id } = await rowOf(id)
      const { data } = await anvil.client.call({ to: escrow.address, data: paymentStateCall(auth_id as Hash) })
      return readPaymentState(data ?? "0x")
    },
    /** The types of the events that were emitted, in their order. */
    events: async (): Promise<string[]> => {
      const rows = await ctx.db
        .selectFrom("events")
        .select(["type", "body"])
        .where("type", "like", "checkout.%")
        .execute()
      const sequenceOf = (body: string) => (JSON.parse(body) as { data: { sequence: number } }).data.sequence
      return rows
        .sort((a, b) => sequenceOf(a.body) - sequenceOf(b.body) || a.type.localeCompare(b.type))
        .map(({ type }) => type)
    },
    /** Moves the service's clock and the chain's. */
    pass: async (ms: number) => {
      service.advance(ms)
      await anvil.client.setNextBlockTimestamp({ timestamp: BigInt(Math.ceil(ctx.now().getTime() / 1_000)) })
      await anvil.client.mine({ blocks: 1 })
    },
  }
}
