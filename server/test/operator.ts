/** An operator in a test: the admin routes of a payout rig, and the transactions that a person would see in an explorer. */
import type { Hex } from "viem"
import { openAdmin } from "../src/operations/operator/open-admin.ts"
import type { Hash } from "../src/platform/chain/hex.ts"
import type { Row } from "../src/platform/db/schema.ts"
import type { PayoutRig } from "./payouts.ts"

export interface Operator {
  /** Calls the admin server; with a body it is a POST by "ops". */
  // biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects, and fails when it is not there.
  ask(path: string, body?: object): Promise<{ status: number; body: any }>
  wallet(): Promise<Row<"wallets">>
  /** Signed ones. */
  attempts(): Promise<(Row<"transaction_attempts"> & { raw: Hex; hash: Hash })[]>
  actions(): Promise<Row<"operator_actions">[]>
  /**
   * Signs with the wallet's key and sends without the database, like another program that has the key. Mined at once.
   */
  sendElsewhere(nonce: bigint, call?: { to: Hex; data?: Hex }): Promise<Hash>
  stop(): Promise<void>
}

/** Opens the admin server of a rig, whose wallet signs for the service. */
export function openOperator(rig: PayoutRig): Operator {
  const { ctx } = rig.service
  ctx.settings.payoutSigner = rig.signer
  ctx.settings.payoutWallet = rig.signer.address
  const admin = openAdmin(ctx)
  return {
    ask: async (path, body) => {
      const response = await admin.inject(
        body === undefined
          ? { method: "GET", url: path }
          : {
              method: "POST",
              url: path,
              payload: JSON.stringify({ by: "ops", ...body }),
              headers: { "content-type": "application/json" },
            },
      )
      return { status: response.statusCode, body: response.json() }
    },
    wallet: () => ctx.db.selectFrom("wallets").selectAll().executeTakeFirstOrThrow(),
    attempts: () =>
      ctx.db
        .selectFrom("transaction_attempts")
        .selectAll()
        .where("raw", "is not", null)
        .$narrowType<{ raw: Hex; hash: Hash }>()
        .orderBy("id")
        .execute(),
    actions: () => ctx.db.selectFrom("operator_actions").selectAll().orderBy("id").execute(),
    sendElsewhere: async (nonce, call = { to: rig.anvil.accounts[2].address }) => {
      const serializedTransaction = await rig.anvil.accounts[1].signTransaction({
        type: "eip1559",
        chainId: rig.network.chainId,
        nonce: Number(nonce),
        to: call.to,
        data: call.data ?? "0x",
        gas: 250_000n,
        maxFeePerGas: 90_000_000_000n,
        maxPriorityFeePerGas: 1n,
      })
      return (await rig.anvil.client.sendRawTransaction({ serializedTransaction })) as Hash
    },
    stop: () => admin.close(),
  }
}
