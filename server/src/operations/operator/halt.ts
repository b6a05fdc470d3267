/** Halts a wallet manually, and resumes it when that is safe. */
import { lockWallet, USED_BEFORE } from "../../ledger/txmanager/lock-wallet.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import type { Context } from "../../platform/context.ts"
import { chainToAsk, findWallet, networkNamed, refused, type WalletNamed } from "./find-wallet.ts"
import { byHand, type OperatorOrder } from "./log-actions.ts"
import { listed, observeWallet, unexplained, unknownNonces } from "./observe-wallet.ts"

/**
 * Stops signing and sending for a wallet immediately. Transactions that were already sent may still be mined, and are
 * followed.
 */
export async function halt(
  ctx: Context,
  asked: WalletNamed & OperatorOrder & { reason: string },
): Promise<{ said: string }> {
  const { id } = await findWallet(ctx, asked)
  const { wallet } = await byHand(ctx, asked, async ctx => {
    const wallet = await lockWallet(ctx, id)
    if (wallet.status === "halted") throw refused(`The wallet is already halted: ${wallet.halted_reason}`)
    const after = { status: "halted", halted_reason: `by ${asked.by}: ${asked.reason}` } as const
    await ctx.db.updateTable("wallets").set(after).where("id", "=", id).execute()
    return {
      action: "halt" as const,
      chainId: wallet.chain_id,
      wallet: wallet.address,
      before: { status: wallet.status },
      after,
    }
  })
  return {
    said: `The wallet ${checksummed(wallet)} is halted. Nothing is signed or sent for it until you run \`sluice wallet resume\`.`,
  }
}

/** The statements that an operator confirms, and for which the operator is responsible, when resuming a wallet. */
interface Statements {
  /**
   * The operator has manually compared everything that has left the deposits so far. The comparison continues from the
   * current finalized block.
   */
  booksCompared?: boolean | undefined
  /**
   * Of what the wallet sent before this database knew it, nothing except adopted transactions paid a payout that is
   * pending here.
   */
  nothingPaid?: boolean | undefined
}

/**
 * Lets a halted wallet sign and send again. Refuses, and says what to do, as long as anything on the chain is
 * unexplained.
 */
export async function resume(
  ctx: Context,
  asked: WalletNamed & OperatorOrder & Statements & { reason: string },
): Promise<{ said: string }> {
  const seen = await findWallet(ctx, asked)
  const chain = chainToAsk(ctx, seen.chain_id)
  if (seen.status === "active") throw refused("The wallet is not halted: there is nothing to resume.")
  const observed = await observeWallet(ctx, chain, seen)
  const faults = await unexplained(ctx, seen, observed)
  if (faults.length > 0) throw refused(`The wallet stays halted. ${faults.join(" ")}`)
  const before = seen.halted_reason === USED_BEFORE ? await unknownNonces(ctx, seen, 0n, seen.next_nonce) : []
  if (before.length > 0 && !asked.nothingPaid)
    throw refused(
      "The wallet stays halted. It sent transactions before this database knew the wallet, and payouts are waiting. If a backup was " +
        `restored, run \`sluice wallet adopt HASH\` for each transaction that paid out (the nonces ${listed(before)} are unknown). ` +
        "If none of the other transactions paid a waiting payout, resume with --nothing-paid.",
    )
  const { wallet } = await byHand(ctx, asked, async ctx => {
    const wallet = await lockWallet(ctx, seen.id)
    if (
      wallet.status === "active" ||
      wallet.next_nonce !== seen.next_nonce ||
      wallet.halted_reason !== seen.halted_reason
    )
      throw refused("The wallet has just changed. Check it again with `sluice wallet show`.")
    const checked_number = asked.booksCompared ? observed.quorum.finalized : wallet.checked_number
    const after = { status: "active", halted_reason: null, suspect_at: null, check_at: null, checked_number } as const
    // A comparison in progress is dropped, because it covers blocks that the operator has already compared.
    const begun = asked.booksCompared ? { checked_to: null, checked_position: null } : {}
    await ctx.db
      .updateTable("wallets")
      .set({ ...after, ...begun, run_at: ctx.now() })
      .where("id", "=", wallet.id)
      .execute()
    const { status, halted_reason, suspect_at, check_at, checked_number: compared } = wallet
    return {
      action: "resume" as const,
      chainId: wallet.chain_id,
      wallet: wallet.address,
      before: { status, halted_reason, suspect_at, check_at, checked_number: compared },
      after: { ...after, nothing_paid: asked.nothingPaid ?? false },
    }
  })
  const books = asked.booksCompared
    ? ` The books are compared from block ${observed.quorum.finalized + 1n} on.`
    : " The books are compared again from where the comparison stopped, and the wallet is halted again if they still don't match."
  const said = `The wallet ${checksummed(wallet)} on ${networkNamed(ctx, seen.chain_id)} is resumed.`
  // The storage wallet pays 0G, and no deposit's books show that.
  return { said: seen.lane === "storage" ? said : `${said}${books}` }
}
