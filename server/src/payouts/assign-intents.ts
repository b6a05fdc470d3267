/**
 * From intents to signed bytes. Who is screened, what would fail is found out before a nonce is given; then, in one
 * transaction under the wallet's lock, nonce and signed bytes are written together, so that there is never a gap.
 */
import { type Insertable, sql } from "kysely"
import { type Hex, keccak256, parseTransaction, recoverTransactionAddress } from "viem"
import { type Fees, firstFees, trialFees } from "../chain/fees.ts"
import type { Address, Hash } from "../chain/hex.ts"
import type { Network } from "../chain/networks.ts"
import { RELEASE_GAS } from "../chain/release-call.ts"
import { hexNumber, type RpcResult } from "../chain/rpc.ts"
import { listedBy, screen } from "../chain/sanctions.ts"
import type { Signer, UnsignedTransaction } from "../chain/signer.ts"
import { dataParts, dataPartsOf, type WalletSight } from "../chain/wallet-state.ts"
import { type Context, inTransaction } from "../context.ts"
import type { HeldReason } from "../db/payout-rows.ts"
import type { Database, Row } from "../db/schema.ts"
import { recheckMs } from "./draw-shares.ts"
import { type Except, isSmall, lockBudgets, smallOf, withinBudgets } from "./gas-budget.ts"
import { pausedIntents } from "./pause.ts"
import {
  balanceCall,
  cancelRelay,
  failedTrial,
  failingPayers,
  NO_BUDGET,
  outpaid,
  unseenAt,
  whyRefused,
} from "./relays.ts"
import { isTotalSpent, lockTotals } from "./total-budget.ts"
import { agreedVerdict, askEach, noteDisagreement } from "./verdicts.ts"

/** Transactions of a wallet that are not mined yet; nodes keep few of one sender. */
const IN_FLIGHT = 16
/** While a recipient can't be screened, or the wallet has no gas, this long. */
const WAIT_MS = 30_000
/** Where a node neither ran it nor said that it fails. */
const UNTOLD_MS = 5_000
const DETAIL_LENGTH = 200
const SHORT =
  "the money that it pays out of is not surely there: the chain took it, or other money of its deposit, back, or one of two endpoints alone has it"

/** The gas limit of an intent's attempts. */
const gasOf = (row: Row<"intents">): bigint => row.gas ?? RELEASE_GAS

/** Gives nonces to intents that are due, as far as there is room; answers how many, and how many are held or wait instead. */
export async function assignIntents(
  ctx: Context,
  network: Network,
  wallet: Row<"wallets">,
  signer: Signer,
  sight: WalletSight,
): Promise<{ assigned: number; putOff: number }> {
  const nothing = { assigned: 0, putOff: 0 }
  const { market, latest, pending = 0n, balance, dataFee } = sight
  const room = IN_FLIGHT - (await inFlight(ctx, wallet)).n
  if (room <= 0) return nothing
  const due = await dueIntents(ctx, network, wallet, room)
  if (due.length === 0) return nothing
  // Why nothing is paid then is told by the alarms.
  if (latest === undefined || market === undefined || balance === undefined) return nothing
  const fees = firstFees(market, ctx.settings.payoutMaxFee)
  if (!fees) return nothing
  const most = RELEASE_GAS * fees.maxFee + dataFee
  // Relays go on to be refused: nobody is made to wait at a checkout.
  if (wallet.lane === "payout" && (await isTotalSpent(ctx, most))) return nothing
  const payable = await withinBudgets(ctx, wallet, due, most, except => dueIntents(ctx, network, wallet, room, except))
  const vetted = await vet(ctx, network, wallet, payable.due, { fees, balance })
  const putOff = payable.held + payable.due.length - vetted.length
  if (vetted.length === 0) return { ...nothing, putOff }
  const count = pending > latest ? pending : latest
  const done = await inTransaction(ctx, ctx => assign(ctx, wallet, signer, vetted, fees, { count, balance, dataFee }))
  // Outside of it, as each end of a relay locks its session: nobody waits for one while a wallet is held.
  for (const row of done.refused) await cancelRelay(ctx, row, NO_BUDGET)
  return { assigned: done.assigned, putOff: putOff + done.putOff }
}

/** What may be signed: what its deposit's book has promised, or a relay whose time is not over. */
const isSignable = (ctx: Context) => sql<boolean>`(reserved or relay_by > ${ctx.now()})`

