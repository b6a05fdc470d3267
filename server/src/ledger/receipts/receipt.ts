/** Makes of what was settled what is signed, and seals it. Pure but for randomness. */
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
  /** Whether the words of what was sold are there; an erasure takes them away. */
  had_what: boolean
  /** Names and values of what its holder can prove. */
  facts: readonly (readonly [name: string, value: string])[]
  decimals: number
}

/** A deposit's terms, with the factory and salt that give its address. */
export interface StoredTerms extends TermsArgument {
  factory: Address
  salt: Hash
  address: Address
}

/** The receipt of the merchant before, and the one that this takes back. */
export interface Place {
  seq: number
  prev: string | null
  reverses: string | undefined
}

/** A key that signs, with its id. */
export interface SigningKey {
  id: string
  publicKey: PublicKey
  key: KeyObject
}

/** What the service keeps of a receipt for its holders. */
export interface Kept {
  key: string
  facts: Fact[]
}

/** A receipt, signed and sealed. `hash` is by which the next one names it. */
export interface Made {
  jwe: string
  hash: string
  kept: Kept
}

const RESOURCES: Record<string, string> = { cs: "checkout", pw: "paywall", bdl: "bundle" }

/** What is signed of a receipt; `facts` are the hashes of its facts. */
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

/** What of an address's terms is signed: the hash that its factory makes the address of. */
function commitmentOf(terms: StoredTerms | undefined): Pick<Moved, "factory" | "terms"> {
  if (!terms) return {}
  const { factory, salt, address } = terms
  // If the database was altered, the service must not sign other terms than the address commits to.
  if (addressOfTerms(factory, salt, terms) !== address) throw new Error(`${address} does not follow from its terms`)
  return { factory, terms: depositSalt(salt, terms) }
}

/** The facts of a receipt, each with a salt of its own. */
export const saltedFacts = ({ facts }: Pick<Waiting, "facts">): Fact[] =>
  facts.map(([name, value]) => ({ name, salt: randomBytes(32).toString("base64url"), value }))

/** The same as `hashOfFact` of the verifier, at once. */
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

/** Signs a receipt and seals it under a key of its own. */
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

/** A private key as it is stored, as a JWK. */
export const signingKeyOf = (id: string, publicKey: PublicKey, jwk: string): SigningKey => ({
  id,
  publicKey,
  key: createPrivateKey({ key: JSON.parse(jwk), format: "jwk" }),
})
