/**
 * Encrypts secrets that must be readable again (webhook secrets, signing keys, headers for origins) at rest under
 * `SECRET_KEY`. An API key is hashed instead, because it is only ever compared.
 */
import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes } from "node:crypto"

/** The purpose of a secret: each purpose has its own key, so that one kind can't be used as another. */
export type Purpose =
  | "webhook-secret"
  | "signing-key"
  | "receipt"
  | "receipt-key"
  | "origin-header"
  | "answer"
  | "check"
  | "confirmation"
  | "mail-link"

/**
 * The keys of a process, of 32 bytes each. The first key encrypts, and each key decrypts. There are two during a
 * rotation.
 */
export type SecretKeys = readonly Uint8Array[]

const NONCE_BYTES = 12
const TAG_BYTES = 16

/**
 * Encrypts a secret of `owner` (the row it is stored in) with AES-256-GCM. The secret can be decrypted only for the
 * same purpose and owner, so that a row copied over another is noticed. A random 96-bit nonce is safe for 2³² secrets
 * under one key (NIST SP 800-38D, 8.3).
 *
 * @example unseal(keys, "webhook-secret", "wh_1", seal(keys, "webhook-secret", "wh_1", "whsec_…")) // "whsec_…"
 */
export function seal([first]: SecretKeys, purpose: Purpose, owner: string, plain: string): string {
  if (!first) throw new Error(NOT_SET)
  const nonce = randomBytes(NONCE_BYTES)
  const cipher = createCipheriv("aes-256-gcm", derive(first, purpose), nonce).setAAD(Buffer.from(owner))
  const text = Buffer.concat([cipher.update(plain, "utf8"), cipher.final()])
  return Buffer.concat([nonce, cipher.getAuthTag(), text]).toString("base64url")
}

/** Decrypts a secret; throws an Error if it was encrypted under another key or for another purpose, or was changed. */
export function unseal(keys: SecretKeys, purpose: Purpose, owner: string, sealed: string): string {
  if (keys.length === 0) throw new Error(NOT_SET)
  let cause: unknown
  for (const key of keys)
    try {
      return unsealWith(key, purpose, owner, sealed)
    } catch (error) {
      cause ??= error
    }
  throw new Error(`A ${purpose} of ${owner} can't be decrypted: was SECRET_KEY changed?`, { cause })
}

/** Whether a secret was encrypted with this key, for this purpose and owner. */
export function isSealedWith(key: Uint8Array, purpose: Purpose, owner: string, sealed: string): boolean {
  try {
    unsealWith(key, purpose, owner, sealed)
    return true
  } catch {
    return false
  }
}

function unsealWith(secretKey: Uint8Array, purpose: Purpose, owner: string, sealed: string): string {
  const bytes = Buffer.from(sealed, "base64url")
  const nonce = bytes.subarray(0, NONCE_BYTES)
  const tag = bytes.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES)
  const options = { authTagLength: TAG_BYTES }
  const decipher = createDecipheriv("aes-256-gcm", derive(secretKey, purpose), nonce, options)
    .setAAD(Buffer.from(owner))
    .setAuthTag(tag)
  const text = bytes.subarray(NONCE_BYTES + TAG_BYTES)
  return Buffer.concat([decipher.update(text), decipher.final()]).toString("utf8")
}

/** The MACs of a text with each key, in the order of the keys; the purpose separates them from those of other uses. */
export function macsOf(keys: SecretKeys, purpose: "x402-retry", text: string): [Buffer, ...Buffer[]] {
  const [first, ...others] = keys.map(key => createHmac("sha256", derive(key, purpose)).update(text).digest())
  if (!first) throw new Error(NOT_SET)
  return [first, ...others]
}

const NOT_SET = "SECRET_KEY is not set"

const derive = (secretKey: Uint8Array, purpose: string): Uint8Array =>
  new Uint8Array(hkdfSync("sha256", secretKey, "", `sluice ${purpose}`, 32))