/** The intents that are due, but for those of some merchants and the small ones of others; what failed before comes last: it may be somebody's many. */
async function dueIntents(
  ctx: Context,
  { depositFactory }: Network,
  wallet: Row<"wallets">,
  limit: number,
  except: Except = { merchants: [], small: [] },
): Promise<Row<"intents">[]> {
  const due: Row<"intents">[] = []
  // Each part is a piece of one index in its order, so that the number of those that wait costs nothing.
  for (const failed of [0, 1])
    if (due.length < limit)
      due.push(
        ...(await ctx.db
          .selectFrom("intents")
          .selectAll()
          .where("chain_id", "=", wallet.chain_id)
          .where("lane", "=", wallet.lane)
          // A factory obeys one wallet: what lies in deposits of another is for the process that has its key.
          .$if(wallet.lane === "payout", query => query.where("to_address", "=", depositFactory))
          .where("state", "in", ["queued", "held"])
          .where(sql<boolean>`least(checks, 1) = ${failed}`)
          .where(isSignable(ctx))
          .where("run_at", "<=", ctx.now())
          .$if(except.merchants.length > 0, query => query.where("merchant_id", "not in", [...except.merchants]))
          .$if(except.small.length > 0, query =>
            query.where(eb =>
              eb.or([eb("merchant_id", "not in", [...except.small]), eb.not(smallOf(ctx, sql.table("intents")))]),
            ),
          )
          .orderBy("run_at")
          .orderBy("created_at")
          .orderBy("id")
          .limit(limit - due.length)
          .execute()),
      )
  return due
}

/** What a wallet has signed and not seen mined: how many, the wei that the gas of all of it may cost, and its data's size. */
export async function inFlight(ctx: Context, wallet: Row<"wallets">): Promise<InFlight> {
  const { rows } = await sql<InFlight>`
    select count(distinct i.id)::int as n, min(i.updated_at) as since, coalesce(sum(a.gas * a.max_fee), 0) as wei,
      coalesce(sum(${dataPartsOf}), 0) as parts
    from intents i join attempts a on a.intent_id = i.id
    where i.chain_id = ${wallet.chain_id} and i.wallet = ${wallet.address} and i.state = 'assigned'
      and not exists (select from attempts b where b.intent_id = i.id and b.n > a.n)`.execute(ctx.db)
  return rows[0] ?? { n: 0, since: null, wei: 0n, parts: 0n }
}

export interface InFlight {
  n: number
  /** When the oldest of them was signed, or taken back by the chain. */
  since: Date | null
  wei: bigint
  /** How often the fee for data has to be paid, by {@link dataParts}. */
  parts: bigint
}

/** The ids of the intents that may be paid and would succeed. The others are held, or wait; relays are cancelled. */
async function vet(
  ctx: Context,
  network: Network,
  { address: wallet, lane }: Row<"wallets">,
  wanted: Row<"intents">[],
  { fees, balance }: { fees: Fees; balance: bigint },
): Promise<string[]> {
  if (wanted.length === 0) return []
  const short = await holdShort(ctx, wanted)
  const due = wanted.filter(({ id }) => !short.has(id))
  if (due.length === 0) return []
  // A relay's recipient is a deposit of ours.
  const partyOf = (row: Row<"intents">) => row.payer ?? row.recipient
  const screened = await screen(ctx, [...new Set(due.map(partyOf))], lane)
  const [needless, failing, paused] =
    lane === "relay"
      ? [await outpaid(ctx, due), await failingPayers(ctx, due.map(partyOf)), await pausedIntents(ctx, network, due)]
      : []
  const cleared: Row<"intents">[] = []
  for (const row of due) {
    const screening = screened.get(partyOf(row))
    if (paused?.has(row.id)) await cancelRelay(ctx, row, "Payments on this network are paused.")
    else if (needless?.has(row.id)) await cancelRelay(ctx, row, "It was paid in another way meanwhile.")
    else if (failing?.has(partyOf(row)))
      await cancelRelay(ctx, row, "Too many authorizations of this wallet failed today.")
    else if (screening === "clear") cleared.push(row)
    else if (screening !== "listed") await putOff(ctx, row, WAIT_MS)
    else if (lane === "relay") await cancelRelay(ctx, row, "The wallet is on a sanctions list.")
    else
      await hold(ctx, row, "sanctions", `the recipient is on a sanctions list: ${await listedBy(ctx, row.recipient)}`)
  }
  if (cleared.length === 0) return []
  const calls = cleared.map(row => ({
    method: "eth_call",
    params: [
      {
        ...{ from: wallet, to: row.to_address, data: row.data, gas: hexNumber(gasOf(row)) },
        ...trialFees(fees, gasOf(row), balance),
      },
      "latest",
    ],
  }))
  const relayed = cleared.filter(({ kind }) => kind === "authorize")
  const balances = relayed.map(row => balanceCall(network, row.recipient))
  const answers = await askEach(network, [...calls, ...balances], ctx.signal)
  const held = new Map(relayed.map((row, i) => [row.deposit_id, answers.map(told => told?.[calls.length + i])]))
  const unseen = held.size > 0 ? await unseenAt(ctx, network, held) : held
  const vetted: string[] = []
  for (const [i, row] of cleared.entries()) {
    const trials = answers.flatMap(told => trialOf(told?.[i]))
    const trial = agreedVerdict(network, trials)?.[0]
    // The look that finds it comes at once, as this counts as put off.
    if (unseen.has(row.deposit_id)) await putOff(ctx, row, UNTOLD_MS)
    else if (trial?.verdict === "succeeds") vetted.push(row.id)
    else if (trial && row.payer)
      await cancelRelay(ctx, row, await whyRefused(ctx, network, row.payer, row.amount, trial.error))
    else if (trial) await hold(ctx, row, "simulation", trial.error.slice(0, DETAIL_LENGTH))
    else {
      noteDisagreement(ctx, network, lane, trials, row.id)
      await putOff(ctx, row, UNTOLD_MS)
    }
  }
  return vetted
}

