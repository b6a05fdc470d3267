/** Records which installation a database was created for, so that no other installation ever opens it. */
import { randomUUID } from "node:crypto"
import type { Mode } from "../chain/network-facts.ts"
import type { Network } from "../chain/networks.ts"
import type { Db } from "./open.ts"

/**
 * Claims an empty database for this mode and these chains. Returns the installation's id, which is created once. The id
 * identifies the installation's data in a shared place, such as a Redis database. Throws if the database belongs to
 * another mode, or if a network's chain or its token's decimals differ from the recorded ones. A chain differs if a
 * sandbox lost it, or an endpoint serves another network.
 */
export async function claimInstallation(db: Db, mode: Mode, networks: readonly Network[]): Promise<string> {
  await remember(db, "mode", mode)
  await assertInstallation(db, mode)
  for (const { name, chainId, genesisHash, token } of networks) {
    if ((await remember(db, `genesis ${chainId}`, genesisHash)) !== genesisHash) {
      const cure =
        mode === "sandbox"
          ? "Start with --reset to create a new sandbox."
          : `Check RPC_${name.toUpperCase().replaceAll("-", "_")}.`
      throw new Error(
        `The chain of ${name} is not the one that this database knows: its genesis block differs. ${cure}`,
      )
    }
    // With wrong decimals everything would be sold for nothing. If one of two endpoints does not respond, the other
    // reports the decimals alone.
    const known = await remember(db, `decimals ${chainId} ${token.address}`, `${token.decimals}`)
    if (known !== `${token.decimals}`)
      throw new Error(
        `${name}: the token ${token.address} had ${known} decimals, and now an endpoint reports ${token.decimals}. Remove the wrong endpoint from RPC_${name.toUpperCase().replaceAll("-", "_")}.`,
      )
  }
  return await remember(db, "id", randomUUID())
}

/** Throws if the database is not claimed yet, or belongs to another mode. */
export async function assertInstallation(db: Db, mode: Mode): Promise<void> {
  const made = await db.selectFrom("installation").select("value").where("key", "=", "mode").executeTakeFirst()
  if (!made) throw new Error("This database is new. Start the service once, or check DATA_DIR and DATABASE_URL.")
  if (made.value !== mode)
    throw new Error(
      `This database belongs to an installation with MODE=${made.value}; MODE is ${mode}. Use another DATA_DIR or DATABASE_URL.`,
    )
}

async function remember(db: Db, key: string, value: string): Promise<string> {
  await db
    .insertInto("installation")
    .values({ key, value })
    .onConflict(conflict => conflict.doNothing())
    .execute()
  return (await db.selectFrom("installation").select("value").where("key", "=", key).executeTakeFirstOrThrow()).value
}
