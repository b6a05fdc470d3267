/**
 * Classifies deposits' outflows that belong to no payout, and stores those that could be decided. A later comparison
 * stores the rest.
 */
import { sql } from "kysely"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { Quorum, QuorumView } from "../../platform/chain/quorum.ts"
import type { Transfer } from "../../platform/chain/transfers.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { inParts, provenAmong } from "./check-receipts.ts"
import { agreements } from "./given-back.ts"
import { type Compared, haltPayoutWallets } from "./report.ts"

/** The most rows in a statement, so that the statement stays below the limit of 65,535 parameters. */
const ROWS_PER_STATEMENT = 4_000

/** The columns of a deposit that decide whether money may leave it. */
export type KnownDeposit = Pick<
  Row<"deposits">,
  "id" | "address" | "factory" | "owner" | "approver" | "open_after_s" | "merchant_id"
>

/** A transfer out of a deposit that no row explains; `words` describe it for the operator. */
export interface Stranger {
  transfer: Transfer
  deposit: KnownDeposit
  /** Whether one of our payouts names this transfer. Such a transfer never counts as a recovery or a give-back. */
  isNamed: boolean
  words: string
}

type Noted = Pick<Row<"outflows">, "tx_hash" | "log_index" | "reason" | "payout_id">

/** A stranger with its classification. */
type Decided = Stranger & Pick<Row<"outflows">, "reason" | "nonce"> & { time: Date }

/** Returns the outflows that were already recorded for these transactions. */
export async function notedOutflows(ctx: Context, network: Network, hashes: readonly Hash[]): Promise<Noted[]> {
  if (hashes.length === 0) return []
  return await ctx.db
    .selectFrom("outflows")
    .select(["tx_hash", "log_index", "reason", "payout_id"])
    .where("chain_id", "=", network.chainId)
    .where(sql<boolean>`tx_hash = any(${sqlArray("text", new Set(hashes))})`)
    .execute()
}

/**
 * Records recoveries, and outflows that an approver agreed to. Any other outflow is recorded as `unknown` and halts the
 * payout wallets, unless it already halted them. A transfer that too few endpoints report, or about which endpoints
 * disagree, is `unproven` and not recorded. `explained` are transfers that were already recorded as given back.
 */
export async function noteOutflows(
  ctx: Context,
  network: Network,
  view: QuorumView,
  strangers: readonly Stranger[],
  explained: readonly Transfer[],
): Promise<Compared> {
  const earlier = Map.groupBy(explained, ({ txHash }) => txHash)
  let unproven: string | undefined
  for await (const { quorum, part } of inParts(ctx, network, view, strangers, ({ transfer }) => transfer.txHash)) {
    const hashes = new Set(part.map(({ transfer }) => transfer.txHash))
    const before = [...hashes].flatMap(hash => earlier.get(hash) ?? [])
    const { decided, open } = await classify(ctx, network, quorum, part, before)
    unproven ??= open
    const known = await noticedAmong(ctx, network, hashes)
    const unknown = decided.filter(({ reason, transfer }) => reason === "unknown" && !known.has(nameOf(transfer)))
    const [first] = unknown
    const more = unknown.length > 1 ? ` (and ${unknown.length - 1} more, which the books list as unknown)` : ""
    // The halt comes first: a recorded outflow is not reported again, so the halt must exist even if the process dies
    // in between.
    if (first) await haltPayoutWallets(ctx, network, first.words + more)
    const id = await store(ctx, network, decided, first?.transfer)
    // A stored outflow belongs to the books, so after a resume the comparison finds only the other outflows.
    if (first) return { finding: { table: "outflows", id, words: first.words + more } }
  }
  return unproven === undefined ? {} : { unproven }
}

const nameOf = ({ txHash, from }: Pick<Transfer, "txHash" | "from">): string => `${txHash} ${from}`