/** What an endpoint says of a trial run; nothing where it had a bad moment. */
function trialOf(told: RpcResult | undefined): { verdict: "succeeds" | "fails"; error: string }[] {
  if (told?.ok) return [{ verdict: "succeeds", error: "" }]
  return told && failedTrial.test(told.error) ? [{ verdict: "fails", error: told.error }] : []
}

async function hold(
  ctx: Context,
  { id, checks, payment_id: paymentId, held_reason: before }: Row<"intents">,
  reason: HeldReason,
  detail: string,
  waitMs = recheckMs(checks),
): Promise<void> {
  const now = ctx.now()
  // Looked at again and held for the same is nothing new.
  if (reason !== before) ctx.log.warn({ intentId: id, paymentId, reason, detail }, "a payout is held")
  await ctx.db
    .updateTable("intents")
    .set({
      state: "held",
      held_reason: reason,
      held_detail: detail,
      // A wallet without gas, or a budget that is spent, says nothing of the intent.
      checks: reason === "low_gas" || reason === "gas_budget" ? checks : checks + 1,
      run_at: new Date(now.getTime() + waitMs),
      updated_at: now,
    })
    .where("id", "=", id)
    .where("state", "in", ["queued", "held"])
    .execute()
}

/** Takes the promise back of intents whose money a reorg took, until it is there again; answers their ids. */
async function holdShort(ctx: Context, due: Row<"intents">[]): Promise<Set<string>> {
  const ids = sql.join(due.map(({ id }) => sql`${id}::uuid`))
  const { rows } = await sql<{ id: string }>`update intents i set state = 'held', held_reason = 'short',
      held_detail = ${SHORT}, reserved = false, run_at = ${new Date(ctx.now().getTime() + WAIT_MS)}, updated_at = ${ctx.now()}
    where i.id in (${ids}) and i.state in ('queued', 'held') and not has_money(i) returning i.id`.execute(ctx.db)
  for (const { id } of rows) ctx.log.warn({ intentId: id, reason: "short" }, "a payout is held")
  return new Set(rows.map(({ id }) => id))
}

async function putOff(ctx: Context, { id }: Row<"intents">, ms: number): Promise<void> {
  await ctx.db
    .updateTable("intents")
    .set({ run_at: new Date(ctx.now().getTime() + ms) })
    .where("id", "=", id)
    .where("state", "in", ["queued", "held"])
    .execute()
}

