/**
 * Defines findings, and how operators learn about them: an unproven difference raises an alarm, and a proven one halts
 * wallets.
 */
import type { Address } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { Context } from "../../platform/context.ts"
import type { LaneName } from "../../platform/db/payout-kinds.ts"
import type { Row } from "../../platform/db/schema.ts"
import { payoutAlarms } from "../../platform/metrics.ts"
import { haltWallet } from "../txmanager/lock-wallet.ts"

/** A row that contradicts the chain or another row. */
export interface Finding {
  table: string
  id: string
  /** What the row says, and what the chain or the other row says. */
  words: string
}

/** A comparison's result: agreement, a proven finding, or a description of what could not be proven. */
export interface Compared {
  finding?: Finding
  /** Too few endpoints responded or agreed. Such a result raises an alarm, and the comparison is repeated. */
  unproven?: string
}

/** Logs and counts an unproven difference, without halting anything. */
export function reportUnproven(
  ctx: Context,
  network: Network,
  words: string,
  facts: Record<string, string> = {},
  wallet: LaneName = "payout",
): void {
  ctx.log.error({ network: network.name, ...facts }, `${words} (not proven; it will be compared again)`)
  payoutAlarms.inc({ network: network.name, wallet, reason: "books" })
}

/** Halts wallets because the books disagree with the chain. */
export async function haltWallets(
  ctx: Context,
  network: Network,
  wallets: readonly Row<"wallets">[],
  words: string,
): Promise<void> {
  for (const wallet of wallets) await haltWallet(ctx, network, wallet, "books", words)
}

/**
 * Halts all of the network's payout wallets, including those of earlier factories, because an outflow is recorded once,
 * and no later comparison reports it.
 */
export async function haltPayoutWallets(ctx: Context, network: Network, words: string): Promise<void> {
  const wallets = ctx.db.selectFrom("wallets").selectAll().where("chain_id", "=", network.chainId)
  await haltWallets(ctx, network, await wallets.where("lane", "=", "payout").execute(), words)
}

/**
 * Halts one relay wallet of the network, because escrows that only this wallet may call differ from what its calls
 * wrote.
 */
export async function haltRelayWallet(ctx: Context, network: Network, address: Address, words: string): Promise<void> {
  const wallets = ctx.db.selectFrom("wallets").selectAll().where("chain_id", "=", network.chainId)
  const own = wallets.where("lane", "=", "relay").where("address", "=", address)
  await haltWallets(ctx, network, await own.execute(), words)
}
