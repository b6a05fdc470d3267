/**
 * Adopts everything that a wallet sent and that the database does not know, for example after a backup was restored.
 * The blocks of the missing nonces are found through the wallet's transaction counts. If no endpoint has the state
 * for that, the wallet's releases are found through their logs. Each transaction is then adopted in the same way as
 * by `adopt`.
 */
import { sql } from "kysely"
import { USED_BEFORE } from "../../ledger/txmanager/lock-wallet.ts"
import { ask, awake } from "../../platform/chain/endpoints.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { ReachableChain } from "../../platform/chain/networks.ts"
import type { Quorum } from "../../platform/chain/quorum.ts"
import { readLogs, transfersOf } from "../../platform/chain/read-logs.ts"
import { hexNumber } from "../../platform/chain/rpc.ts"
import type { Transfer } from "../../platform/chain/transfers.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { ApiError } from "../../platform/errors.ts"
import { adopt } from "./adopt.ts"
import { chainToAsk, findWallet, networkAt, refused, type WalletNamed } from "./find-wallet.ts"
import type { OperatorOrder } from "./log-actions.ts"
import { listed, observeWallet, unknownNonces } from "./observe-wallet.ts"

/** Adopts everything that can be adopted. Reports what was done, and lists the remaining transactions with reasons. */
export async function adoptAll(ctx: Context, asked: WalletNamed & OperatorOrder): Promise<{ said: string }> {
  const wallet = await findWallet(ctx, asked)
  if (wallet.status !== "halted")
    throw refused("Transactions can be adopted only while their wallet is halted. Run `sluice wallet halt` first.")
  const chain = chainToAsk(ctx, wallet.chain_id)
  const { state, quorum } = await observeWallet(ctx, chain, wallet)
  const count = state.agreedFinalized
  if (count === undefined)
    throw refused("Too few endpoints report how many final transactions the wallet has: try again.")
  const left: string[] = []
  let adopted = 0
  let from = 0n
  const begin = await firstNonce(ctx, wallet)
  const take = async (hash: Hash, words: string) => {
    const { by, reason } = asked
    try {
      await adopt(ctx, { hash, by, reason, any: true })
      adopted++
    } catch (error) {
      if (!(error instanceof ApiError)) throw error
      left.push(`${words}${hash}: ${error.message}`)
    }
  }
  for (let nonce = await firstUnknown(ctx, wallet, begin, count); nonce !== undefined; ) {
    const number = await blockOfNonce(ctx, chain, wallet, nonce, from, quorum.finalized)
    if (number === undefined) {
      for (const hash of await releasesSince(ctx, chain, wallet, nonce, quorum)) await take(hash, "")
      break
    }
    for (const { hash, nonce: used } of await sentIn(ctx, chain, wallet, number))
      if ((await unknownNonces(ctx, wallet, used, used + 1n)).includes(used)) await take(hash, `nonce ${used}, `)
    from = number
    const after = (await countAt(ctx, chain, wallet, number)) ?? nonce + 1n
    nonce = await firstUnknown(ctx, wallet, after > nonce ? after : nonce + 1n, count)
  }
  const rest = await unknownNonces(ctx, wallet, begin, count)
  const lines = [`${adopted} ${adopted === 1 ? "transaction was" : "transactions were"} adopted.`]
  if (left.length > 0) lines.push("These were not:", ...left)
  if (left.length === 0 && rest.length > 0) lines.push(`These nonces were not found: ${listed(rest)}.`)
  lines.push(
    rest.length === 0
      ? "Every final transaction of the wallet is known. Continue with `sluice wallet resume`."
      : "Payouts planned after the backup are planned again while the scan catches up: wait, and run this command again. If a transaction pays none of our payouts, adopt it with `sluice wallet adopt HASH --foreign --reason R`.",
  )
  return { said: lines.join("\n") }
}

const firstUnknown = async (
  ctx: Context,
  wallet: Row<"wallets">,
  from: bigint,
  to: bigint,
): Promise<bigint | undefined> => (from < to ? (await unknownNonces(ctx, wallet, from, to))[0] : undefined)

/**
 * The first nonce that this database should know. It is 0 for a wallet that was used before the database existed,
 * because any of the wallet's transactions may have paid a pending payout.
 */
async function firstNonce(ctx: Context, wallet: Row<"wallets">): Promise<bigint> {
  if (wallet.halted_reason === USED_BEFORE) return 0n
  const { first } = await ctx.db
    .selectFrom("payouts")
    .select(eb => eb.fn.min("nonce").as("first"))
    .where("chain_id", "=", wallet.chain_id)
    .where("wallet", "=", wallet.address)
    .executeTakeFirstOrThrow()
  const known = first === null ? wallet.next_nonce : BigInt(first)
  return known < wallet.next_nonce ? known : wallet.next_nonce
}

/**
 * The first block at whose end a wallet has used a nonce; undefined if no endpoint has the state of the blocks in
 * between.
 */
async function blockOfNonce(
  ctx: Context,
  chain: ReachableChain,
  wallet: Row<"wallets">,
  nonce: bigint,
  from: bigint,
  to: bigint,
): Promise<bigint | undefined> {
  let low = from
  let high = to
  while (low < high) {
    const middle = (low + high) / 2n
    const count = await countAt(ctx, chain, wallet, middle)
    if (count === undefined) return undefined
    if (count > nonce) high = middle
    else low = middle + 1n
  }
  return low
}

