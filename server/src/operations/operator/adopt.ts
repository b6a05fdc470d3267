/**
 * Adopts a wallet's transaction that is on the chain but unknown to the database, for example after an old backup was
 * restored. The transaction becomes an attempt of the payout that it pays, and the engine continues from there. Or it
 * is recorded as foreign, so that its nonce is explained. Only final transactions can be adopted, and only while the
 * wallet is halted.
 */
import { sql } from "kysely"
import type { Hex } from "viem"
import { coverShortfall } from "../../ledger/payouts/insert-payout.ts"
import { lockWallet } from "../../ledger/txmanager/lock-wallet.ts"
import type { Hash } from "../../platform/chain/hex.ts"
import type { ReachableChain } from "../../platform/chain/networks.ts"
import { openQuorum } from "../../platform/chain/quorum.ts"
import { payoutIdIn, withoutId } from "../../platform/chain/release-call.ts"
import type { Receipt } from "../../platform/chain/transfers.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import { kindOf } from "../../platform/db/by-kind.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { lockEscrow } from "../../products/escrow/load-escrow.ts"
import { askedChains, findPayout, networkAt, networkNamed, refused } from "./find-wallet.ts"
import { candidates } from "./list-candidates.ts"
import { byHand, type Done, type OperatorOrder } from "./log-actions.ts"
import { isKnown } from "./observe-wallet.ts"
import { fetchTransaction, type SignedTransaction } from "./read-transaction.ts"
import { watchSenders } from "./watch-senders.ts"
import { waitingIn, writeLostBatch } from "./write-lost-batch.ts"
import { type LostCall, lostCallMessage, lostCallOf, writeLostCall } from "./write-lost-call.ts"
import { type LostStore, lostStoreOf, writeLostStore } from "./write-lost-store.ts"

type Wanted = OperatorOrder & {
  hash: Hash
  /** The payout that the transaction pays, if several match. */
  payout?: string | undefined
  /** Whether to take the oldest payout if several have the same recipient and amount. */
  any?: boolean | undefined
  /** Whether the transaction makes no payment of this service; `reason` then says what it is. */
  foreign?: boolean | undefined
}

/** A transaction of one of our wallets in a final block. */
interface Found {
  transaction: SignedTransaction
  wallet: Row<"wallets">
  receipt: Receipt
  /** The escrow call that the transaction made, if any. */
  lost: LostCall | undefined
  /** The file of receipts for which the transaction paid 0G, if any. */
  store: LostStore | undefined
}

/** Adopts a transaction. Refuses one that does not qualify, and says what to do. */
export async function adopt(ctx: Context, wanted: Wanted): Promise<{ said: string }> {
  const known = await ctx.db
    .selectFrom("transaction_attempts")
    .select("payout_id")
    .where("hash", "=", wanted.hash)
    .executeTakeFirst()
  if (known) throw refused(`The transaction is already known: it is an attempt to send the payout ${known.payout_id}.`)
  const found = await findOnChain(ctx, wanted.hash)
  const done = await byHand(ctx, wanted, async ctx => {
    // The escrow is locked first, because nobody who holds a wallet's lock may wait for an escrow's lock.
    if (found.lost?.sessionId) await lockEscrow(ctx, found.lost.sessionId)
    const wallet = await lockWallet(ctx, found.wallet.id)
    if (wallet.status !== "halted")
      throw refused("A transaction can be adopted only while its wallet is halted. Run `sluice wallet halt` first.")
    return wanted.foreign ? await adoptForeign(ctx, wallet, found) : await adoptPayout(ctx, wallet, found, wanted)
  })
  return { said: done.said }
}

/**
 * Finds the transaction on the chains. Refuses it unless one of our wallets sent it and enough endpoints confirm that
 * it is final.
 */
async function findOnChain(ctx: Context, hash: Hash): Promise<Found> {
  const chains = askedChains(ctx)
  for (const chain of chains) {
    const transaction = await fetchTransaction(ctx, chain, hash)
    if (!transaction) continue
    const wallet = await ctx.db
      .selectFrom("wallets")
      .selectAll()
      .where("chain_id", "=", chain.chainId)
      .where("address", "=", transaction.from)
      .executeTakeFirst()
    if (!wallet || (transaction.chainId !== 0 && transaction.chainId !== chain.chainId))
      throw refused(`The transaction was signed by ${transaction.from}, which is not a wallet of this service.`)
    const receipt = await finalReceiptOf(ctx, chain, hash)
    const network = networkAt(ctx, chain.chainId)
    if (network) await watchSenders(ctx, network, receipt)
    const lost = await lostCallOf(ctx, wallet, transaction, receipt)
    return { transaction, wallet, receipt, lost, store: await lostStoreOf(ctx, wallet, transaction, receipt) }
  }
  const names = chains.map(each => each.name).join(", ")
  throw refused(
    `No endpoint of these networks knows a transaction with this hash and a signature that can be checked: ${names}.`,
  )
}

