/** What must hold of escrows after any chaos: the chain is asked first, past every proxy, and the database is compared with it. */
import { sql } from "kysely"
import { encodeFunctionData, type Hex, parseEventLogs } from "viem"
import { reconcileRound } from "../../src/ledger/reconciliation/reconcile.ts"
import { authCaptureEscrowAbi as abi } from "../../src/platform/chain/abi.ts"
import { type PaymentInfo, readTokenStore, tokenStoreCall } from "../../src/platform/chain/escrow.ts"
import type { Address } from "../../src/platform/chain/hex.ts"
import type { Row } from "../../src/platform/db/schema.ts"
import { payoutIdOf } from "../../src/platform/ids.ts"
import { authIdOf, paymentInfoOf } from "../../src/products/escrow/payment-info.ts"
import { eventFaults } from "./escrow-events.ts"
import type { Deal } from "./escrow-play.ts"
import { FINAL_DEPTH, type Stage } from "./escrow-stage.ts"
import { attemptFaults } from "./verify.ts"

/** The contract's events, by the kind of the call that causes them. */
const eventOf = {
  PaymentAuthorized: "reserve",
  PaymentCaptured: "capture",
  PaymentVoided: "void",
  PaymentReclaimed: "reclaim",
  PaymentRefunded: "refund",
} as const
type Moved = (typeof eventOf)[keyof typeof eventOf]

/** A movement of an escrow by the chain. */
interface Movement {
  kind: Moved
  authId: Hex
  amount: bigint
  txHash: Hex
}

/** What the chain's movements of one escrow come to; base units. */
export interface Sums extends Record<Moved, bigint> {
  held: bigint
}

/** Everything that does not hold, in words; empty when all does. */
export async function escrowViolations(stage: Stage, deals: readonly Deal[]): Promise<string[]> {
  const { rig } = stage
  const { db } = rig.service.ctx
  await rig.anvil.client.setAutomine(true)
  await rig.anvil.client.mine({ blocks: 2 * FINAL_DEPTH })
  const moved = await movements(stage)
  const calls = await db.selectFrom("payouts").selectAll().where("lane", "=", "relay").execute()
  const known = new Set<string>()
  const found: string[] = []
  for (const deal of deals) {
    const escrow = await stage.on.rowOf(deal.id)
    const authId = authIdOf(escrow, deal.buyer.address.toLowerCase() as Address)
    known.add(authId)
    const own = moved.filter(each => each.authId === authId)
    const of = calls.filter(call => call.escrow_id === deal.id)
    const sums = sumsOf(own)
    found.push(
      ...[
        ...chainFaults(sums),
        ...(await heldFaults(stage, deal, escrow, sums)),
        ...callFaults(of, own),
        ...askFaults(deal, escrow, of),
        ...(await rowFaults(stage, deal, escrow, sums, own)),
        ...(await eventFaults(db, deal, sums)),
        ...deal.refusals.map(words => `refused: ${words}`),
      ].map(words => `${deal.story} (${deal.id}): ${words}`),
    )
  }
  for (const { authId, kind } of moved)
    if (!known.has(authId)) found.push(`a ${kind} of ${authId}, which nobody asked for`)
  const broadcast = new Set(stage.proxies.flatMap(proxy => [...proxy.broadcast]))
  const attempts = await db.selectFrom("transaction_attempts").selectAll().execute()
  found.push(...attemptFaults(attempts, broadcast))
  found.push(...(await tokenFaults(stage, deals, moved)), ...(await walletFaults(stage)))
  return found
}

/** All movements that the escrow's logs have. */
async function movements({ rig }: Stage): Promise<Movement[]> {
  const address = rig.network.escrow?.address as Address
  const logs = await rig.anvil.client.getLogs({ address, fromBlock: 0n, toBlock: "latest" })
  return parseEventLogs({ abi, logs }).flatMap(({ eventName, args, transactionHash: txHash }) => {
    const kind = eventOf[eventName as keyof typeof eventOf]
    if (!kind || !("paymentInfoHash" in args && "amount" in args)) return []
    return [{ kind, authId: args.paymentInfoHash, amount: args.amount, txHash }]
  })
}

function sumsOf(moved: readonly Movement[]): Sums {
  const sum = (kind: Moved) => moved.reduce((total, each) => (each.kind === kind ? total + each.amount : total), 0n)
  const reserve = sum("reserve")
  const capture = sum("capture")
  const rest = { void: sum("void"), reclaim: sum("reclaim"), refund: sum("refund") }
  return { reserve, capture, ...rest, held: reserve - capture - rest.void - rest.reclaim }
}