/**
 * Returns the outflows that already halted the wallets when they happened, as `HASH DEPOSIT` (see `watch-outflows.ts`).
 */
export async function noticedAmong(
  ctx: Context,
  { chainId }: Network,
  hashes: ReadonlySet<Hash>,
): Promise<ReadonlySet<string>> {
  const rows = await ctx.db
    .selectFrom("noticed_outflows")
    .select(["tx_hash", "deposit"])
    .where("chain_id", "=", chainId)
    .where(sql<boolean>`tx_hash = any(${sqlArray("text", hashes)})`)
    .execute()
  return new Set(rows.map(row => nameOf({ txHash: row.tx_hash, from: row.deposit })))
}

/** Classifies some transactions' outflows. `open` describes the first outflow that can't be classified yet. */
async function classify(
  ctx: Context,
  network: Network,
  quorum: Quorum,
  strangers: readonly Stranger[],
  explained: readonly Transfer[],
): Promise<{ decided: Decided[]; open: string | undefined }> {
  const proven = await provenAmong(
    network,
    quorum,
    strangers.map(({ transfer }) => ({ ...transfer, k: undefined })),
  )
  const isAgreed = agreements(network, quorum, explained)
  const decided: Decided[] = []
  let open: string | undefined
  for (const [i, stranger] of strangers.entries()) {
    const { transfer, deposit, isNamed, words } = stranger
    if (!proven.has(i)) {
      open ??= words
      continue
    }
    const time = quorum.blockAt(transfer.blockNumber)?.block.time ?? ctx.now()
    const isOpen = BigInt(Math.floor(time.getTime() / 1_000)) > deposit.open_after_s
    const isRecovery = !isNamed && transfer.to === deposit.owner && isOpen
    const agreed = isRecovery || isNamed ? { said: "no" as const } : isAgreed(deposit, transfer)
    if (agreed.said === "unknown") open ??= `${words}; endpoints do not agree whether its approver signed for it`
    else if (agreed.said === "yes") decided.push({ ...stranger, time, reason: "given_back", nonce: agreed.nonce })
    else decided.push({ ...stranger, time, reason: isRecovery ? "recovery" : "unknown", nonce: null })
  }
  return { decided, open }
}

/** Stores outflows, and returns the id of the row for `which`. */
async function store(
  ctx: Context,
  network: Network,
  outflows: readonly Decided[],
  which: Transfer | undefined,
): Promise<string> {
  let id = ""
  for (let start = 0; start < outflows.length; start += ROWS_PER_STATEMENT) {
    const rows = outflows
      .slice(start, start + ROWS_PER_STATEMENT)
      .map(({ transfer, deposit, reason, nonce, time }) => ({
        chain_id: network.chainId,
        deposit_id: deposit.id,
        merchant_id: deposit.merchant_id,
        reason,
        nonce,
        tx_hash: transfer.txHash,
        token: transfer.token,
        recipient: transfer.to,
        amount: transfer.value,
        block_number: transfer.blockNumber,
        block_hash: transfer.blockHash,
        log_index: transfer.logIndex,
        block_time: time,
        created_at: ctx.now(),
      }))
    const stored = await ctx.db
      .insertInto("outflows")
      .values(rows)
      .onConflict(conflict => conflict.doNothing())
      .returning(["id", "tx_hash", "log_index"])
      .execute()
    id ||= stored.find(row => row.tx_hash === which?.txHash && row.log_index === which.logIndex)?.id ?? ""
  }
  for (const [said, { length }] of Map.groupBy(outflows, lineOf))
    ctx.log.warn({ ...JSON.parse(said), transfers: length }, "money left a deposit without a payout")
  return id
}

/** Returns one line for all of a deposit's outflows in one transaction, which may have hundreds of transfers. */
const lineOf = ({ transfer, deposit, reason }: Stranger & { reason: string }): string =>
  JSON.stringify({ txHash: transfer.txHash, deposit: deposit.address satisfies Address, reason })
