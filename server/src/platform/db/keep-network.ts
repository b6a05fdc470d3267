/**
 * Stores what the last start of an API process found about each network, so that the next one can start while no
 * endpoint answers. What is stored is valid only for the same settings.
 */
import type { Facts } from "../chain/check-network.ts"
import type { Network, NetworkSettings } from "../chain/networks.ts"
import type { Db } from "./open.ts"

/** The settings of a network, and the wallets that were compared with its contracts. */
export interface Wanted {
  network: NetworkSettings
  payoutWallet: string | undefined
  relayWallet: string | undefined
}

interface Kept {
  settings: string
  facts: Facts
  hasEscrow: boolean
}

const keyOf = ({ network }: Wanted): string => `network ${network.chainId}`

/** Endpoints and confirmations are left out: they may change, because neither was compared with the chain. */
function textOf({ network, payoutWallet, relayWallet }: Wanted): string {
  const { name, chainId, token, depositFactory, escrow, sanctionsOracle } = network
  return JSON.stringify([name, chainId, token, depositFactory, escrow, sanctionsOracle, payoutWallet, relayWallet])
}

/** Stores the findings of a start. */
export async function keepNetwork(db: Db, wanted: Wanted, { token, genesisHash, escrow }: Network): Promise<void> {
  const kept: Kept = { settings: textOf(wanted), facts: { token, genesisHash }, hasEscrow: escrow !== undefined }
  const value = JSON.stringify(kept)
  await db
    .insertInto("installation")
    .values({ key: keyOf(wanted), value })
    .onConflict(conflict => conflict.column("key").doUpdateSet({ value }))
    .execute()
}

/** The stored facts for these settings; undefined if there are none. */
export async function keptNetwork(db: Db, wanted: Wanted): Promise<Omit<Kept, "settings"> | undefined> {
  const row = await db.selectFrom("installation").select("value").where("key", "=", keyOf(wanted)).executeTakeFirst()
  const kept = row && (JSON.parse(row.value) as Kept)
  return kept?.settings === textOf(wanted) ? kept : undefined
}
