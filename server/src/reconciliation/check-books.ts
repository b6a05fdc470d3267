/**
 * Compares the logs of new finalized blocks with the rows, hourly, for the payout wallet. What nobody meant, what was meant
 * once and left twice, what is called final and never left, what a row tells otherwise: each halts the wallet.
 */

import type { Network } from "../chain/networks.ts"
import type { Panel } from "../chain/quorum.ts"
import type { Context } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { payoutAlarms } from "../metrics.ts"
import { haltWallet } from "../payouts/confirm-intents.ts"
import { compareLogs } from "./compare-logs.ts"

const HOUR_MS = 3_600_000
/** After a look that did not get on: a node must not be asked the same in every turn. */
const RETRY_MS = 60_000
const WINDOWS_A_CHECK = 50

/** Looks when its hour has come; goes on from the last block that was compared. */
export async function checkBooks(ctx: Context, network: Network, wallet: Row<"wallets">, panel: Panel): Promise<void> {
  const now = ctx.now()
  if (wallet.check_at && wallet.check_at > now) return
  let from = wallet.checked_number === null ? panel.finalized : wallet.checked_number + 1n
  let nextMs: number | undefined
  const deposits = await ctx.db
    .selectFrom("deposits")
    .select(["id", "address", "owner", "open_after_s", "merchant_id"])
    .where("chain_id", "=", network.chainId)
    .execute()
  for (let windows = 0; from <= panel.finalized && windows < WINDOWS_A_CHECK; windows++) {
    const range = network.endpoints.reduce((low, { logRange }) => (logRange < low ? logRange : low), 10_000n)
    const end = from + range - 1n
    const to = end < panel.finalized ? end : panel.finalized
    const { finding, untold } = await compareLogs(ctx, network, panel, deposits, { from, to })
    if (finding) return await haltAll(ctx, network, finding.words)
    if (untold !== undefined) {
      ctx.log.error({ network: network.name, from: `${from}` }, `${untold} (not proven; looked at again)`)
      payoutAlarms.inc({ network: network.name, wallet: wallet.lane, reason: "books" })
      nextMs = RETRY_MS
      break
    }
    await ctx.db.updateTable("wallets").set({ checked_number: to }).where("id", "=", wallet.id).execute()
    from = to + 1n
  }
  nextMs ??= from > panel.finalized ? HOUR_MS : 0
  await ctx.db
    .updateTable("wallets")
    .set({ check_at: new Date(now.getTime() + nextMs) })
    .where("id", "=", wallet.id)
    .execute()
}

/** Halts each payout wallet of the network, that of a factory of before too: what left is noted now, and no other sees it anew. */
async function haltAll(ctx: Context, network: Network, words: string): Promise<void> {
  const wallets = ctx.db.selectFrom("wallets").selectAll().where("chain_id", "=", network.chainId)
  for (const each of await wallets.where("lane", "=", "payout").execute())
    await haltWallet(ctx, network, each, "books", words)
}