/** The transaction's receipt in a final block. As many endpoints must confirm it as are needed to repeat a payment. */
async function finalReceiptOf(ctx: Context, chain: ReachableChain, hash: Hash): Promise<Receipt> {
  const quorum = await openQuorum(chain, 0n, ctx.signal)
  await quorum.learn([], [hash])
  const receipt = quorum.receiptOf(hash)
  if (!receipt)
    throw refused("The endpoints do not agree that the transaction is in a block. Try again when it is mined.")
  if (receipt.blockNumber > quorum.finalized)
    throw refused(
      `The transaction is in block ${receipt.blockNumber}, which is not final: the newest final block is ${quorum.finalized}. Try again ` +
        "when it is.",
    )
  return receipt
}

/** Adopts a transaction that pays a payout, as an attempt of that payout. */
async function adoptPayout(
  ctx: TxContext,
  wallet: Row<"wallets">,
  found: Found,
  wanted: Wanted,
): Promise<Done & { said: string }> {
  const { transaction } = found
  const { nonce, hash, raw, gas, maxFee, tip } = transaction
  const sitting = await sittingAt(ctx, wallet, nonce)
  const empty = isEmpty(transaction, wallet)
  const payout = sitting && empty ? sitting : await payoutOf(ctx, wallet, found, wanted)
  if (sitting && sitting.id !== payout.id)
    throw refused(
      `The nonce ${nonce} belongs to the payout ${sitting.id}, but the transaction makes the payment of the payout ${payout.id}, which ` +
        (payout.state === "cancelled"
          ? "is cancelled. Adopt the transaction with --foreign."
          : `still waits. Run \`sluice wallet cancel ${payout.id}\`, because it is paid, and then adopt the transaction with --foreign.`),
    )
  const [row] = await ctx.db
    .selectFrom("payouts")
    .selectAll()
    .where("id", "=", payout.id)
    .where(sql<boolean>`(state = any(${sqlArray("text", sitting ? ["assigned"] : ["queued", "held"])})
      or (state = 'final' and nonce is null and tx_hash = ${hash}))`)
    .forNoKeyUpdate()
    .execute()
  if (!row)
    throw refused(
      `The payout ${payout.id} is ${payout.state}${payout.nonce === null ? "" : ` at nonce ${payout.nonce}`}.`,
    )
  if (!sitting) await giveNonce(ctx, wallet, row, nonce)
  await forgetOutflow(ctx, row, hash)
  const { n } = await ctx.db
    .selectFrom("transaction_attempts")
    .select(sql<number>`(coalesce(max(n), -1) + 1)::int`.as("n"))
    .where("payout_id", "=", row.id)
    .executeTakeFirstOrThrow()
  await ctx.db
    .insertInto("transaction_attempts")
    .values({
      payout_id: row.id,
      chain_id: wallet.chain_id,
      wallet: wallet.address,
      nonce,
      n,
      raw,
      hash,
      gas,
      max_fee: maxFee,
      tip,
      empty,
      // The transaction is already on chain and need not be sent.
      sent_at: sql<Date>`clock_timestamp()`,
    })
    .execute()
  const next = await advance(ctx, wallet)
  const what = empty ? "empties the nonce of" : "pays"
  return {
    action: "adopt",
    chainId: wallet.chain_id,
    wallet: wallet.address,
    payoutId: row.id,
    before: { state: row.state, nonce: row.nonce, next_nonce: wallet.next_nonce },
    after: { state: row.state === "final" ? "final" : "assigned", nonce, n, hash, empty, next_nonce: next },
    said: `The transaction has the nonce ${nonce} and ${what} the payout ${row.id}. The wallet's next nonce is ${next}.`,
  }
}

