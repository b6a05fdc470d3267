/**
 * Makes batches: numbers, signs and seals the receipts that wait, and puts them into one file whose Merkle root proves
 * each receipt. Settlement only writes rows and waits for nothing. A receipt gets its place in its merchant's chain
 * here, in the order of commits. So two settlements of a merchant never wait for each other. A receipt that is
 * committed without a place gets the next one, so no place is left out.
 */
import { hash } from "node:crypto"
import { setImmediate as nextTurn } from "node:timers/promises"
import { padded } from "../../../../verify/src/format.ts"
import { pathOf, rootOf, type Tree, treeOf } from "../../../../verify/src/merkle.ts"
import { didOf } from "../../account/identity/use-signing-keys.ts"
import type { Hash } from "../../platform/chain/hex.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { withLease } from "../../platform/jobs/claim.ts"
import { seal } from "../../platform/secrets.ts"
import { headsOf, type Placed, placeReceipts, standingHashes, termsOfDeposits, waitingReceipts } from "./queries.ts"
import { bodyOf, factHash, type Made, makeSealed, type SigningKey, saltedFacts, type Waiting } from "./receipt.ts"
import { storeBatches } from "./store-batches.ts"
import { openKey, receiptKeys } from "./use-receipt-keys.ts"
import { anchorAgain, anchorBatches, isRegistered, mayKeySign, revokeReplaced } from "./write-anchors.ts"

/** The most receipts in a batch, and the most bytes. */
const RECEIPTS = 1_000
const BYTES = 4 * 1_048_576
/** No receipt is longer, because its transfers, metadata and answers are bounded. */
const RECEIPT_BYTES = 65_536
const LEASE_MS = 60_000

/** Makes the batches of a network that are due. Returns how many milliseconds the next round may wait. */
export async function receiptRound(ctx: Context, network: Network): Promise<number> {
  const { batchMs } = ctx.settings.receipts
  const now = ctx.now()
  await ctx.db
    .insertInto("receipt_rounds")
    .values({ chain_id: network.chainId, run_at: now })
    .onConflict(conflict => conflict.doNothing())
    .execute()
  const nextRunAt = new Date(now.getTime() + batchMs)
  const job = { table: "receipt_rounds", only: network.chainId, leaseMs: LEASE_MS, now, nextRunAt } as const
  await withLease(ctx.db, job, async () => {
    await storeBatches(ctx, network.chainId)
    await anchorAgain(ctx, network)
    const unmade: Unmade = { after: 0n, about: new Set() }
    for (let isMore = true; isMore && !ctx.signal.aborted; ) {
      isMore = await makeBatch(ctx, network, unmade)
      await storeBatches(ctx, network.chainId)
    }
    await anchorBatches(ctx, network)
    await revokeReplaced(ctx, network)
  })
  return batchMs
}

/**
 * The receipts that this round could not make. The round continues after the last one that it looked at, so that these
 * receipts never fill a batch. The round also leaves out later receipts about the same payments, because a reversal
 * must not precede what it reverses.
 */
interface Unmade {
  after: bigint
  about: Set<string>
}

/**
 * Makes one batch of the receipts that are not signed yet, and writes it. Returns whether there may be more receipts.
 */
async function makeBatch(ctx: Context, network: Network, unmade: Unmade): Promise<boolean> {
  const waiting = await waitingReceipts(ctx, network, unmade.after, RECEIPTS)
  if (waiting.length === 0) return false
  const stored = await signingKey(ctx, network)
  if (!stored) return false
  const { made, passed } = await sealAll(ctx, waiting, openKey(ctx, stored), unmade.about)
  unmade.after = passed
  const isMore = waiting.length === RECEIPTS || passed < (waiting.at(-1)?.n ?? passed)
  if (made.length === 0) return isMore
  const file = new Uint8Array(made.reduce((sum, { bytes }) => sum + bytes.length, 0))
  for (const { bytes, offset } of made) file.set(bytes, offset)
  const tree = treeOf(file, keccak)
  const root = rootOf(tree) as Hash
  const placed: Placed[] = []
  for (const each of made) {
    placed.push(placedOf(ctx, root, tree, each))
    await yieldAt(placed.length)
  }
  // Nothing was locked until here. If another process also took one of these receipts, or a merchant's next place, this
  // transaction fails, and the next round makes another batch.
  await inTransaction(ctx, ctx => write(ctx, { network, keyId: stored.id, root, file, placed }))
  return isMore
}

/**
 * Returns the newest key that may sign, or undefined if none may. Registers the newest key if it is not registered yet.
 */
async function signingKey(ctx: Context, network: Network): Promise<Row<"receipt_keys"> | undefined> {
  const [newest, ...older] = await receiptKeys(ctx, network)
  if (newest && (await mayKeySign(ctx, network, newest))) return newest
  for (const key of older) if (await isRegistered(ctx, key)) return key
  return undefined
}

/**
 * Lets the process do other work after every 32 receipts. Each receipt takes a third of a millisecond, and other work
 * waits meanwhile.
 */
const yieldAt = (n: number): Promise<void> | undefined => (n % 32 === 0 ? nextTurn() : undefined)

