/** Shows the state of each wallet, from the database and from its chain. Read-only. */
import { sql } from "kysely"
import { type Address, checksummed, type Hash } from "../../platform/chain/hex.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { laneOf, networkNamed, servedChain } from "./find-wallet.ts"
import { observeWallet, unexplained, type WalletObservation } from "./observe-wallet.ts"
import { ether, gwei } from "./unstick.ts"

/** All wallets, or those of a network. Values from a chain are null if the chain can't be queried. */
export async function showWallets(ctx: Context, network: string | undefined) {
  const rows = await ctx.db.selectFrom("wallets").selectAll().orderBy("chain_id").orderBy("id").execute()
  const asked = rows.filter(row => network === undefined || networkNamed(ctx, row.chain_id) === network)
  return await Promise.all(asked.map(row => showWallet(ctx, row)))
}

async function showWallet(ctx: Context, wallet: Row<"wallets">) {
  const observed = await observeOrNone(ctx, wallet)
  return {
    network: networkNamed(ctx, wallet.chain_id),
    lane: laneOf(ctx, wallet),
    address: checksummed(wallet.address),
    status: wallet.status,
    haltedReason: wallet.halted_reason,
    nextNonce: `${wallet.next_nonce}`,
    /** Null for a wallet that moves nothing out of deposits. */
    booksComparedTo: wallet.lane === "payout" ? textOf(wallet.checked_number) : null,
    chain: observed
      ? {
          latest: textOf(observed.state.latest),
          finalized: textOf(observed.state.agreedFinalized),
          finalizedBlock: `${observed.quorum.finalized}`,
          gas: observed.state.balance === undefined ? null : ether(observed.state.balance),
          baseFeeGwei: observed.state.market ? gwei(observed.state.market.baseFee) : null,
        }
      : null,
    /** Everything that must be explained before the wallet may sign. */
    unexplained: observed ? await unexplained(ctx, wallet, observed) : [],
    inFlight: await inFlight(ctx, wallet),
    /** How many payouts without a nonce the wallet's lane has, by state. */
    waiting: await counts(ctx, wallet),
  }
}

/**
 * Reads the wallet's state from the chain if that can be queried. Otherwise the operator still gets the database's
 * values.
 */
async function observeOrNone(ctx: Context, wallet: Row<"wallets">): Promise<WalletObservation | undefined> {
  const chain = servedChain(ctx, wallet.chain_id)
  if (!chain) return undefined
  return await observeWallet(ctx, chain, wallet).catch(error => {
    ctx.log.warn({ err: error, network: chain.name }, "a wallet's state could not be read")
    return undefined
  })
}

interface AttemptInFlight {
  id: string
  kind: string
  state: string
  nonce: bigint
  recipient: Address
  n: number
  /** Null until the attempt is signed. */
  hash: Hash | null
  max_fee: bigint
  tip: bigint
  empty: boolean
  age_s: number
  sends: number
  last_result: string | null
}

/** Everything that has a nonce and is not final: one entry for each attempt, the lowest nonce first. */
async function inFlight(ctx: Context, wallet: Row<"wallets">) {
  const { rows } = await sql<AttemptInFlight>`
    select i.id, i.kind, i.state, i.nonce, i.recipient, a.n, a.hash, a.max_fee, a.tip, a.empty, a.sends, a.last_result,
      extract(epoch from clock_timestamp() - a.created_at)::int as age_s
    from payouts i join transaction_attempts a on a.payout_id = i.id
    where i.chain_id = ${wallet.chain_id} and i.wallet = ${wallet.address} and i.state in ('assigned', 'mined')
    order by i.nonce, a.n`.execute(ctx.db)
  return rows.map(row => ({
    nonce: `${row.nonce}`,
    payout: row.id,
    kind: row.kind,
    state: row.state,
    attempt: row.n,
    hash: row.hash,
    empty: row.empty,
    maxFeeGwei: gwei(row.max_fee),
    tipGwei: gwei(row.tip),
    ageSeconds: row.age_s,
    sends: row.sends,
    lastResult: row.last_result,
  }))
}

async function counts(ctx: Context, wallet: Row<"wallets">): Promise<Record<string, number>> {
  const { rows } = await sql<{ name: string; n: number }>`
    select case when state = 'held' then 'held: ' || held_reason else state end as name, count(*)::int as n
    from payouts where chain_id = ${wallet.chain_id} and lane = ${wallet.lane} and state in ('queued', 'held')
    group by 1 order by 1`.execute(ctx.db)
  return Object.fromEntries(rows.map(row => [row.name, row.n]))
}

const textOf = (n: bigint | null | undefined): string | null => (n === null || n === undefined ? null : `${n}`)
