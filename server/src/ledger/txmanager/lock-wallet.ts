/** Creates, locks and halts the row of a lane's wallet on one network. */
import { hostOf } from "../../platform/chain/endpoints.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import type { ReachableChain } from "../../platform/chain/networks.ts"
import { openQuorum } from "../../platform/chain/quorum.ts"
import { readWalletState } from "../../platform/chain/wallet-state.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { payoutAlarms } from "../../platform/metrics.ts"
import type { Lane } from "./lane.ts"

/**
 * Why a new wallet row is halted: this database knows none of the wallet's used nonces. The text is stored, so it must
 * never change.
 */
export const USED_BEFORE =
  "payouts wait, because the wallet was used before this database knew it: the database may be an old backup"

/** Reads the current row of a wallet. */
export const walletRow = (ctx: Context, { id }: Row<"wallets">): Promise<Row<"wallets">> =>
  ctx.db.selectFrom("wallets").selectAll().where("id", "=", id).executeTakeFirstOrThrow()

/**
 * Returns the wallet's row, and creates it with the chain's nonce if there is none. Undefined while endpoints disagree
 * about that nonce. A wallet that was used before is created halted if payouts exist, because the database may be a
 * backup that is older than their signatures. Throws an Error if another lane has the same key.
 */
export async function ensureWallet(
  ctx: Context,
  { chain, name: lane, signer }: Pick<Lane, "chain" | "name" | "signer">,
): Promise<Row<"wallets"> | undefined> {
  const row = () =>
    ctx.db
      .selectFrom("wallets")
      .selectAll()
      .where("chain_id", "=", chain.chainId)
      .where("address", "=", signer.address)
      .executeTakeFirst()
  const known = await row()
  if (known && known.lane !== lane)
    throw new Error(
      `${chain.name}: ${checksummed(signer.address)} is the ${known.lane} wallet, and can't be the ${lane} wallet too`,
    )
  if (known) return known
  const { latest, agreedLatest } = await readWalletState(chain, signer.address, ctx.signal)
  const { finalized } = await openQuorum(chain, 0n, ctx.signal)
  // A first nonce that is too high leaves a gap forever, so the count of one endpoint is not enough. One lying endpoint
  // among three delays nothing.
  if (latest === undefined || latest !== agreedLatest) {
    const facts = { network: chain.name, lane, latest, agreedLatest, endpoints: chain.endpoints.map(hostOf) }
    ctx.log.error(facts, "endpoints do not agree on the wallet's nonce; nothing is signed until they do")
    payoutAlarms.inc({ network: chain.name, wallet: lane, reason: "rpc_unavailable" })
    return undefined
  }
  const waiting = ctx.db
    .selectFrom("payouts")
    .select("id")
    .where("chain_id", "=", chain.chainId)
    .where("lane", "=", lane)
    .limit(1)
  const doubtful = latest > 0n && (await waiting.executeTakeFirst()) !== undefined
  if (doubtful)
    ctx.log.fatal({ network: chain.name, wallet: signer.address, reason: USED_BEFORE }, `the ${lane} wallet is halted`)
  await ctx.db
    .insertInto("wallets")
    .values({
      chain_id: chain.chainId,
      lane,
      address: signer.address,
      next_nonce: latest,
      status: doubtful ? "halted" : "active",
      halted_reason: doubtful ? USED_BEFORE : null,
      checked_number: finalized,
      // The wallet was never observed, so the first round observes it immediately.
      run_at: new Date(0),
    })
    .onConflict(conflict => conflict.doNothing())
    .execute()
  return await row()
}

/**
 * Halts the wallet if the chain has more of the wallet's transactions than this database signed. Then the database is
 * an old copy or the key is shared, so pending payouts may already be paid. `count` is the number on which a quorum
 * agrees; undefined without agreement.
 */
export async function haltAhead(
  ctx: Context,
  chain: ReachableChain,
  wallet: Row<"wallets">,
  count: bigint | undefined,
): Promise<void> {
  const next = count === undefined ? undefined : await fewerSigned(ctx, wallet, count)
  if (next === undefined) return
  const words = `the chain has ${count} transactions of the wallet, and this database signed ${next}`
  const why = "the database was restored from an old backup, or the key is used elsewhere"
  await haltWallet(ctx, chain, wallet, "foreign_nonce", `${words}: ${why}`)
}

/**
 * Returns how many transactions this database signed for the wallet if the chain has more; otherwise undefined. Nonces
 * are stored before signing, so read the chain's count before you call this.
 */
export async function fewerSigned(ctx: Context, wallet: Row<"wallets">, count: bigint): Promise<bigint | undefined> {
  // `next_nonce` only grows, so even an older row can prove that nothing is wrong.
  if (count <= wallet.next_nonce) return undefined
  const { next_nonce: next } = await walletRow(ctx, wallet)
  return count > next ? next : undefined
}

/** Observes the wallet when the process starts, so that an old backup is noticed before anything is signed. */
export async function checkWallet(ctx: Context, lane: Lane): Promise<void> {
  const wallet = await ensureWallet(ctx, lane)
  if (!wallet) return
  const { agreedLatest } = await readWalletState(lane.chain, lane.signer.address, ctx.signal)
  await haltAhead(ctx, lane.chain, wallet, agreedLatest)
}

/**
 * Returns the wallet's row, locked until the transaction ends. Code that assigns the wallet's nonces holds this lock.
 */
export const lockWallet = (ctx: TxContext, id: number): Promise<Row<"wallets">> =>
  ctx.db.selectFrom("wallets").selectAll().where("id", "=", id).forNoKeyUpdate().executeTakeFirstOrThrow()

/**
 * Halts a wallet until a person resumes it: if the books and the chain disagree, no program can tell what was paid.
 * Does nothing if the wallet is already halted.
 */
export async function haltWallet(
  ctx: Context,
  chain: Pick<ReachableChain, "name">,
  wallet: Row<"wallets">,
  reason: "foreign_nonce" | "books",
  words: string,
): Promise<void> {
  const halted = await ctx.db
    .updateTable("wallets")
    .set({ status: "halted", halted_reason: words })
    .where("id", "=", wallet.id)
    .where("status", "=", "active")
    .executeTakeFirst()
  if (halted.numUpdatedRows === 0n) return
  payoutAlarms.inc({ network: chain.name, wallet: wallet.lane, reason })
  ctx.log.fatal({ network: chain.name, wallet: wallet.address, reason: words }, `the ${wallet.lane} wallet is halted`)
}
