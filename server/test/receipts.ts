/** Receipts in a test: rounds that are due at once, blocks that become final, and what holders keep. */

import { type Holding, readHolding, verifyHolding } from "../../verify/src/file.ts"
import type { SavedReceipt } from "../../verify/src/format.ts"
import { openNode } from "../../verify/src/rpc.ts"
import { receiptRound } from "../src/ledger/receipts/make-batches.ts"
import { receiptLines, savedAbout } from "../src/ledger/receipts/read-receipts.ts"
import { payoutIdOf } from "../src/platform/ids.ts"
import type { PayoutRig } from "./payouts.ts"

/** The rounds and files of a rig. */
export function receiptsOn(rig: PayoutRig) {
  const { service, anvil, network } = rig
  const { ctx } = service
  const round = async () => {
    await ctx.db.updateTable("receipt_rounds").set({ run_at: ctx.now(), anchored_at: null }).execute()
    await receiptRound(ctx, network)
  }
  /** Carries out the calls that wait, and makes their blocks final. */
  const carryOut = async () => {
    await rig.round()
    await anvil.client.mine({ blocks: 3 })
    await rig.round()
  }
  const nodes = () => new Map([[network.chainId, openNode(anvil.rpcUrl)]])
  return {
    round,
    carryOut,
    nodes,
    /** From what is settled to what is written to the chain. */
    finish: async () => {
      await round()
      await carryOut()
      await round()
      await carryOut()
    },
    /** What of the console shows the merchant "shop" one of the service's own calls: nothing ever should. */
    ownCallsShown: async (): Promise<string[]> => {
      const calls = ctx.db.selectFrom("payouts").select(["id", "tx_hash", "recipient"])
      const own = await calls.where("kind", "in", ["anchor", "store"]).execute()
      if (own.length === 0) throw new Error("the service has made no call of its own")
      const lists =
        "transactions transactions.csv payouts payouts.csv reports/books.csv reports/payouts.csv overview health"
      const paths = own.flatMap(({ id, tx_hash, recipient }) => [
        `timeline/${payoutIdOf(id)}`,
        `payouts/${payoutIdOf(id)}`,
        `transactions?q=${payoutIdOf(id)}`,
        ...[payoutIdOf(id), tx_hash, recipient].flatMap(q => (q ? [`search?q=${q}`] : [])),
      ])
      const shown: string[] = []
      for (const path of [...lists.split(" "), ...paths]) {
        const { status, body } = await service.call("GET", `/api/console/${path}`, undefined, { as: "shop" })
        const text = JSON.stringify(body)
        const isFound = own.some(
          ({ id, tx_hash }) => text.includes(payoutIdOf(id)) || (tx_hash && text.includes(tx_hash)),
        )
        if (status === 200 && (isFound || /"(anchor|store)"|,(anchor|store),/.test(text))) shown.push(path)
        if (![200, 404].includes(status)) throw new Error(`${path} answers ${status}: ${text}`)
      }
      return shown
    },
    /** The newest file of a payment. */
    saved: async (about: string): Promise<SavedReceipt> => {
      const file = (await savedAbout(ctx, [about])).at(-1)?.file
      if (!file || "erased" in file) throw new Error("there is no file")
      return file
    },
    /** A merchant's file as text. */
    exported: async (merchantId: string, filter = {}): Promise<string> => {
      let text = ""
      for await (const part of receiptLines(ctx, merchantId, filter)) text += part
      return text
    },
    /** The answers to the seven questions: yes, no, or `-` for not checked. */
    answers: async (holding: Holding | SavedReceipt | string, asked = nodes(), factory?: string): Promise<string> => {
      const held =
        typeof holding === "string"
          ? readHolding(holding)
          : "receipts" in holding
            ? holding
            : readHolding(JSON.stringify(holding))
      const { lines } = await verifyHolding(held, { nodes: asked, factory })
      return lines.map(({ isSo }) => (isSo === undefined ? "-" : isSo ? "y" : "n")).join("")
    },
  }
}