/**
 * The transactions that moved money out of deposits since the last payout before an unknown nonce, in order, without
 * those that are known. Later payouts may be known, because they were planned again and adopted earlier. Nodes keep
 * logs longer than the state with which nonces are found. Transactions without logs, such as an empty transfer, are
 * not found.
 */
async function releasesSince(
  ctx: Context,
  chain: ReachableChain,
  wallet: Row<"wallets">,
  nonce: bigint,
  quorum: Quorum,
): Promise<Hash[]> {
  const { last } = await ctx.db
    .selectFrom("payouts")
    .select(eb => eb.fn.max("block_number").as("last"))
    .where("chain_id", "=", wallet.chain_id)
    .where("wallet", "=", wallet.address)
    .where("nonce", "<", nonce)
    .executeTakeFirstOrThrow()
  const left: Transfer[] = []
  const fromBlock = last ?? wallet.checked_number ?? 0n
  for (let after: Address | undefined = "0x" as Address; after !== undefined; ) {
    const addresses: Address[] = await addressesAfter(ctx, wallet.chain_id, after)
    left.push(...(await leftFrom(ctx, chain, addresses, fromBlock, quorum)))
    after = addresses.length < ADDRESSES_AT_ONCE ? undefined : addresses.at(-1)
  }
  left.sort((a, b) => Number(a.blockNumber - b.blockNumber) || a.logIndex - b.logIndex)
  const hashes = new Set(left.map(({ txHash }) => txHash))
  const known = await ctx.db
    .selectFrom("transaction_attempts")
    .select("hash")
    .where("chain_id", "=", wallet.chain_id)
    .where("wallet", "=", wallet.address)
    .where(sql<boolean>`hash = any(${sqlArray("text", hashes)})`)
    .execute()
  for (const { hash } of known) if (hash !== null) hashes.delete(hash)
  return [...hashes]
}

/** How many receiving addresses are in memory at once. Strangers decide how many there are in total. */
const ADDRESSES_AT_ONCE = 5_000

/** The next receiving addresses, ordered by their text, including those of checkouts that were put away. */
async function addressesAfter(ctx: Context, chainId: number, after: Address): Promise<Address[]> {
  const { rows } = await sql<{ address: Address }>`
    (select address::text as address from deposits where chain_id = ${chainId} and address > ${after} order by address
      limit ${ADDRESSES_AT_ONCE})
    union (select '0x' || encode(address, 'hex') as address from put_away
      where chain_id = ${chainId} and address > decode(substr(${after}, 3), 'hex') order by put_away.address
      limit ${ADDRESSES_AT_ONCE})
    order by address limit ${ADDRESSES_AT_ONCE}`.execute(ctx.db)
  return rows.map(({ address }) => address)
}

const TOO_OLD =
  "No endpoint reports the wallet's transaction counts at old blocks, or all logs since those blocks: nodes keep the state of recent blocks " +
  "only. Try again, add an archive node to the settings, or adopt each transaction with its hash."

/** The transfers out of these addresses, from the first endpoint that has all logs. */
async function leftFrom(
  ctx: Context,
  chain: ReachableChain,
  addresses: readonly Address[],
  fromBlock: bigint,
  { finalized }: Quorum,
): Promise<Transfer[]> {
  // No payments are made on 0G's chain, so no log shows what was sent there.
  const token = networkAt(ctx, chain.chainId)?.token.address
  if (token === undefined) throw refused(TOO_OLD)
  const query = { token, side: "from", addresses, has: { number: finalized } } as const
  for (const endpoint of awake(chain.endpoints)) {
    const left: Transfer[] = []
    for (let next = fromBlock; ; ) {
      const reading = await readLogs(endpoint, { ...query, fromBlock: next, toBlock: finalized }, ctx.signal)
      left.push(...transfersOf(reading))
      if (reading.readTo >= finalized) return left
      if (reading.readTo < next) break
      next = reading.readTo + 1n
    }
  }
  throw refused(TOO_OLD)
}

/** The number of a wallet's transactions at the end of a block, according to the first endpoint that answers. */
async function countAt(
  ctx: Context,
  chain: ReachableChain,
  wallet: Row<"wallets">,
  block: bigint,
): Promise<bigint | undefined> {
  const call = { method: "eth_getTransactionCount", params: [wallet.address, hexNumber(block)] }
  for (const endpoint of awake(chain.endpoints)) {
    const reply = (await ask(endpoint, [call], ctx.signal))?.[0]
    if (reply?.ok && typeof reply.value === "string" && /^0x[0-9a-f]{1,16}$/i.test(reply.value))
      return BigInt(reply.value)
  }
  return undefined
}

/**
 * The transactions of a wallet in a block, in order. The signature of each is checked when the transaction is
 * adopted.
 */
async function sentIn(
  ctx: Context,
  chain: ReachableChain,
  wallet: Row<"wallets">,
  block: bigint,
): Promise<{ hash: Hash; nonce: bigint }[]> {
  const call = { method: "eth_getBlockByNumber", params: [hexNumber(block), true] }
  for (const endpoint of awake(chain.endpoints)) {
    const reply = (await ask(endpoint, [call], ctx.signal))?.[0]
    const transactions = reply?.ok ? (reply.value as { transactions?: unknown } | null)?.transactions : undefined
    if (!Array.isArray(transactions)) continue
    return transactions
      .filter(({ from, hash, nonce }) => String(from).toLowerCase() === wallet.address && hash && nonce)
      .map(({ hash, nonce }) => ({ hash: String(hash).toLowerCase() as Hash, nonce: BigInt(nonce) }))
      .sort((a, b) => (a.nonce < b.nonce ? -1 : 1))
  }
  return []
}
