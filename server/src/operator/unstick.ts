/**
 * Uses up a nonce that can't be mined, with a transfer of zero from the wallet to itself as one more attempt of the
 * nonce. One of the attempts is mined. If it is the payment, nothing else is needed; if it is the empty one, a share, sweep or return
 * is created again once its block is final, and a buyer's relay or a call of an escrow has failed.
 */
import { sql } from "kysely"
import { raisedFees } from "../chain/fees.ts"
import { readWalletState } from "../chain/wallet-state.ts"
import type { Context, TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { attemptAgain } from "../payouts/send-attempts.ts"
import { signAttempts } from "../payouts/sign-attempts.ts"
import { lockWallet } from "../payouts/wallet-row.ts"
import { type Asked, byHand } from "./actions.ts"
import { findWallet, refused, servedNetwork, signerOf, type WalletNamed } from "./lookup.ts"

/**
 * Writes and signs the empty replacement of the lowest unmined nonce; the engine sends it, and signs it where that fails here. `maxFee` in wei may exceed
 * `PAYOUT_MAX_FEE`.
 */
export async function unstick(
  ctx: Context,
  asked: WalletNamed & Asked & { nonce: bigint; maxFee?: bigint | undefined; reason: string },
): Promise<{ said: string; hash: string | null }> {
  const named = await findWallet(ctx, asked)
  const network = servedNetwork(ctx, named.chain_id)
  const signer = signerOf(ctx, named)
  const state = await readWalletState(network, named.address, ctx.signal)
  const { latest, market } = state
  if (latest === undefined || market === undefined)
    throw refused("No endpoint reports the wallet's nonce and the network's fees. Try again.")
  const { id, terms, kind } = await byHand(ctx, asked, async ctx => {
    const wallet = await lockWallet(ctx, named.id)
    if (wallet.status !== "active")
      throw refused("The wallet is halted, so nothing would be sent. Resume it first: `sluice wallet resume`.")
    const last = await lowestUnmined(ctx, wallet)
    if (!last) throw refused("The wallet has nothing in flight: no nonce is stuck.")
    if (last.nonce !== asked.nonce)
      throw refused(`Only the lowest nonce that is not mined can be replaced, which is ${last.nonce}.`)
    if (latest > last.nonce)
      throw refused(
        `The nonce ${last.nonce} has meanwhile been used on the chain. It will be confirmed in a moment: check again.`,
      )
    const cap = asked.maxFee ?? ctx.settings.payoutMaxFee
    const fees = raisedFees({ maxFee: last.max_fee, tip: last.tip }, market, cap)
    if (!fees)
      throw refused(
        `A replacement must pay an eighth more than ${gwei(last.max_fee)} gwei for a unit of gas, and the most is ` +
          `${gwei(cap)}. Give more with --max-fee GWEI.`,
      )
    const again = await attemptAgain(ctx, wallet, last, { ...fees, empty: true })
    const fees_text = { max_fee: fees.maxFee, tip: fees.tip }
    return {
      action: "unstick" as const,
      chainId: wallet.chain_id,
      wallet: wallet.address,
      payoutId: last.payout_id,
      before: {
        nonce: last.nonce,
        n: last.n,
        hash: last.hash,
        max_fee: last.max_fee,
        tip: last.tip,
        empty: last.empty,
      },
      after: { nonce: last.nonce, n: again.n, ...fees_text, empty: true },
      id: again.id,
      kind: last.kind,
      terms: `${gwei(fees.maxFee)} gwei`,
    }
  })
  await signAttempts(ctx, network, named, signer, state)
  const { hash } = await ctx.db
    .selectFrom("transaction_attempts")
    .select("hash")
    .where("id", "=", id)
    .executeTakeFirstOrThrow()
  return {
    said:
      `The nonce ${asked.nonce} is replaced by an empty transfer, ${hash ?? "which the wallet's signer has yet to sign"}, for at most ${terms} a unit of gas. When that is ` +
      `final, ${consequences[kind]} Where the transaction that it replaces is mined after all, it counts, and nothing is created again.`,
    hash,
  }
}

const AGAIN = "its payout is created again."
const RELAYED =
  "nothing was moved, and nothing is created again: anyone can still carry the authorization out until it ends, and its payer may " +
  "pay again then."
const CALLED =
  "the call has failed: an automatic capture, or a void whose time has come, is made again, and its merchant may ask for any other again."

/** What follows where the empty transfer is mined, by the kind of payout. */
const consequences: Record<Row<"payouts">["kind"], string> = {
  share: AGAIN,
  sweep: AGAIN,
  return: AGAIN,
  authorize: RELAYED,
  settle: RELAYED,
  reserve: "nothing is reserved, and nothing is created again: its payer may sign again.",
  capture: CALLED,
  void: CALLED,
  refund: "the refund has failed: its merchant may ask for another.",
}

/** The newest attempt of the lowest nonce that is not known to be in a block. */
async function lowestUnmined(
  ctx: TxContext,
  wallet: Row<"wallets">,
): Promise<(Row<"transaction_attempts"> & Pick<Row<"payouts">, "kind">) | undefined> {
  const { rows } = await sql<Row<"transaction_attempts"> & Pick<Row<"payouts">, "kind">>`
    select a.*, i.kind from payouts i join transaction_attempts a on a.payout_id = i.id
    where i.chain_id = ${wallet.chain_id} and i.wallet = ${wallet.address} and i.state = 'assigned'
    order by a.nonce, a.n desc limit 1`.execute(ctx.db)
  return rows[0]
}

/** Wei as gwei, exactly. */
export const gwei = (wei: bigint): string => decimal(wei, 9)

/** Wei as ether, exactly. */
export const ether = (wei: bigint): string => decimal(wei, 18)

function decimal(wei: bigint, digits: number): string {
  const text = `${wei}`.padStart(digits + 1, "0")
  const rest = text.slice(-digits).replace(/0+$/, "")
  return `${text.slice(0, -digits)}${rest && "."}${rest}`
}
