/** Makes the signed receipt of what was settled, and seals it. Pure, except for randomness. */
import { createCipheriv, createHash, createPrivateKey, type KeyObject, randomBytes, sign } from "node:crypto"
import {
  canonical,
  type Fact,
  type HeadBody,
  type Moved,
  type PublicKey,
  type ReceiptBody,
  SEALED_HEADER,
  signedHeader,
} from "../../../../verify/src/format.ts"
import { addressOfTerms, depositSalt, type TermsArgument } from "../../platform/chain/deposit-terms.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { ReceiptDraft } from "../../platform/db/receipt-draft.ts"
import type { Row } from "../../platform/db/schema.ts"

/** A receipt that waits to be signed. */
export interface Waiting
  extends Pick<
    Row<"receipts">,
    "merchant_id" | "type" | "chain_id" | "resource_id" | "about" | "token" | "amount" | "settled_at"
  > {
  n: bigint
  body: ReceiptDraft
  /** Whether the description of what was sold is there; an erasure removes it. */
  had_what: boolean
  /** Names and values that the receipt's holder can prove. */
  facts: readonly (readonly [name: string, value: string])[]
  decimals: number
}

/** A deposit's terms, with the factory and salt that give its address. */
export interface StoredTerms extends TermsArgument {
  factory: Address
  salt: Hash
  address: Address
}

/** A receipt's place in its merchant's chain: its number, the receipt before it, and the receipt that it reverses. */
export interface Place {
  seq: number
  prev: string | null
  reverses: string | undefined
}

/** A key that signs receipts, with its id. */
export interface SigningKey {
  id: string
  publicKey: PublicKey
  key: KeyObject
}

/** What the service keeps of a receipt for its holder. */
export interface Kept {
  key: string
  facts: Fact[]
}

/** A signed and sealed receipt. The merchant's next receipt refers to this one by `hash`. */
export interface Made {
  jwe: string
  hash: string
  kept: Kept
}

const RESOURCES: Record<string, string> = { cs: "checkout", pw: "paywall", bdl: "bundle" }

/** Returns the part of a receipt that is signed. `facts` are the hashes of its facts. */
export function bodyOf(
  row: Waiting,
  { seq, prev, reverses }: Place,
  terms: ReadonlyMap<number, StoredTerms>,
  { issuer, at, facts }: { issuer: string; at: Date; facts: string[] },
): ReceiptBody {
  const { body } = row
  return {
    v: 1,
    type: row.type,
    issuer,
    merchant: row.merchant_id,
    seq,
    prev,
    resource: { type: RESOURCES[row.resource_id.split("_")[0] ?? ""] ?? "other", id: row.resource_id },
    about: row.about,
    chain: `eip155:${row.chain_id}`,
    token: row.token,
    decimals: row.decimals,
    amount: `${row.amount}`,
    payer: body.payer,
    transfers: (body.transfers ?? []).map(({ deposit, ...moved }) => ({
      ...moved,
      ...commitmentOf(terms.get(deposit ?? -1)),
    })),
    splits: body.splits ?? [],
    ...(body.escrow ? { escrow: body.escrow } : {}),
    ...(reverses === undefined ? {} : { reverses }),
    facts,
    settledAt: row.settled_at.toISOString(),
    at: at.toISOString(),
  }
}

/** Returns the part of an address's terms that is signed: the hash from which the factory computes the address. */
function commitmentOf(terms: StoredTerms | undefined): Pick<Moved, "factory" | "terms"> {
  if (!terms) return {}
  const { factory, salt, address } = terms
  // If the database was altered, the service must not sign terms other than those that the address commits to.
  if (addressOfTerms(factory, salt, terms) !== address) throw new Error(`${address} does not follow from its terms`)
  return { factory, terms: depositSalt(salt, terms) }
}

/** Returns the facts of a receipt, each with its own salt. */
export const saltedFacts = ({ facts }: Pick<Waiting, "facts">): Fact[] =>
  facts.map(([name, value]) => ({ name, salt: randomBytes(32).toString("base64url"), value }))

/** Returns the same hash as the verifier's `hashOfFact`, but synchronously. */
export const factHash = ({ name, salt, value }: Fact): string =>
  createHash("sha256")
    .update(Buffer.from(salt, "base64url"))
    .update(canonical([name, value]))
    .digest("base64url")

/** Signs a statement as a compact JWS. */
export function signText(body: ReceiptBody | HeadBody, { id, publicKey, key }: SigningKey): string {
  const text = `${signedHeader(id, publicKey)}.${Buffer.from(canonical(body)).toString("base64url")}`
  return `${text}.${sign(null, Buffer.from(text), key).toString("base64url")}`
}

/** Signs a receipt and seals it with its own key. */
export function makeSealed(body: ReceiptBody, facts: Fact[], signingKey: SigningKey): Made {
  const jws = signText(body, signingKey)
  const key = randomBytes(32)
  const iv = randomBytes(12)
  const cipher = createCipheriv("aes-256-gcm", key, iv).setAAD(Buffer.from(SEALED_HEADER))
  const sealed = Buffer.concat([cipher.update(jws, "utf8"), cipher.final()])
  const parts = [SEALED_HEADER, "", ...[iv, sealed, cipher.getAuthTag()].map(part => part.toString("base64url"))]
  return {
    jwe: parts.join("."),
    hash: createHash("sha256").update(jws).digest("base64url"),
    kept: { key: key.toString("base64url"), facts },
  }
}

/** Returns the signing key for a private key that is stored as a JWK. */
export const signingKeyOf = (id: string, publicKey: PublicKey, jwk: string): SigningKey => ({
  id,
  publicKey,
  key: createPrivateKey({ key: JSON.parse(jwk), format: "jwk" }),
})
