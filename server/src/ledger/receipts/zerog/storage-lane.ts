/**
 * The storage lane has 0G keep files of receipts: a call of its `Flow` contract for each, which pays for the storage. Nobody
 * waits for one, and no money but the wallet's moves.
 */
import { sql } from "kysely"
import type { Address, Hash } from "../../../platform/chain/hex.ts"
import type { Signer } from "../../../platform/chain/signer.ts"
import type { TxContext } from "../../../platform/context.ts"
import { sqlArray } from "../../../platform/db/sql-array.ts"
import { holdFailing } from "../../txmanager/hold-payouts.ts"
import type { Lane } from "../../txmanager/lane.ts"
import { readBatch } from "../store-batches.ts"
import type { Storage } from "./storage.ts"
import { storeData } from "./store-call.ts"

/** The lane of 0G's chain, with the key of the wallet that pays there. */
export const storageLane = ({ chain, flow }: Storage, signer: Signer): Lane => {
  const served = sql<boolean>`to_address = ${flow}`
  return {
    name: "storage",
    chain,
    signer,
    token: undefined,
    keepsBooks: false,
    callsContractWallets: false,
    hasDeadlines: false,
    takesTurns: false,
    usualKind: "store",
    inFlightMs: 2_000,
    pickable: room => room,
    prepare: async () => {},
    afterChange: async () => {},
    served,
    ours: () => served,
    isElsewhere: to => to !== flow,
    // A file that is submitted twice is paid for twice, whoever does it.
    canOnlyFail: async () => false,
    // The budgets are in the money of the networks where payments are made. What this costs is bounded by its wallet.
    isStopped: async () => false,
    withinBudgets: async (_ctx, _wallet, due) => ({ due, held: 0 }),
    partiesOf: async () => new Map(),
    // Its recipient is 0G's own contract, which the operator named: there is nobody to screen.
    vet: async (_ctx, payouts) => new Map(payouts.map(({ id }) => [id, { kind: "sign" }])),
    outdated: async () => new Set(),
    arrivalReads: () => new Map(),
    unseenAt: async () => new Set(),
    calldataFaults: (ctx, ids) => storeFaults(ctx, ids),
    listed: async () => ({ kind: "skip" }),
    // The price rose since the fee was written. Another call pays the new one; this one has no nonce.
    fails: async (_ctx, _payout, error) =>
      /NotEnoughFee/.test(error) ? { kind: "cancel", reason: "0G's price rose" } : holdFailing(error),
    overTotal: () => ({ kind: "skip" }),
    overBudget: () => ({ kind: "skip" }),
    onHeld: async () => {},
    cancel: async (ctx, { id }, reason) => {
      await ctx.db
        .updateTable("payouts")
        .set({ state: "cancelled", held_reason: null, held_detail: reason, updated_at: ctx.now() })
        .where("id", "=", id)
        .where("state", "in", ["queued", "held"])
        .execute()
    },
    lockOwners: async () => [],
    onReverted: async () => {},
    alarms: async () => [],
  }
}

/** Compares calldata with the file that it is for, whose root follows from its bytes. */
async function storeFaults(ctx: TxContext, ids: readonly string[]): Promise<(id: string) => string | undefined> {
  const { rows } = await sql<{
    id: string
    data: string
    value: bigint
    amount: bigint
    submitter: Address
    root: Hash | null
  }>`
    select i.id, i.data, i.value, i.amount, i.recipient as submitter, b.root from payouts i left join receipt_batches b on b.storage_id = i.id
    where i.id = any(${sqlArray("uuid", ids)})`.execute(ctx.db)
  const faults = new Map<string, string>()
  for (const { id, data, value, amount, submitter, root } of rows) {
    const file = root === null ? undefined : await readBatch(ctx, root)
    const isSo = file && value === amount && data === storeData(id, file, { submitter, root: root as Hash })
    if (!isSo) faults.set(id, `the row ${id} of payouts does not store the receipts that it is for`)
  }
  return id => faults.get(id)
}
