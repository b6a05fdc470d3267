/**
 * The format of a receipt: a signed statement (JWS) over canonical JSON (RFC 8785), sealed for its holders (JWE). The
 * service that makes receipts and the programs that verify them share this file.
 */
import { type Bytes, concat, fromBase64url, fromUtf8, sha256, toBase64url, utf8 } from "./bytes.ts"
import { CHUNK } from "./merkle.ts"

export type ReceiptType = "payment" | "refund" | "reversed" | "capture" | "void"

/** A transfer of tokens in the chain's logs: the `k`th one of `token` to `to` in its transaction. */
export interface Moved {
  txHash: string
  blockHash: string
  blockNumber: number
  k: number
  from: string
  to: string
  /** Base units. */
  amount: string
  /** The factory and the hash by which the address `to` commits to its terms; absent if it is not a deposit. */
  factory?: string
  terms?: string
}

/** The signed content. Amounts are base units as text, because JSON's numbers are not exact. */
export interface ReceiptBody {
  v: 1
  type: ReceiptType
  /** did:web of the service. */
  issuer: string
  merchant: string
  /** The place in the merchant's chain, from 1, and the hash of the previous receipt; null for the first. */
  seq: number
  prev: string | null
  resource: { type: string; id: string }
  /** The id of the payment, or of the escrow call, that the receipt is about. */
  about: string
  /** CAIP-2. */
  chain: string
  token: string
  decimals: number
  amount: string
  payer: string
  transfers: Moved[]
  splits: { to: string; amount: string }[]
  /** The contract and the id of a payment that was reserved first. */
  escrow?: { address: string; authId: string }
  /** The hash of the receipt that this one reverses. */
  reverses?: string
  /** A salted hash for each fact, in the order of the holder's {@link Fact}s. */
  facts: string[]
  /** When it was settled, and when it was signed; ISO 8601. */
  settledAt: string
  at: string
}

/** A fact that the holder can reveal, one by one. */
export interface Fact {
  name: string
  /** 32 bytes, base64url. */
  salt: string
  value: string
}

/** The terms of a deposit, as its factory takes them. */
export interface DepositTerms {
  address: string
  factory: string
  salt: string
  owner: string
  approver: string
  payeesHash: string
  /** Unix seconds, as text. */
  openAfter: string
}

/** A file that a holder keeps. It contains everything that verification needs, except the chain. */
export interface SavedReceipt {
  sluiceReceipt: 1
  jwe: string
  key: string
  root: string
  offset: number
  /** The size of its batch, in bytes. */
  size: number
  path: string[]
  facts: Fact[]
  terms: DepositTerms[]
  /** The blocks with the events of `ReceiptAnchor`, so that nobody has to search for them; null if not known yet. */
  keyBlock: number | null
  anchorBlock: number | null
}

/** A receipt that its holder can no longer open, because it was erased. It keeps its place in the chain. */
export interface ErasedReceipt
  extends Pick<SavedReceipt, "jwe" | "root" | "offset" | "size" | "path" | "keyBlock" | "anchorBlock"> {
  sluiceReceipt: 1
  erased: true
  seq: number
  hash: string
}

/** The service's signed statement at the end of a merchant's file: how far the chain of receipts goes. */
export interface HeadBody {
  v: 1
  type: "head"
  issuer: string
  merchant: string
  /** The places of the first and last receipt in the file. In an empty file, `last` is below `first`. */
  first: number
  last: number
  /** Whether the file contains every receipt between them. */
  whole: boolean
  at: string
}

/** The last line of a merchant's file. */
export interface HeadLine {
  sluiceHead: 1
  jws: string
  /** The block that registered its key, so that nobody has to search for it; absent if it is not known. */
  keyBlock?: number
}