/** Signs under the wallet's lock; call it inside a transaction. What is signed is written, or none of it happened. */
async function assign(
  ctx: Context,
  { id: walletId }: Row<"wallets">,
  signer: Signer,
  vetted: readonly string[],
  fees: Fees,
  { count, balance, dataFee }: { count: bigint; balance: bigint; dataFee: bigint },
): Promise<{ assigned: number; putOff: number; refused: Row<"intents">[] }> {
  const wallet = await lockWallet(ctx, walletId)
  const nothing = { assigned: 0, putOff: 0, refused: [] }
  if (wallet.status !== "active") return nothing
  // The count was asked before this lock, and next_nonce only grows: more than signed was not signed by us. What waits to
  // be mined counts: a database that lost its last seconds may have sent it, for what seems to be unpaid here.
  if (count > wallet.next_nonce) {
    ctx.log.error({ count: `${count}`, next: `${wallet.next_nonce}` }, "the chain tells more nonces than were signed")
    return nothing
  }
  const flying = await inFlight(ctx, wallet)
  const rows = await ctx.db
    .selectFrom("intents")
    .selectAll()
    .where("id", "in", vetted)
    .where("state", "in", ["queued", "held"])
    .where(isSignable(ctx))
    .where(sql<boolean>`has_money(intents)`)
    .orderBy("created_at")
    .orderBy("id")
    .limit(Math.max(0, IN_FLIGHT - flying.n))
    .forNoKeyUpdate()
    .skipLocked()
    .execute()
  const budgets = await lockBudgets(
    ctx,
    wallet.lane,
    rows.map(row => row.merchant_id),
    dataFee,
  )
  const totals = await lockTotals(ctx, wallet, dataFee)
  // What came between the trial run and this lock; the next turn cancels it.
  const needless = wallet.lane === "relay" ? await outpaid(ctx, rows) : undefined
  let { next_nonce: nonce } = wallet
  let wei = balance - flying.wei - flying.parts * dataFee
  const attempts: Insertable<Database["attempts"]>[] = []
  const refused: Row<"intents">[] = []
  for (const row of rows) {
    if (needless?.has(row.id)) continue
    const gas = gasOf(row)
    const most = gas * fees.maxFee + dataParts(row.data) * dataFee
    if (wei < most) {
      await hold(ctx, row, "low_gas", `the ${wallet.lane} wallet has too little for gas`, WAIT_MS)
      continue
    }
    if (!totals.holds(row, most)) {
      if (row.payer) refused.push(row)
      continue
    }
    if (!budgets.take(row.merchant_id, most, isSmall(ctx, row))) {
      // Nobody can be made to wait for a day at a checkout.
      if (row.payer) refused.push(row)
      else await hold(ctx, row, "gas_budget", "the merchant's gas budget of a day is spent", WAIT_MS)
      continue
    }
    totals.take(row, most)
    wei -= most
    attempts.push(await signAttempt(signer, { ...row, wallet: wallet.address, nonce }, { n: 0, gas, ...fees }))
    nonce++
  }
  const putOff = rows.length - attempts.length
  if (attempts.length === 0) return { assigned: 0, putOff, refused }
  const given = attempts.map(each => sql`(${each.intent_id}::uuid, ${each.nonce}::bigint)`)
  await sql`update intents i set state = 'assigned', held_reason = null, held_detail = null, wallet = ${wallet.address},
      nonce = given.nonce, updated_at = ${ctx.now()}
    from (values ${sql.join(given)}) as given (id, nonce) where i.id = given.id`.execute(ctx.db)
  await ctx.db.insertInto("attempts").values(attempts).execute()
  await ctx.db.updateTable("wallets").set({ next_nonce: nonce }).where("id", "=", wallet.id).execute()
  return { assigned: attempts.length, putOff, refused }
}

/** The wallet's row, held until the transaction ends: whoever signs for it holds it. */
export const lockWallet = (ctx: Context, id: number): Promise<Row<"wallets">> =>
  ctx.db.selectFrom("wallets").selectAll().where("id", "=", id).forNoKeyUpdate().executeTakeFirstOrThrow()

/**
 * An intent signed at its nonce, to be written in the transaction that holds the wallet. Throws when what came back is not
 * what was asked for, or not the wallet's signature.
 */
export async function signAttempt(
  signer: Signer,
  intent: Pick<Row<"intents">, "id" | "chain_id" | "to_address" | "data" | "value"> & {
    wallet: Address
    nonce: bigint
  },
  { n, gas, maxFee, tip }: Fees & { n: number; gas: bigint },
): Promise<Insertable<Database["attempts"]>> {
  const { id, chain_id: chainId, wallet, nonce, to_address: to, data, value } = intent
  const asked: UnsignedTransaction = {
    chainId,
    nonce: nonceNumber(nonce),
    to,
    data,
    value,
    gas,
    maxFeePerGas: maxFee,
    maxPriorityFeePerGas: tip,
  }
  const raw = await signer.sign(asked)
  await assertSigned(raw, wallet, asked)
  const hash = keccak256(raw) as Hash
  return { intent_id: id, chain_id: chainId, wallet, nonce, n, raw, hash, gas, max_fee: maxFee, tip }
}

/** A nonce is far below 2⁵³; viem wants a number. */
const nonceNumber = (nonce: bigint): number => Number.parseInt(nonce.toString(), 10)

async function assertSigned(raw: Hex, wallet: Address, asked: UnsignedTransaction): Promise<void> {
  const serializedTransaction = raw as `0x02${string}`
  const signer = (await recoverTransactionAddress({ serializedTransaction })).toLowerCase()
  if (signer !== wallet) throw new Error(`the signer signed as ${signer}, not as the wallet ${wallet}`)
  const said = parseTransaction(serializedTransaction) as Partial<UnsignedTransaction>
  // Zeros are left out of a transaction's bytes.
  const differs = (Object.keys(asked) as (keyof UnsignedTransaction)[]).find(
    name => quantity(said[name]) !== quantity(asked[name]),
  )
  if (differs) throw new Error(`the signer signed another ${differs} than it was asked for`)
}

/** Any field of a transaction as a number; what is empty is 0. */
const quantity = (field: Hex | number | bigint | undefined): bigint =>
  field === undefined || field === "0x" ? 0n : BigInt(field)
