/**
 * Secrets that must be readable again (webhook secrets, signing keys, headers for origins), encrypted at rest under
 * `SECRET_KEY`. An API key, which is only ever compared, is hashed instead.
 */
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from "node:crypto"

/** What a secret is for: each purpose has its own key, so that one kind can't be used as another. */
export type Purpose = "webhook-secret" | "signing-key" | "origin-header"

const NONCE_BYTES = 12
const TAG_BYTES = 16

/**
 * Encrypts a secret of `owner` (the row it is stored in) with AES-256-GCM. It decrypts only for the same purpose and
 * owner, so that a row copied over another is noticed. A random 96-bit nonce is safe for 2³² secrets under one key
 * (NIST SP 800-38D, 8.3).
 *
 * @example unseal(key, "webhook-secret", "wh_1", seal(key, "webhook-secret", "wh_1", "whsec_…")) // "whsec_…"
 */
export function seal(secretKey: Uint8Array | undefined, purpose: Purpose, owner: string, plain: string): string {
  const nonce = randomBytes(NONCE_BYTES)
  const cipher = createCipheriv("aes-256-gcm", derive(secretKey, purpose), nonce).setAAD(Buffer.from(owner))
  const text = Buffer.concat([cipher.update(plain, "utf8"), cipher.final()])
  return Buffer.concat([nonce, cipher.getAuthTag(), text]).toString("base64url")
}

/**
 * Decrypts a secret; throws an Error when it was encrypted under another key or for another purpose, or was changed.
 */
export function unseal(secretKey: Uint8Array | undefined, purpose: Purpose, owner: string, sealed: string): string {
  const bytes = Buffer.from(sealed, "base64url")
  const nonce = bytes.subarray(0, NONCE_BYTES)
  const tag = bytes.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES)
  const key = derive(secretKey, purpose)
  try {
    const options = { authTagLength: TAG_BYTES }
    const decipher = createDecipheriv("aes-256-gcm", key, nonce, options).setAAD(Buffer.from(owner)).setAuthTag(tag)
    const text = bytes.subarray(NONCE_BYTES + TAG_BYTES)
    return Buffer.concat([decipher.update(text), decipher.final()]).toString("utf8")
  } catch (error) {
    throw new Error(`A ${purpose} of ${owner} can't be decrypted: was SECRET_KEY changed?`, { cause: error })
  }
}

function derive(secretKey: Uint8Array | undefined, purpose: Purpose): Uint8Array {
  if (!secretKey) throw new Error("SECRET_KEY is not set")
  return new Uint8Array(hkdfSync("sha256", secretKey, "", `sluice ${purpose}`, 32))
}