function chainFaults({ reserve, capture, refund, held }: Sums): string[] {
  return [
    ...(capture > reserve ? [`${capture} were captured of ${reserve}`] : []),
    ...(refund > capture ? [`${refund} were refunded of ${capture}`] : []),
    ...(held < 0n ? [`${-held} more left than came in`] : []),
  ]
}

/** What is held at the end of all times must be for its payer to take back. */
async function heldFaults(
  { on, rig }: Stage,
  { buyer, story }: Deal,
  escrow: Row<"escrows">,
  { held, capture, refund, reserve }: Sums,
): Promise<string[]> {
  const info: PaymentInfo = paymentInfoOf(escrow, buyer.address.toLowerCase() as Address)
  const found: string[] = []
  if (reserve > 0n && escrow.auth_id === null)
    return ["its money is reserved, and the database does not know whose it is"]
  if (escrow.auth_id !== null) {
    const { capturableAmount, refundableAmount } = await on.onChain(escrow.session_id)
    if (capturableAmount !== held || refundableAmount !== capture - refund)
      found.push(
        `the contract has ${capturableAmount} and ${refundableAmount}, its logs ${held} and ${capture - refund}`,
      )
  }
  if (held === 0n) return found
  const data = encodeFunctionData({ abi, functionName: "reclaim", args: [info] })
  const isFree = await rig.anvil.client.call({ account: buyer.address, to: escrow.escrow, data }).then(
    () => true,
    () => false,
  )
  if (!isFree) found.push(`${held} are stranded`)
  else if (story !== "reclaimed") found.push(`${held} were neither captured nor released by themselves`)
  return found
}

/** Every call has ended as the chain says, and moved its amount once or nothing. */
function callFaults(calls: readonly Row<"payouts">[], moved: readonly Movement[]): string[] {
  const found: string[] = []
  const left = new Set(moved.filter(({ kind }) => kind !== "reclaim"))
  for (const { id, kind, state, amount, tx_hash: txHash } of calls) {
    if (!["final", "reverted", "cancelled"].includes(state))
      found.push(`the ${kind} ${id} is ${state}, and nobody moves it`)
    const own = [...left].filter(each => each.txHash === txHash && each.kind === kind)
    if (state === "final" && (own.length !== 1 || own[0]?.amount !== amount))
      found.push(`the ${kind} ${id} is final, and the chain has ${own.length} of it`)
    if (state !== "final" && own.length > 0) found.push(`the ${kind} ${id} is ${state}, and the chain has it`)
    for (const each of own) left.delete(each)
  }
  for (const { kind, amount, txHash } of left)
    found.push(`a ${kind} of ${amount} in ${txHash} is no call's: it was made twice`)
  return found
}

/** Each request that was answered is one call, and no call is anybody else's but the service's own. */
function askFaults({ asks, story }: Deal, escrow: Row<"escrows">, calls: readonly Row<"payouts">[]): string[] {
  const found: string[] = []
  for (const what of ["capture", "void"] as const) {
    const asked = asks.filter(each => each.what === what).map(({ id }) => id)
    const made = calls.filter(({ kind }) => kind === what)
    const own = made.filter(({ id }) => !asked.includes(payoutIdOf(id)))
    if (made.length - own.length !== asked.length)
      found.push(`${asked.length} were answered a ${what}, and ${made.length} were made`)
    const isAutomatic = what === "capture" && (asked.length === 0 || story === "automatic")
    for (const { created_at: at } of own)
      if (!isAutomatic && !(what === "void" && at >= escrow.void_at))
        found.push(`nobody asked for a ${what} that was made`)
  }
  const reserves = calls.filter(({ kind, state }) => kind === "reserve" && state === "final")
  if (reserves.length > 1) found.push(`it was reserved ${reserves.length} times`)
  return found
}

