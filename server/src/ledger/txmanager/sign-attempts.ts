/**
 * Signs attempts that have a nonce but no signature. The signing happens after the transaction that assigned the nonce,
 * because a signer may be another machine. Any process that finds an unsigned attempt signs it. A signer may answer the
 * same request with different signatures, and each would make another transaction with the same nonce. So only the
 * first stored signature is ever sent, and a broadcast reads it back from the database.
 */
import { sql } from "kysely"
import type { Hex } from "viem"
import { backoffMs } from "../../platform/backoff.ts"
import type { Hash } from "../../platform/chain/hex.ts"
import { type Signer, SignerError, signTransaction } from "../../platform/chain/signer.ts"
import type { WalletState } from "../../platform/chain/wallet-state.ts"
import { type Context, inTransaction } from "../../platform/context.ts"
import { rowsParameter } from "../../platform/db/rows-parameter.ts"
import type { Row } from "../../platform/db/schema.ts"
import { payoutAlarms } from "../../platform/metrics.ts"
import { unixMs } from "../../platform/tracing/trace.ts"
import type { Lane } from "./lane.ts"
import { emptyOverdue, isSound, signableAttempts, type Unsigned } from "./load-unsigned-attempts.ts"
import { lockWallet } from "./lock-wallet.ts"
import { tracePayouts, withoutBatches } from "./trace-transactions.ts"
import { transactionOf } from "./unsigned-attempt.ts"

/** The wait after the first failure of a signer. Each further failure doubles the wait. */
const FIRST_WAIT_MS = 1_000
const LONGEST_WAIT_MS = 30_000

/**
 * The failures since a signer last signed for a network, and when to ask the signer again, by `performance.now()`. The
 * key is the network's name, because a signer that refuses one network's transactions may sign for the others.
 */
const failing = new WeakMap<Signer, Map<string, { failures: number; againAt: number }>>()

interface Signed {
  id: bigint
  unsigned_hash: Hash
  raw: Hex
  hash: Hash
}

/**
 * Signs the newest attempt of each payout that has a nonce but no block, stores the signatures, and returns how many
 * were stored. This process has just committed the attempts in `given`, when nothing else was unsigned, so these
 * attempts are not read and compared again. A failing signer is asked for one signature at a time, at growing
 * intervals, until it signs.
 */
export async function signAttempts(
  ctx: Context,
  lane: Lane,
  wallet: Row<"wallets">,
  { latest }: Pick<WalletState, "latest">,
  given: readonly Unsigned[] = [],
): Promise<number> {
  const { chain, signer } = lane
  if (signer.address !== wallet.address)
    throw new Error(`the signer of ${signer.address} can't sign for ${wallet.address}`)
  if (latest === undefined) return 0
  await emptyOverdue(ctx, lane, wallet, latest)
  const failingHere = failing.get(signer) ?? new Map()
  failing.set(signer, failingHere)
  const { failures, againAt } = failingHere.get(chain.name) ?? { failures: 0, againAt: 0 }
  if (performance.now() < againAt) return 0
  const due =
    given.length > 0
      ? given.filter(each => isSound(ctx, wallet, each))
      : await signableAttempts(ctx, lane, wallet, latest)
  const asked = failures > 0 ? due.slice(0, 1) : due
  const startMs = unixMs()
  const answers = await Promise.allSettled(asked.map(each => signOne(signer, each, ctx.signal)))
  // A process that is shutting down cancelled the requests itself, so such rejections are no failures.
  const failed = ctx.signal.aborted ? [] : answers.filter(answer => answer.status === "rejected")
  for (const { reason } of failed) report(ctx, lane, reason)
  const signed = answers.flatMap(answer => (answer.status === "fulfilled" ? [answer.value] : []))
  if (failed.length > 0) {
    const waitMs = backoffMs(FIRST_WAIT_MS, failures, LONGEST_WAIT_MS)
    failingHere.set(chain.name, { failures: failures + 1, againAt: performance.now() + waitMs })
  } else if (signed.length > 0) failingHere.delete(chain.name)
  const stored = await store(ctx, wallet, signed)
  await trace(ctx, lane, startMs, asked, answers)
  return stored
}

/** Adds the signing step to the traces of these payouts. */
async function trace(
  ctx: Context,
  { chain }: Lane,
  startMs: number,
  asked: readonly Unsigned[],
  answers: readonly PromiseSettledResult<Signed>[],
): Promise<void> {
  const step = { name: "sign payout", startMs, attributes: { "sluice.network": chain.name } }
  const payouts = asked.map((each, i) => ({ ...each, id: each.payout_id, answer: answers[i] }))
  tracePayouts(ctx, step, await withoutBatches(ctx, payouts), ({ answer }) =>
    answer?.status === "fulfilled"
      ? { attributes: { "sluice.transaction.hash": answer.value.hash } }
      : { attributes: {}, error: "not signed" },
  )
}

async function signOne(signer: Signer, attempt: Unsigned, signal: AbortSignal): Promise<Signed> {
  const { id, unsigned_hash } = attempt
  return { id, unsigned_hash, ...(await signTransaction(signer, transactionOf(attempt, attempt), signal)) }
}

/**
 * Logs a signer's failure. A signer that does not respond raises an alarm once a transaction has waited for a minute. A
 * wrong answer raises an alarm immediately.
 */
function report(ctx: Context, { chain, name, signer: { remote } }: Lane, error: unknown): void {
  const facts = { network: chain.name, wallet: name, signer: remote ?? "local" }
  const isWrong = error instanceof SignerError && error.isWrong
  const said = error instanceof SignerError ? error.message : "failed"
  ctx.log.error(
    { ...facts, ...(error instanceof SignerError ? {} : { err: error }) },
    `the ${name} wallet's signer ${said}`,
  )
  if (isWrong) payoutAlarms.inc({ network: chain.name, wallet: name, reason: "signature" })
}

/**
 * Stores signed bytes, unless the transaction already has a signature or a later attempt for its nonce exists. Returns
 * how many were stored.
 */
async function store(ctx: Context, wallet: Row<"wallets">, signed: readonly Signed[]): Promise<number> {
  if (signed.length === 0) return 0
  const rows = signed.map(({ id, ...each }) => ({ id: `${id}`, ...each }))
  return await inTransaction(ctx, async ctx => {
    // Code that writes another attempt for a nonce takes this lock too.
    await lockWallet(ctx, wallet.id)
    const stored = await sql`/* named: store_signatures */ update transaction_attempts a
      set raw = s.raw, hash = s.hash, signed_at = clock_timestamp(), sent_at = null
      from (${rowsParameter(rows, "id bigint, unsigned_hash text, raw text, hash text")}) s
      where a.id = s.id and a.unsigned_hash = s.unsigned_hash and a.raw is null
        and not exists (select from transaction_attempts b where b.payout_id = a.payout_id and b.n > a.n)
        and not exists (select from transaction_attempts c where c.hash = s.hash)
      returning a.id`.execute(ctx.db)
    return stored.rows.length
  })
}