/** Canonical JSON (RFC 8785) of text, whole numbers, null, lists and objects. Throws for any other value. */
export function canonical(value: unknown): string {
  if (value === null || typeof value === "string" || typeof value === "boolean") return JSON.stringify(value)
  if (Number.isSafeInteger(value)) return `${value as number}`
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`
  if (typeof value !== "object") throw new Error("it has a value that receipts do not have")
  const entries = Object.entries(value).filter(([, each]) => each !== undefined)
  // By UTF-16 code units, as the RFC requires and as JavaScript compares text.
  entries.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0))
  return `{${entries.map(([name, each]) => `${JSON.stringify(name)}:${canonical(each)}`).join(",")}}`
}

/** The hash by which a receipt names a fact. Without the salt nobody can guess values. */
export const hashOfFact = async ({ name, salt, value }: Fact): Promise<string> =>
  toBase64url(await sha256(concat(fromBase64url(salt), utf8(canonical([name, value])))))

/** The hash by which the next receipt names this one. */
export const hashOfReceipt = async (jws: string): Promise<string> => toBase64url(await sha256(utf8(jws)))

/** The header of a sealed receipt. */
export const SEALED_HEADER = toBase64url(utf8(canonical({ alg: "dir", cty: "sluice-receipt+jws", enc: "A256GCM" })))

const IV_BYTES = 12
const TAG_BYTES = 16

/** Opens a sealed receipt; throws if any byte of it or of the key differs. */
export async function open(jwe: string, key: string): Promise<string> {
  const [header, none, iv, text, tag, ...more] = jwe.split(".")
  if (
    header !== SEALED_HEADER ||
    none !== "" ||
    iv === undefined ||
    text === undefined ||
    tag === undefined ||
    more.length
  )
    throw new Error("it is no sealed receipt")
  const ivBytes = fromBase64url(iv)
  const tagBytes = fromBase64url(tag)
  const keyBytes = fromBase64url(key)
  if (ivBytes.length !== IV_BYTES || tagBytes.length !== TAG_BYTES || keyBytes.length !== 32)
    throw new Error("its key or its parts have other lengths")
  const secret = await crypto.subtle.importKey("raw", keyBytes, "AES-GCM", false, ["decrypt"])
  const options = { name: "AES-GCM", iv: ivBytes, additionalData: utf8(header), tagLength: 8 * TAG_BYTES }
  const plain = await crypto.subtle.decrypt(options, secret, concat(fromBase64url(text), tagBytes)).catch(() => {
    throw new Error("the key does not open it, or a byte of it was changed")
  })
  return fromUtf8(new Uint8Array(plain))
}

/** A public key of Ed25519 as a JWK. */
export interface PublicKey {
  crv: "Ed25519"
  kty: "OKP"
  x: string
}

/** The id of a key: its thumbprint (RFC 7638). */
export const thumbprint = async ({ crv, kty, x }: PublicKey): Promise<string> =>
  toBase64url(await sha256(utf8(canonical({ crv, kty, x }))))

/** The header of a receipt's signature. It contains the public key, so that checking needs no service. */
export const signedHeader = (kid: string, { crv, kty, x }: PublicKey) =>
  toBase64url(utf8(canonical({ alg: "EdDSA", jwk: { crv, kty, x }, kid, typ: "sluice-receipt+jws" })))

/** A statement with a valid signature. */
export interface Signed {
  body: ReceiptBody | HeadBody
  kid: string
}

/** Checks a receipt's signature, and that its key is the one that it names; throws if either is wrong. */
export async function readSigned(jws: string): Promise<Signed> {
  const [header, payload, signature, ...more] = jws.split(".")
  if (header === undefined || payload === undefined || signature === undefined || more.length > 0)
    throw new Error("it is no signed statement")
  const { kid, jwk } = JSON.parse(fromUtf8(fromBase64url(header))) as { kid: string; jwk: PublicKey }
  if (header !== signedHeader(kid, jwk) || (await thumbprint(jwk)) !== kid) throw new Error("its header is another one")
  const key = await crypto.subtle.importKey("jwk", { ...jwk }, "Ed25519", false, ["verify"])
  const isSigned = await crypto.subtle.verify("Ed25519", key, fromBase64url(signature), utf8(`${header}.${payload}`))
  if (!isSigned) throw new Error("the signature is not of this text")
  const text = fromUtf8(fromBase64url(payload))
  const body = JSON.parse(text) as Signed["body"]
  if (canonical(body) !== text || body.v !== 1) throw new Error("it is not canonical JSON of this version")
  return { body, kid }
}

/** Reads a receipt and checks its signature; throws if that is invalid, or if the statement is of another kind. */
export async function readReceipt(jws: string): Promise<{ body: ReceiptBody; kid: string }> {
  const { body, kid } = await readSigned(jws)
  if (body.type === "head") throw new Error("it is the end of a file, and no receipt")
  return { body, kid }
}

/** A sealed receipt, padded with newlines as in its batch, so that the next one starts at a leaf of the tree. */
export const padded = (jwe: string): Bytes => {
  const bytes = utf8(jwe)
  const all = new Uint8Array(Math.ceil(bytes.length / CHUNK) * CHUNK).fill(10)
  all.set(bytes)
  return all
}
