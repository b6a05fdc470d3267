/** Storage of receipts in a test: a payout rig whose receipts a local 0G on a chain of its own keeps. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { type Storage, storageOf } from "../src/ledger/receipts/zerog/storage.ts"
import { storageLane } from "../src/ledger/receipts/zerog/storage-lane.ts"
import { storeFilesRound } from "../src/ledger/receipts/zerog/store-files.ts"
import { storeCallsRound } from "../src/ledger/receipts/zerog/write-store-calls.ts"
import type { Lane } from "../src/ledger/txmanager/lane.ts"
import { payoutRound } from "../src/ledger/txmanager/run-round.ts"
import type { Pace } from "../src/ledger/txmanager/send-attempts.ts"
import type { Row } from "../src/platform/db/schema.ts"
import { type Anvil, startAnvil } from "./anvil.ts"
import { type PayoutRig, startPayoutRig } from "./payouts.ts"
import { receiptsOn } from "./receipts.ts"
import { signerOf } from "./signer.ts"
import { PRICE, startZerog } from "./zerog.ts"

export const CHAIN_ID = 16_661
/** In wei. */
export const MAX_FEE = 10n ** 16n

export interface StorageRig {
  rig: PayoutRig
  /** 0G's chain. */
  anvil: Anvil
  zerog: Awaited<ReturnType<typeof startZerog>>
  storage: Storage
  receipts: ReturnType<typeof receiptsOn>
  dataDir: string
  lane(at?: Storage): Lane
  batches(): Promise<Row<"receipt_batches">[]>
  /** The calls that have 0G keep files, in the order in which they were written. */
  calls(): Promise<Row<"payouts">[]>
  /** The roots of the files that were paid for on the chain, in order. */
  submitted(): Promise<string[]>
  /** One file of one receipt, in our own store. */
  batched(): Promise<void>
  /** A round of the storage: calls, then uploads. */
  round(at?: Storage): Promise<void>
  /** A round of its wallet. */
  pay(pace?: Pace, at?: Storage): Promise<number>
  /** Carries out the calls that wait, and makes their blocks final. */
  carryOut(at?: Storage): Promise<void>
  /** Carries out the call that waits, which reverts: the price doubles after it was signed. */
  revertCall(): Promise<void>
  /** Empties the database; the wallet is known at the nonce that its chain has, and 0G's price is the usual one. */
  empty(): Promise<void>
  stop(): Promise<void>
}

export async function startStorageRig(): Promise<StorageRig> {
  const dataDir = mkdtempSync(join(tmpdir(), "receipts-"))
  const anvil = await startAnvil({ chainId: CHAIN_ID })
  const zerog = await startZerog(anvil)
  const settings = {
    chainId: CHAIN_ID,
    rpcUrls: [anvil.rpcUrl],
    flow: zerog.flow,
    indexer: zerog.indexer,
    maxFee: MAX_FEE,
  }
  const signer = signerOf(anvil.accounts[1])
  const receiptSettings = { batchMs: 1_000, anchorMs: undefined, waitMs: 10_000, zerog: settings }
  const rig = await startPayoutRig({ dataDir, receipts: receiptSettings, storageSigner: signer })
  const { ctx } = rig.service
  const storage = storageOf(settings)
  const receipts = receiptsOn(rig)
  const lane = (at = storage) => storageLane(at, signer)
  const pay = (pace?: Pace, at?: Storage) => payoutRound(ctx, lane(at), pace)
  const carryOut = async (at?: Storage) => {
    await pay(undefined, at)
    await anvil.client.mine({ blocks: 5 })
    await pay(undefined, at)
  }
  return {
    rig,
    anvil,
    zerog,
    storage,
    receipts,
    dataDir,
    lane,
    pay,
    batches: () => ctx.db.selectFrom("receipt_batches").selectAll().orderBy("n").execute(),
    calls: () =>
      ctx.db
        .selectFrom("payouts")
        .selectAll()
        .where("kind", "=", "store")
        .orderBy("created_at")
        .orderBy("id")
        .execute(),
    submitted: async () => (await zerog.files()).map(({ root }) => root),
    batched: async () => {
      await rig.paid(await rig.sell(), 1_000_000n)
      await receipts.round()
    },
    round: async (at = storage) => {
      await storeCallsRound(ctx, at, signer.address)
      await storeFilesRound(ctx, at)
    },
    carryOut,
    revertCall: async () => {
      await anvil.client.setAutomine(false)
      await pay()
      // What was signed waits nowhere when the price rises, and is sent again by the same bytes.
      await anvil.client.dropAllTransactions()
      await anvil.client.setAutomine(true)
      await zerog.setPrice(2n * PRICE)
      await pay({ resendMs: 0, replaceMs: 60_000 })
      await carryOut()
    },
    empty: async () => {
      await rig.empty()
      await zerog.setPrice(PRICE)
      await anvil.client.mine({ blocks: 5 })
      // The wallet was used in the test before: it is known before anything waits for it.
      await pay()
    },
    stop: async () => {
      zerog.stop()
      await Promise.all([rig.stop(), anvil.stop()])
      rmSync(dataDir, { recursive: true, force: true })
    },
  }
}
