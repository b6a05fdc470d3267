/**
 * The token that connects the two steps of a tool that moves money. It is sealed, and valid for five minutes, for one
 * key and one action. It is stored nowhere. Its id is the Idempotency-Key of the request that it leads to, so the
 * token works once.
 */
import { randomUUID } from "node:crypto"
import { ApiError } from "../../platform/errors.ts"
import { type SecretKeys, seal, unseal } from "../../platform/secrets.ts"

const VALID_MS = 300_000

/** What was prepared. It contains everything that the sentence says. */
export interface Prepared {
  tool: string
  /** The input of the tool that prepared the request. */
  input: Record<string, unknown>
  /** The path of the request to the API. */
  path: string
  body: Record<string, unknown>
  /** What the request does, in the words that were shown. */
  sentence: string
}

/** Seals, for one key, what was prepared. `at` is wall time. */
export function tokenOf(
  keys: SecretKeys,
  keyId: string,
  prepared: Prepared,
  at: Date,
): { token: string; expiresAt: Date } {
  const expiresAt = new Date(at.getTime() + VALID_MS)
  const text = JSON.stringify({ ...prepared, id: randomUUID(), expiresAt: expiresAt.toISOString() })
  return { token: seal(keys, "confirmation", keyId, text), expiresAt }
}

/**
 * Opens a token that was given to this key. Throws `INVALID_OPERATION` if the token belongs to another key, was
 * changed, or is older than five minutes.
 */
export function openToken(keys: SecretKeys, keyId: string, token: string, at: Date): Prepared & { id: string } {
  let opened: Prepared & { id: string; expiresAt: string }
  try {
    opened = JSON.parse(unseal(keys, "confirmation", keyId, token))
  } catch (cause) {
    throw new ApiError("INVALID_OPERATION", undefined, "This is no token that a prepare tool gave to this key.", cause)
  }
  if (Date.parse(opened.expiresAt) < at.getTime())
    throw new ApiError(
      "INVALID_OPERATION",
      undefined,
      "The token is older than five minutes. Prepare it again, and show the new sentence.",
    )
  return opened
}
