/** What a database remembers of the installation it was made for, so that it is never opened as another. */
import type { Network } from "../chain/networks.ts"
import type { Mode } from "../settings.ts"
import type { Db } from "./open.ts"

/**
 * Claims an empty database for this mode and these chains, or throws when it belongs to another mode, or when a network
 * is another chain than it was (a sandbox whose chain was lost, an endpoint of another network).
 */
export async function claimInstallation(db: Db, mode: Mode, networks: readonly Network[]): Promise<void> {
  const before = await remember(db, "mode", mode)
  if (before !== mode)
    throw new Error(
      `This database belongs to an installation with MODE=${before}; MODE is ${mode}. Use another DATA_DIR or DATABASE_URL.`,
    )
  for (const { name, chainId, genesisHash } of networks)
    if ((await remember(db, `genesis ${chainId}`, genesisHash)) !== genesisHash) {
      const cure =
        mode === "sandbox"
          ? "Start with --reset to begin anew."
          : `Check RPC_${name.toUpperCase().replaceAll("-", "_")}.`
      throw new Error(`The chain of ${name} is not the one this database knows: its genesis block differs. ${cure}`)
    }
}

async function remember(db: Db, key: string, value: string): Promise<string> {
  await db
    .insertInto("installation")
    .values({ key, value })
    .onConflict(conflict => conflict.doNothing())
    .execute()
  return (await db.selectFrom("installation").select("value").where("key", "=", key).executeTakeFirstOrThrow()).value
}
