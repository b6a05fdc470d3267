/**
 * Uses up a nonce that can't be mined, with one more attempt: a transfer of zero from the wallet to itself. One of
 * the attempts is mined. If that is the payment, nothing else is needed. If it is the empty one, a share, sweep or
 * return is created again once the block is final. A buyer's relay or an escrow call has failed in that case.
 */
import { sql } from "kysely"
import { lockWallet } from "../../ledger/txmanager/lock-wallet.ts"
import { nextAttempt } from "../../ledger/txmanager/send-attempts.ts"
import { transactionOf, type UnsignedRow } from "../../ledger/txmanager/unsigned-attempt.ts"
import { raisedFees } from "../../platform/chain/fees.ts"
import { SignerError, signTransaction } from "../../platform/chain/signer.ts"
import { readWalletState, type WalletState } from "../../platform/chain/wallet-state.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { chainToAsk, findWallet, refused, signerOf, type WalletNamed } from "./find-wallet.ts"
import { byHand, type OperatorOrder } from "./log-actions.ts"

/** The newest attempt with a nonce, and the attempt that will replace it. */
interface Replacement {
  last: Row<"transaction_attempts"> & Pick<Row<"payouts">, "kind">
  again: UnsignedRow
}

/**
 * Signs and writes the empty replacement for the lowest unmined nonce; the engine sends it. `maxFee` is in wei, and
 * may exceed `PAYOUT_MAX_FEE`. The replacement is signed before it is written, because the engine signs no stored row
 * above that setting, whoever wrote the row. Nothing changes if the wallet's signer does not sign.
 */
export async function unstick(
  ctx: Context,
  asked: WalletNamed & OperatorOrder & { nonce: bigint; maxFee?: bigint | undefined; reason: string },
): Promise<{ said: string; hash: string }> {
  const named = await findWallet(ctx, asked)
  const chain = chainToAsk(ctx, named.chain_id)
  const signer = signerOf(ctx, named)
  const state = await readWalletState(chain, named.address, ctx.signal)
  const most = { nonce: asked.nonce, cap: asked.maxFee ?? ctx.settings.payoutMaxFee }
  const { again } = await replacement(ctx, named, state, most)
  // The transaction makes no call, so it needs no payout.
  const call = { to_address: named.address, data: "0x" as const, value: 0n }
  const signed = await signTransaction(signer, transactionOf(again, call), ctx.signal).catch(error => {
    if (!(error instanceof SignerError)) throw error
    throw refused(`The wallet's signer ${error.message}. Nothing was changed: try again when it signs.`)
  })
  const { last } = await byHand(ctx, asked, async ctx => {
    const wallet = await lockWallet(ctx, named.id)
    const now = await replacement(ctx, wallet, state, most)
    if (now.again.n !== again.n || now.again.unsigned_hash !== again.unsigned_hash)
      throw refused(`The nonce ${asked.nonce} now has another transaction. Try again.`)
    const row = { ...again, ...signed, signed_at: sql<Date>`clock_timestamp()` }
    await ctx.db.insertInto("transaction_attempts").values(row).execute()
    const { nonce, n, hash, max_fee, tip, empty } = now.last
    return {
      action: "unstick" as const,
      chainId: wallet.chain_id,
      wallet: wallet.address,
      payoutId: now.last.payout_id,
      before: { nonce, n, hash, max_fee, tip, empty },
      after: { nonce, n: again.n, max_fee: again.max_fee, tip: again.tip, empty: true },
      last: now.last,
    }
  })
  return {
    said:
      `The transaction with the nonce ${asked.nonce} is replaced by an empty transfer, ${signed.hash}, for at most ${gwei(again.max_fee)} gwei per unit of gas. When the transfer is ` +
      `final, ${consequences[last.kind]} If the replaced transaction is mined after all, it counts, and nothing is created again.`,
    hash: signed.hash,
  }
}

/**
 * Plans the empty transfer that replaces a nonce, at no more than `cap` wei per unit of gas. Refuses if that is
 * impossible or not needed.
 */
async function replacement(
  ctx: TxContext,
  wallet: Row<"wallets">,
  { latest, market }: WalletState,
  { nonce, cap }: { nonce: bigint; cap: bigint },
): Promise<Replacement> {
  if (latest === undefined || market === undefined)
    throw refused("No endpoint reports the wallet's nonce and the network's fees. Try again.")
  if (wallet.status !== "active")
    throw refused("The wallet is halted, so nothing would be sent. Resume it first: `sluice wallet resume`.")
  const last = await lowestUnmined(ctx, wallet)
  if (!last) throw refused("The wallet has nothing in flight: no nonce is stuck.")
  if (last.nonce !== nonce) throw refused(`Only the lowest unmined nonce, ${last.nonce}, can be replaced.`)
  if (latest > last.nonce)
    throw refused(
      `The nonce ${last.nonce} has been used on the chain in the meantime. It will be confirmed in a moment: check again.`,
    )
  const fees = raisedFees({ maxFee: last.max_fee, tip: last.tip }, market, cap)
  if (!fees)
    throw refused(
      `A replacement must pay an eighth more than ${gwei(last.max_fee)} gwei per unit of gas, but the maximum is ` +
        `${gwei(cap)}. Raise it with --max-fee GWEI.`,
    )
  return { last, again: await nextAttempt(ctx, wallet, last, { ...fees, empty: true }) }
}

const AGAIN = "the replaced transaction's payout is created again."
const RELAYED =
  "nothing was moved, and nothing is created again: anyone can still execute the authorization until it ends, and its payer can " +
  "pay again then."
const CALLED =
  "the call has failed: an automatic capture, or a due void, is repeated, and the merchant can request any other call again."

/** What follows, by the kind of payout, if the empty transfer is mined. */
const consequences: Record<Row<"payouts">["kind"], string> = {
  share: AGAIN,
  sweep: AGAIN,
  return: AGAIN,
  authorize: RELAYED,
  settle: RELAYED,
  batch:
    "none of its calls moved anything, and nothing is created again: anyone can still execute their authorizations until they end, " +
    "and their payers can pay again then.",
  reserve: "nothing is reserved, and nothing is created again: its payer can sign again.",
  capture: CALLED,
  void: CALLED,
  refund: "the refund has failed: the merchant can request another.",
  anchor: "nothing moves, and another transaction writes the receipts' root to the chain.",
  store: "nothing is paid, and another call stores the same receipts on 0G.",
}

/** The newest attempt of the lowest nonce that is not yet known to be in a block. */
async function lowestUnmined(ctx: TxContext, wallet: Row<"wallets">): Promise<Replacement["last"] | undefined> {
  const { rows } = await sql<Replacement["last"]>`
    select a.*, i.kind from payouts i join transaction_attempts a on a.payout_id = i.id
    where i.chain_id = ${wallet.chain_id} and i.wallet = ${wallet.address} and i.state = 'assigned'
    order by a.nonce, a.n desc limit 1`.execute(ctx.db)
  return rows[0]
}

/** Formats wei as gwei, exactly. */
export const gwei = (wei: bigint): string => decimal(wei, 9)

/** Formats wei as ether, exactly. */
export const ether = (wei: bigint): string => decimal(wei, 18)

function decimal(wei: bigint, digits: number): string {
  const text = `${wei}`.padStart(digits + 1, "0")
  const rest = text.slice(-digits).replace(/0+$/, "")
  return `${text.slice(0, -digits)}${rest && "."}${rest}`
}
