/** After the chaos: the books are the chain's, to the unit, and one row altered by hand is found and named. */
import { sql } from "kysely"
import { erc20Abi } from "viem"
import { reconcileRound } from "../../src/ledger/reconciliation/reconcile.ts"
import { ensureCursor } from "../../src/ledger/scanner/scan-round.ts"
import type { SellingContext } from "../../src/ledger/settlement/sellable.ts"
import { verifyRound } from "../../src/ledger/settlement/verify-payments.ts"
import type { Address } from "../../src/platform/chain/hex.ts"
import type { Network } from "../../src/platform/chain/networks.ts"
import { inTransaction } from "../../src/platform/context.ts"
import type { Anvil } from "../anvil.ts"
import { alterations, byHand } from "../books.ts"
import { wrongFigures } from "./figures.ts"

class Back extends Error {}

/** SQLSTATE check_violation. */
const REFUSED = "23514"

/** What does not agree, in words; with `alter`, `one` alteration of each table or `all` are tried, and each that is not found. */
export async function unreconciled(
  ctx: SellingContext,
  anvil: Anvil,
  wallet: Address,
  alter: "one" | "all",
): Promise<{ found: string[]; altered: number }> {
  const { client } = anvil
  const network = ctx.chain.networks[0] as Network
  const found: string[] = []
  await client.mine({ blocks: 12 })
  await ensureCursor(ctx, network)
  for (let i = 0; i < 3; i++) {
    await ctx.db.updateTable("cursors").set({ run_at: ctx.now() }).execute()
    await verifyRound(ctx, network)
  }
  const books = await sql<{ address: Address; left: bigint }>`
    select d.address, coalesce((select sum(case b.direction when 'in' then b.amount else -b.amount end) from books b
      where b.deposit_id = d.id), 0) as left from deposits d`.execute(ctx.db)
  for (const { address, left } of books.rows) {
    const args = [address] as const
    const held = await client.readContract({
      address: network.token.address,
      abi: erc20Abi,
      functionName: "balanceOf",
      args,
    })
    if (held !== left) found.push(`the deposit ${address} holds ${held}, and its books say ${left}`)
  }
  found.push(...(await wrongFigures(ctx, anvil)))
  const words = await reconcile(ctx, network, wallet)
  if (words) found.push(`the reconciliation halts: ${words}`)

  let altered = 0
  const tables = new Set<string>()
  for (const { table, what, statement } of alterations) {
    if (alter === "one" && tables.has(table)) continue
    tables.add(table)
    let said: string | null | undefined
    await inTransaction(ctx, async ({ db }) => {
      if ((await byHand(db, statement)) === 1) said = await reconcile({ ...ctx, db }, network, wallet)
      throw new Back()
    }).catch(error => {
      if (error instanceof Back) return
      if ((error as { code?: unknown }).code !== REFUSED) throw error
      // Nobody can write it: promised more than came in, for one.
      said = "the database refuses it"
    })
    // Tables that the play leaves empty have nothing to alter.
    if (said === undefined) continue
    altered++
    if (said === null) found.push(`a manual change was not found: ${table}, ${what}`)
  }
  return { found, altered }
}

/** The hour and the whole pass; answers why the wallet is halted. */
async function reconcile(ctx: SellingContext, network: Network, wallet: Address): Promise<string | null> {
  const row = () => ctx.db.selectFrom("wallets").select("halted_reason").executeTakeFirstOrThrow()
  await ctx.db.deleteFrom("reconciliations").execute()
  for (;;) {
    await reconcileRound(ctx, network, wallet)
    const { halted_reason: reason } = await row()
    const at = await ctx.db.selectFrom("reconciliations").selectAll().executeTakeFirstOrThrow()
    if (reason !== null) return reason
    if (at.deposit_position === null && at.transfer_position === null && at.payout_position === null) return null
    await ctx.db.updateTable("reconciliations").set({ run_at: ctx.now() }).execute()
  }
}
