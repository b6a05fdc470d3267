/**
 * Finds a wallet's transactions on chain that the database can't explain. As long as any transaction is unexplained,
 * nothing may be signed for the wallet.
 */
import { sql } from "kysely"
import type { Hash } from "../../platform/chain/hex.ts"
import type { ReachableChain } from "../../platform/chain/networks.ts"
import { openQuorum, type Quorum } from "../../platform/chain/quorum.ts"
import { readWalletState, type WalletState } from "../../platform/chain/wallet-state.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"

/** The state of a wallet, as all endpoints of its chain report it. */
export interface WalletObservation {
  state: WalletState
  quorum: Quorum
}

/** Reads the state of a wallet now; throws an RpcError if too few endpoints agree. */
export async function observeWallet(
  ctx: Context,
  chain: ReachableChain,
  wallet: Row<"wallets">,
): Promise<WalletObservation> {
  const [state, quorum] = await Promise.all([
    readWalletState(chain, wallet.address, ctx.signal),
    openQuorum(chain, 0n, ctx.signal),
  ])
  return { state, quorum }
}

/**
 * Everything that is unexplained, each in a sentence that says what to do; empty if everything is explained. A nonce
 * is explained by an attempt or a foreign transaction in a canonical block.
 */
export async function unexplained(
  ctx: Context,
  wallet: Row<"wallets">,
  { state, quorum }: WalletObservation,
): Promise<string[]> {
  const { agreedLatest: count } = state
  if (count === undefined) return ["Too few endpoints report how many transactions the wallet has: try again."]
  const words: string[] = []
  if (count > wallet.next_nonce) {
    const missing = await unknownNonces(ctx, wallet, wallet.next_nonce, count)
    words.push(
      `The chain has ${count} transactions of the wallet, and this database knows ${wallet.next_nonce}. Look the wallet ` +
        `up in an explorer and run \`sluice wallet adopt HASH\` for each transaction with the nonce ${listed(missing)}.`,
    )
  }
  if (count <= wallet.next_nonce && (state.pending ?? 0n) > wallet.next_nonce)
    words.push(
      `Including transactions that wait to be mined, the wallet has ${state.pending}, and this database knows ` +
        `${wallet.next_nonce}. Wait until the unknown ones are mined, and adopt them.`,
    )
  const sent = await sql<{ id: string; nonce: bigint; hashes: Hash[] }>`
    select i.id, i.nonce, array(select a.hash::text from transaction_attempts a
      where a.payout_id = i.id and a.hash is not null)
      || array(select f.tx_hash::text from foreign_nonces f
        where f.chain_id = i.chain_id and f.wallet = i.wallet and f.nonce = i.nonce) as hashes
    from payouts i where i.chain_id = ${wallet.chain_id} and i.wallet = ${wallet.address} and i.state = 'assigned'
      and i.nonce < ${count} order by i.nonce`.execute(ctx.db)
  const hashes = sent.rows.flatMap(row => row.hashes)
  await quorum.learn([], hashes)
  for (const { id, nonce, hashes } of sent.rows)
    if (!hashes.some(hash => quorum.receiptOf(hash)))
      words.push(
        `The nonce ${nonce} of the payout ${id} was used by a transaction that this database does not know. Look it up in ` +
          "an explorer and run `sluice wallet adopt HASH` (with `--foreign --reason` if it pays none of our payouts).",
      )
  return words
}

const MAX_LISTED = 10

/** Formats nonces for a sentence, with "…" if there may be more of them. */
export const listed = (nonces: readonly bigint[]): string =>
  nonces.join(", ") + (nonces.length === MAX_LISTED ? " …" : "")

/** The unexplained nonces from `from` up to, but not including, `to`; at most ten. */
export async function unknownNonces(ctx: Context, wallet: Row<"wallets">, from: bigint, to: bigint): Promise<bigint[]> {
  const { rows } = await sql<{ nonce: bigint }>`
    select n as nonce from generate_series(${from}::bigint, ${to - 1n}::bigint) n where not ${isKnown(wallet, sql`n`)}
    order by n limit ${MAX_LISTED}`.execute(ctx.db)
  return rows.map(row => row.nonce)
}

/** SQL: whether a payout or a foreign transaction of the wallet has this nonce. */
export const isKnown = (wallet: Row<"wallets">, nonce: ReturnType<typeof sql>) => sql<boolean>`(
  exists (select from payouts i where i.chain_id = ${wallet.chain_id} and i.wallet = ${wallet.address}
    and i.nonce = ${nonce})
  or exists (select from foreign_nonces f where f.chain_id = ${wallet.chain_id} and f.wallet = ${wallet.address}
    and f.nonce = ${nonce}))`
