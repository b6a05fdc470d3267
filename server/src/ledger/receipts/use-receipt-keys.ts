/**
 * The keys that sign receipts (Ed25519), for each network and factory. If roots are written to the chain, a key signs
 * nothing until the call that registers it is final. Verifiers must be able to see the key before its first receipt.
 * Until then the previous key signs.
 */
import { generateKeyPairSync } from "node:crypto"
import { type PublicKey, thumbprint } from "../../../../verify/src/format.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { seal, unseal } from "../../platform/secrets.ts"
import { type SigningKey, signingKeyOf } from "./receipt.ts"

type Served = Pick<NetworkInfo, "chainId" | "depositFactory">

/** Returns the keys of a network that are not revoked, newest first. Makes a key if there is none. */
export async function receiptKeys(ctx: TxContext, network: Served): Promise<Row<"receipt_keys">[]> {
  const rows = await ctx.db
    .selectFrom("receipt_keys")
    .selectAll()
    .where("chain_id", "=", network.chainId)
    .where("factory", "=", network.depositFactory)
    .where("revoke_id", "is", null)
    .where("sealed", "is not", null)
    .orderBy("created_at", "desc")
    .execute()
  return rows.length > 0 ? rows : [await makeReceiptKey(ctx, network)]
}

/** Makes a key that signs for the network as soon as it may. */
export async function makeReceiptKey(
  ctx: TxContext,
  { chainId, depositFactory }: Served,
): Promise<Row<"receipt_keys">> {
  const pair = generateKeyPairSync("ed25519")
  const { crv, kty, x } = pair.publicKey.export({ format: "jwk" }) as PublicKey & Record<string, unknown>
  const publicKey: PublicKey = { crv, kty, x }
  const id = await thumbprint(publicKey)
  const secret = JSON.stringify(pair.privateKey.export({ format: "jwk" }))
  return await ctx.db
    .insertInto("receipt_keys")
    .values({
      id,
      chain_id: chainId,
      factory: depositFactory,
      public_key: JSON.stringify(publicKey),
      sealed: seal(ctx.settings.secretKeys, "receipt-key", id, secret),
      created_at: ctx.now(),
    })
    .returningAll()
    .executeTakeFirstOrThrow()
}

/** Returns the key of a row, ready to sign. Throws if the private key was lost with SECRET_KEY. */
export function openKey(ctx: TxContext, { id, public_key, sealed }: Row<"receipt_keys">): SigningKey {
  if (sealed === null) throw new Error(`the receipt key ${id} was lost with SECRET_KEY`)
  return signingKeyOf(id, public_key, unseal(ctx.settings.secretKeys, "receipt-key", id, sealed))
}