/** The session, the escrow, the refunds and the books say what the chain says. */
async function rowFaults(
  { rig, on }: Stage,
  { asks, id }: Deal,
  escrow: Row<"escrows">,
  sums: Sums,
  moved: readonly Movement[],
): Promise<string[]> {
  const { db } = rig.service.ctx
  const found: string[] = []
  const { authorized, captured, voided, reclaimed, refunded } = escrow
  const rows = { reserve: authorized, capture: captured, void: voided, reclaim: reclaimed, refund: refunded }
  for (const [kind, amount] of Object.entries(rows))
    if (amount !== sums[kind as Moved]) found.push(`its row says ${kind} ${amount}, the chain ${sums[kind as Moved]}`)
  const { status } = await db
    .selectFrom("checkout_sessions")
    .select("status")
    .where("id", "=", id)
    .executeTakeFirstOrThrow()
  const wanted = statusesOf(sums)
  if (!wanted.includes(status)) found.push(`it is ${status}, and by the chain ${wanted.join(" or ")}`)
  const shown = (await on.status(id)).status
  if (shown !== status) found.push(`its payer is shown ${shown}`)
  const refunds = await db
    .selectFrom("refunds")
    .innerJoin("payouts", "payouts.id", "refunds.payout_id")
    .select(["refunds.id", "refunds.status", "payouts.state"])
    .where("session_id", "=", id)
    .execute()
  const answered = asks.filter(({ what }) => what === "refund").map(each => each.id)
  if (refunds.length !== answered.length || refunds.some(each => !answered.includes(each.id)))
    found.push(`${answered.length} were answered a refund, and ${refunds.length} were made`)
  for (const refund of refunds)
    if (refund.status !== (refund.state === "final" ? "succeeded" : "failed"))
      found.push(`the refund ${refund.id} is ${refund.status}, and its call ${refund.state}`)
  const books = await sql<{ reason: Moved; amount: bigint; tx_hash: Hex | null }>`
    select reason, amount, tx_hash from books where escrow_id = ${id}`.execute(db)
  const textOf = ({ kind, amount, txHash }: Movement) => `${kind} ${amount} ${kind === "reclaim" ? null : txHash}`
  const entries = books.rows.map(({ reason, amount, tx_hash }) => `${reason} ${amount} ${tx_hash}`).sort()
  const wantedBooks = moved.map(textOf).sort()
  if (entries.join() !== wantedBooks.join())
    found.push(`its books have ${entries.join("; ")}, the chain ${wantedBooks.join("; ")}`)
  return found
}

function statusesOf({ reserve, capture, refund, held }: Sums): string[] {
  if (capture > 0n) return [refund === 0n ? "confirmed" : refund < capture ? "partially_refunded" : "refunded"]
  if (reserve > 0n) return [held > 0n ? "authorized" : "voided"]
  return ["expired", "failed"]
}

/** Tokens in are tokens out and what is held; merchants and payers have what the movements leave them. */
async function tokenFaults(
  { rig, merchants }: Stage,
  deals: readonly Deal[],
  moved: readonly Movement[],
): Promise<string[]> {
  const found: string[] = []
  const escrow = rig.network.escrow?.address as Address
  const { data = "0x" } = await rig.anvil.client.call({ to: escrow, data: tokenStoreCall(rig.relayer.address) })
  const store = readTokenStore(data)
  const all = sumsOf(moved)
  const balance = await rig.balanceOf(store)
  if (balance !== all.held) found.push(`the escrow holds ${balance}, and its movements leave ${all.held}`)
  const sums = new Map<string, Sums>()
  for (const deal of deals) {
    const { auth_id: authId } = await rig.service.ctx.db
      .selectFrom("escrows")
      .select("auth_id")
      .where("session_id", "=", deal.id)
      .executeTakeFirstOrThrow()
    const own = sumsOf(moved.filter(each => each.authId === authId))
    sums.set(deal.id, own)
    const has = await rig.balanceOf(deal.buyer.address.toLowerCase() as Address)
    const left = deal.amount - own.capture - own.held + own.refund
    const isGone = deal.story !== "withdrawn" && deal.struck && own.reserve === 0n
    if (has !== (isGone ? 0n : left))
      found.push(`${deal.story} (${deal.id}): its payer has ${has}, and should have ${left}`)
  }
  for (const merchant of merchants) {
    const own = deals.filter(deal => deal.merchant === merchant).flatMap(({ id }) => sums.get(id) ?? [])
    const due = own.reduce((total, { capture, refund }) => total + capture - refund, 0n)
    const has = await rig.balanceOf(merchant.wallet.address.toLowerCase() as Address)
    if (has !== due) found.push(`the wallet of ${merchant.sub} has ${has}, and should have ${due}`)
  }
  return found
}

/** The relay wallet is in step with the chain, nothing is due for ever, and the reconciliation finds nothing. */
async function walletFaults({ rig }: Stage): Promise<string[]> {
  const { ctx } = rig.service
  const found: string[] = []
  await ctx.db.deleteFrom("reconciliations").execute()
  await reconcileRound(ctx, rig.network, rig.signer.address)
  const wallets = await ctx.db.selectFrom("wallets").selectAll().execute()
  for (const { lane, status, halted_reason: why } of wallets)
    if (status !== "active") found.push(`the ${lane} wallet is halted: ${why}`)
  const count = BigInt(await rig.anvil.client.getTransactionCount({ address: rig.relayer.address }))
  const next = wallets.find(({ lane }) => lane === "relay")?.next_nonce
  if (next !== count) found.push(`next_nonce is ${next}, the chain has ${count}`)
  const { rows } = await sql<{ n: number }>`select deadlocks::int as n from pg_stat_database
    where datname = current_database()`.execute(ctx.db)
  if (rows[0]?.n !== 0) found.push(`${rows[0]?.n} deadlocks`)
  return found
}