/** Gives a payout the nonce of the transaction that paid it. This database did not know that nonce. */
async function giveNonce(ctx: TxContext, wallet: Row<"wallets">, row: Row<"payouts">, nonce: bigint): Promise<void> {
  // Only money that leaves a deposit counts in the outgoing books. A relay brings money in, and writing receipts
  // moves no deposit's money.
  const isInBook = kindOf(row).moneyOf === "deposit"
  // The money has left the deposit, whatever the books say.
  if (isInBook && !row.reserved) await coverShortfall(ctx, row)
  await sql`select set_config('sluice.adopting', 'on', true)`.execute(ctx.db)
  const given = { wallet: wallet.address, nonce, updated_at: ctx.now() }
  // The comparison with the chain had taken our own transaction for someone else's.
  if (row.state === "final")
    return void (await ctx.db.updateTable("payouts").set(given).where("id", "=", row.id).execute())
  await ctx.db
    .updateTable("payouts")
    .set({
      state: "assigned",
      reserved: isInBook,
      held_reason: null,
      held_detail: null,
      ...given,
    })
    .where("id", "=", row.id)
    .execute()
}

/**
 * Deletes the outflow that the comparison with the chain recorded before the payout was known. From now on the books
 * show the money as this payout.
 */
async function forgetOutflow(ctx: TxContext, row: Row<"payouts">, hash: Hash): Promise<void> {
  await ctx.db
    .deleteFrom("outflows")
    .where("chain_id", "=", row.chain_id)
    .where("tx_hash", "=", hash)
    .where("deposit_id", "=", row.deposit_id)
    .where("token", "=", row.token)
    .where("recipient", "=", row.recipient)
    .where("amount", "=", row.amount)
    .execute()
}

/**
 * Adopts a transaction that makes no payment of this service. Its nonce is then explained. A payout that had this nonce
 * is marked as reverted and created again.
 */
async function adoptForeign(
  ctx: TxContext,
  wallet: Row<"wallets">,
  { transaction, receipt, lost, store }: Found,
): Promise<Done & { said: string }> {
  const { nonce, hash } = transaction
  const sitting = await sittingAt(ctx, wallet, nonce)
  // If a payout already has the nonce, the call can't get a row.
  if (lost?.sessionId && !sitting)
    throw refused(
      `The transaction is not foreign: it is a ${lost.call.kind} of the checkout ${lost.sessionId}. Adopt it without --foreign.`,
    )
  const paid =
    sitting && paysTheSame(transaction, sitting)
      ? [sitting]
      : [...(await candidates(ctx, wallet, transaction)), ...(await waitingIn(ctx, wallet, transaction))]
  const [first] = paid
  const ids = paid.map(row => row.id).join(", ")
  if (first)
    throw refused(
      `The transaction is not foreign: it pays the payout ${ids}, which would otherwise be paid twice. ` +
        (sitting && sitting.id !== first.id
          ? `Its nonce belongs to the payout ${sitting.id}: run \`sluice wallet cancel\` for ${ids}, and then adopt it with --foreign.`
          : "Adopt it without --foreign."),
    )
  if (store && !sitting)
    throw refused(
      `The transaction is not foreign: it paid 0G for the receipts ${store.root}. Adopt it without --foreign.`,
    )
  if (sitting && sitting.state !== "assigned")
    throw refused(`The payout ${sitting.id}, which has this nonce, is ${sitting.state}.`)
  const added = await ctx.db
    .insertInto("foreign_nonces")
    .values({
      chain_id: wallet.chain_id,
      wallet: wallet.address,
      nonce,
      tx_hash: hash,
      block_number: receipt.blockNumber,
      created_at: ctx.now(),
    })
    .onConflict(conflict => conflict.doNothing())
    .executeTakeFirst()
  if (added.numInsertedOrUpdatedRows === 0n)
    throw refused(`The nonce ${nonce} is already explained by a foreign transaction.`)
  if (store) await writeLostStore(ctx, store, transaction, receipt)
  const next = await advance(ctx, wallet)
  const anew = sitting ? ` This nonce did not pay the payout ${sitting.id}, so the payout is created again.` : ""
  return {
    action: "adopt foreign",
    chainId: wallet.chain_id,
    wallet: wallet.address,
    ...(sitting ? { payoutId: sitting.id } : {}),
    before: { nonce, next_nonce: wallet.next_nonce },
    after: { nonce, hash, block_number: receipt.blockNumber, next_nonce: next },
    said: `The nonce ${nonce} is explained by a foreign transaction.${anew}${lost ? ` ${lostCallMessage(lost)}.` : ""} The wallet's next nonce is ${next}.`,
  }
}

const sittingAt = (ctx: TxContext, wallet: Row<"wallets">, nonce: bigint): Promise<Row<"payouts"> | undefined> =>
  ctx.db
    .selectFrom("payouts")
    .selectAll()
    .where("chain_id", "=", wallet.chain_id)
    .where("wallet", "=", wallet.address)
    .where("nonce", "=", nonce)
    .executeTakeFirst()