/** Uses OpenSSL, which takes an eighth of the time that the verifier's own implementation takes. */
const keccak = (bytes: Uint8Array): Uint8Array => hash("keccak-256", bytes, "buffer")

interface InBatch extends Made {
  row: Waiting
  seq: number
  offset: number
  bytes: Uint8Array
}

/**
 * Signs and seals receipts in their order, as many as fit into a batch. `passed` is the last receipt that was looked
 * at. A receipt that can't be made stays and is logged, and an alarm says that it is waiting. Such a receipt stops no
 * other.
 */
async function sealAll(
  ctx: TxContext,
  waiting: readonly Waiting[],
  key: SigningKey,
  unmade: Set<string>,
): Promise<{ made: InBatch[]; passed: bigint }> {
  const heads = await headsOf(ctx, [...new Set(waiting.map(row => row.merchant_id))])
  const reversed = waiting.flatMap(({ type, about }) => (type === "reversed" ? [about] : []))
  const standing = await standingHashes(ctx, reversed)
  const deposits = waiting.flatMap(({ body }) => (body.transfers ?? []).flatMap(({ deposit }) => deposit ?? []))
  const terms = await termsOfDeposits(ctx, [...new Set(deposits)])
  const signed = { issuer: didOf(ctx), at: ctx.now() }
  const made: InBatch[] = []
  let offset = 0
  let passed = 0n
  for (const row of waiting) {
    passed = row.n
    if (unmade.has(row.about)) continue
    const head = heads.get(row.merchant_id)
    const place = {
      seq: (head?.seq ?? 0) + 1,
      prev: head?.hash ?? null,
      reverses: row.type === "reversed" ? standing.get(row.about) : undefined,
    }
    const one = trySeal(ctx, row, () => {
      const facts = saltedFacts(row)
      return makeSealed(bodyOf(row, place, terms, { ...signed, facts: facts.map(factHash) }), facts, key)
    })
    if (!one) {
      unmade.add(row.about)
      continue
    }
    if (offset + one.bytes.length > BYTES) {
      passed = made.at(-1)?.row.n ?? 0n
      break
    }
    made.push({ ...one, row, seq: place.seq, offset })
    offset += one.bytes.length
    heads.set(row.merchant_id, { seq: place.seq, hash: one.hash })
    if (row.type !== "reversed") standing.set(row.about, one.hash)
    await yieldAt(made.length)
  }
  return { made, passed }
}

/** The receipts that this process has logged. Each receipt is logged once, because a round runs every few seconds. */
const logged = new Set<string>()

/**
 * Returns a sealed receipt with its padded bytes. If the row can't be made into a receipt, logs this and returns
 * undefined.
 */
function trySeal(ctx: TxContext, { n, about }: Waiting, make: () => Made): (Made & { bytes: Uint8Array }) | undefined {
  try {
    const made = make()
    const bytes = padded(made.jwe)
    if (bytes.length > RECEIPT_BYTES) throw new Error(`it has ${bytes.length} bytes`)
    return { ...made, bytes }
  } catch (error) {
    const todo =
      "The payment is settled. Report the error as a bug in the service: the receipt is made once the cause is fixed."
    if (!logged.has(`${n} ${about}`)) ctx.log.error({ err: error, about, todo }, "a receipt can't be made; others are")
    logged.add(`${n} ${about}`)
    return undefined
  }
}

function placedOf(
  ctx: TxContext,
  root: Hash,
  tree: Tree,
  { row, seq, hash, kept, jwe, offset, bytes }: InBatch,
): Placed {
  const path = pathOf(tree, offset, bytes.length).map(text => Buffer.from(text.slice(2), "hex"))
  const { merchant_id, n, had_what } = row
  const sealed = seal(ctx.settings.secretKeys, "receipt", ownerOf(root, offset), JSON.stringify(kept))
  const place = { seq, hash, byte_offset: offset, byte_length: jwe.length, path: Buffer.concat(path) }
  return { merchant_id, n, ...place, sealed, had_what }
}

/** The owner under whose name a receipt's key is sealed. */
export const ownerOf = (root: Hash, offset: number): string => `${root} ${offset}`

async function write(
  ctx: TxContext,
  {
    network,
    keyId,
    root,
    file,
    placed,
  }: { network: NetworkInfo; keyId: string; root: Hash; file: Uint8Array; placed: readonly Placed[] },
): Promise<void> {
  const key = ctx.db.selectFrom("receipt_keys").select("revoke_id").where("id", "=", keyId).forShare()
  if ((await key.executeTakeFirst())?.revoke_id !== null) throw new Error("another process revokes the key")
  const last = ctx.db.selectFrom("receipt_batches").select("root").where("chain_id", "=", network.chainId)
  const before = await last.orderBy("n", "desc").limit(1).executeTakeFirst()
  await ctx.db
    .insertInto("receipt_batches")
    .values({
      root,
      key_id: keyId,
      chain_id: network.chainId,
      prev_root: before?.root ?? null,
      receipts: placed.length,
      size: file.length,
      bytes: file,
      created_at: ctx.now(),
    })
    .execute()
  await placeReceipts(ctx, root, placed)
}
