/**
 * The storage lane pays 0G to keep files of receipts, with one call of its `Flow` contract for each file. Nobody waits
 * for such a call, and it moves only the wallet's own money.
 */
import { sql } from "kysely"
import type { Address, Hash } from "../../../platform/chain/hex.ts"
import type { Signer } from "../../../platform/chain/signer.ts"
import type { Context, TxContext } from "../../../platform/context.ts"
import { sqlArray } from "../../../platform/db/sql-array.ts"
import { holdFailing } from "../../txmanager/hold-payouts.ts"
import type { Lane, Payout, Verdict } from "../../txmanager/lane.ts"
import { readFile } from "./read-file.ts"
import { readPrice } from "./read-price.ts"
import type { Storage } from "./storage.ts"
import { storeData, storeFee } from "./store-call.ts"

/** How long a call waits while too few endpoints agree on the price. */
const UNPRICED_WAIT_MS = 5_000

/** Returns the lane of 0G's chain, with the key of the wallet that pays there. */
export const storageLane = (storage: Storage, signer: Signer): Lane => {
  const { chain, flow } = storage
  const served = sql<boolean>`to_address = ${flow}`
  return {
    name: "storage",
    chain,
    signer,
    token: undefined,
    keepsBooks: false,
    waitsWhileAhead: true,
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
    // If a file is submitted twice, it is paid for twice, no matter who submits it.
    canOnlyFail: async () => false,
    // The budgets are in the currencies of the networks where payments are made. The cost of this lane is bounded by
    // what its wallet holds.
    isStopped: async () => false,
    withinBudgets: async (_ctx, _wallet, due) => ({ due, held: 0 }),
    partiesOf: async () => new Map(),
    // The recipient is 0G's own contract, which the operator named, so there is nobody to screen.
    vet: (ctx, payouts) => vetFees(ctx, storage, payouts),
    outdated: async () => new Set(),
    arrivalReads: () => new Map(),
    unseenAt: async () => new Set(),
    calldataFaults: (ctx, ids) => storeFaults(ctx, ids),
    listed: async () => ({ kind: "skip" }),
    // The price rose after the fee was written. Another call pays the new fee, and the old call has no nonce.
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

/**
 * Reads the price again before anything is signed. A call whose fee does not match the current price is cancelled: the
 * call may have waited for as long as the wallet was empty. Another call is then written for its file.
 */
async function vetFees(ctx: Context, storage: Storage, payouts: readonly Payout[]): Promise<Map<string, Verdict>> {
  const price = await readPrice(ctx, storage)
  if (price === undefined) return new Map(payouts.map(({ id }) => [id, { kind: "wait", ms: UNPRICED_WAIT_MS }]))
  const ids = payouts.map(({ id }) => id)
  const { rows } = await sql<{ id: string; size: number }>`
    select i.id, b.size from payouts i join receipt_batches b on b.root = ${rootOfKey}
    where i.id = any(${sqlArray("uuid", ids)})`.execute(ctx.db)
  const sizes = new Map(rows.map(({ id, size }) => [id, size]))
  const verdictOn = ({ id, value }: Payout): Verdict => {
    const size = sizes.get(id)
    // The call's file is unknown, so the comparison with the file holds the call.
    if (size === undefined) return { kind: "sign" }
    if (value !== storeFee(size, price)) return { kind: "cancel", reason: "0G's price is another one now" }
    if (value > storage.maxFee) return { kind: "cancel", reason: "its fee exceeds ZEROG_MAX_FEE" }
    return { kind: "sign" }
  }
  return new Map(payouts.map(payout => [payout.id, verdictOn(payout)]))
}

/** SQL: the root of the file that a call `i` pays for. */
const rootOfKey = sql<Hash>`split_part(i.source_key, ':', 2)`

/** Compares calldata with the file that the call pays for. The bytes of the file must match the root. */
async function storeFaults(ctx: TxContext, ids: readonly string[]): Promise<(id: string) => string | undefined> {
  const { rows } = await sql<{
    id: string
    data: string
    value: bigint
    amount: bigint
    submitter: Address
    root: Hash
    size: number | null
  }>`
    select i.id, i.data, i.value, i.amount, i.recipient as submitter, ${rootOfKey} as root, b.size
    from payouts i left join receipt_batches b on b.root = ${rootOfKey}
    where i.id = any(${sqlArray("uuid", ids)})`.execute(ctx.db)
  const faults = new Map<string, string>()
  for (const { id, data, value, amount, submitter, root, size } of rows) {
    const file = await readFile(ctx, root)
    if (typeof file === "string") faults.set(id, file)
    else if (file.bytes.length !== size)
      faults.set(id, `the row of its file says ${size} bytes, not ${file.bytes.length}`)
    else if (value !== amount || data !== storeData(id, file, submitter))
      faults.set(id, `the row ${id} of payouts does not store the receipts that it is for`)
  }
  return id => faults.get(id)
}