/** Whether `unstick` created the transaction. */
const isEmpty = ({ to, data, value }: SignedTransaction, wallet: Row<"wallets">): boolean =>
  to === wallet.address && data === "0x" && value === 0n

/**
 * Returns the payout that a transaction pays. That is the one whose id is in the calldata, otherwise the one that the
 * operator named, otherwise the only one that matches. For an escrow call that the database lost, a new payout is
 * created.
 */
async function payoutOf(
  ctx: TxContext,
  wallet: Row<"wallets">,
  { transaction, lost, store }: Found,
  { payout: named, any }: Wanted,
): Promise<Row<"payouts">> {
  const id = idIn(transaction.data)
  const itself =
    id === undefined
      ? undefined
      : await ctx.db.selectFrom("payouts").selectAll().where("id", "=", id).executeTakeFirst()
  const sitting = await sittingAt(ctx, wallet, transaction.nonce)
  if (store && (!itself || itself.state === "cancelled")) {
    if (!sitting) return await writeLostStore(ctx, store, transaction)
    if (paysTheSame(transaction, sitting)) return sitting
  }
  // A payout that was cancelled after an old backup was restored stays cancelled, and the transaction on chain gets a
  // new one.
  if (itself && !(itself.state === "cancelled" && lost?.sessionId)) {
    if (named !== undefined && named !== id)
      throw refused(`The transaction's calldata shows that it belongs to the payout ${id}.`)
    if (!paysTheSame(transaction, itself))
      throw refused(`The transaction contains the id of the payout ${id}, but pays something else.`)
    return itself
  }
  const batch = itself || sitting ? undefined : await writeLostBatch(ctx, wallet, transaction)
  if (batch) return batch
  const fitting = [
    ...(sitting && paysTheSame(transaction, sitting) ? [sitting] : []),
    ...(await candidates(ctx, wallet, transaction)),
  ]
  if (named !== undefined) {
    const payout = await findPayout(ctx, named)
    if (!fitting.some(row => row.id === payout.id))
      throw refused(`The transaction does not make the payment of the payout ${named} (${payout.state}).`)
    return payout
  }
  const [only, second] = fitting
  if (!only) return await unplanned(ctx, lost, sitting)
  if (second && !any)
    throw refused(
      `The transaction matches several payouts that make the same payment; choose one with --payout: ${fitting.map(row => row.id).join(", ")}.`,
    )
  return only
}

/**
 * Creates a payout for a transaction that matches no waiting payout. This is possible only for a call of an escrow,
 * whose terms show what the call is for.
 */
async function unplanned(
  ctx: TxContext,
  lost: LostCall | undefined,
  sitting: Row<"payouts"> | undefined,
): Promise<Row<"payouts">> {
  if (!lost)
    throw refused(
      "The transaction does not pay any waiting payout. If it pays none of our payouts, adopt it with --foreign --reason.",
    )
  if (lost.sessionId === null)
    throw refused(
      `${lostCallMessage(lost)}. Adopt it with --foreign --reason: the service does not send this call again.`,
    )
  if (sitting)
    throw refused(
      `The transaction is a ${lost.call.kind} of the checkout ${lost.sessionId}, and its nonce belongs to the payout ${sitting.id}, ` +
        "so the checkout can't count it. With --foreign the payout is created again; don't repeat the same action on the checkout.",
    )
  return await writeLostCall(ctx, lost)
}

const paysTheSame = ({ to, data, value }: SignedTransaction, row: Row<"payouts">): boolean =>
  to === row.to_address && value === row.value && withoutId(data) === withoutId(row.data)

/** The id at the end of a release's calldata; undefined if the calldata is too short. */
const idIn = (data: Hex): string | undefined => (withoutId(data) === "0x" ? undefined : payoutIdIn(data))

/** Moves the wallet's next nonce past all explained nonces, and returns it. */
async function advance(ctx: TxContext, wallet: Row<"wallets">): Promise<bigint> {
  let { next_nonce: next } = wallet
  const known = async (nonce: bigint) =>
    (await sql<{ known: boolean }>`select ${isKnown(wallet, sql`${nonce}`)} as known`.execute(ctx.db)).rows[0]?.known
  while (await known(next)) next++
  await ctx.db.updateTable("wallets").set({ next_nonce: next }).where("id", "=", wallet.id).execute()
  ctx.log.info(
    { wallet: wallet.address, network: networkNamed(ctx, wallet.chain_id), next: `${next}` },
    "the next nonce",
  )
  return next
}
