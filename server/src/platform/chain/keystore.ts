/** Keys at rest: Web3 Secret Storage, version 3, as geth and foundry write it. */
import { decrypt, type Keystore, toKey } from "ox/Keystore"
import type { Hex } from "viem"
import { privateKeyToAddress } from "viem/accounts"
import { parseAddress } from "./hex.ts"

const KEY_BYTES = 32
/** Four times geth's own limit. A file that needs more memory than a server has is never opened. */
const MAX_SCRYPT_BYTES = 1 << 30
/** The limit of the work to open a file, about a minute: a longer start would look like a hang. */
const MAX_SCRYPT_WORK = 16 * MAX_SCRYPT_BYTES
const MAX_PBKDF2_ROUNDS = 50_000_000

/**
 * Decrypts the private key in a keystore's JSON. Throws an Error whose message completes "PAYOUT_KEYSTORE …" and
 * repeats nothing from the file. Decryption blocks for about a second, once per key at startup.
 */
export function openKeystore(json: string, password: string): Hex {
  const file = parsed(json)
  if (!isKeystore(file)) throw new Error("is not a keystore: Web3 Secret Storage, version 3, with scrypt or PBKDF2")
  let key: Hex
  try {
    key = decrypt(file, toKey(file, { password }))
  } catch {
    throw new Error("can't be decrypted with the password in its password file, or is damaged")
  }
  const stated = parseAddress(plainAddress(file))
  if (stated && stated !== parseAddress(privateKeyToAddress(key).toLowerCase()))
    throw new Error("contains the key of another address than the one it names")
  return key
}

type Json = Record<string, unknown>

function parsed(json: string): unknown {
  try {
    return JSON.parse(json)
  } catch {
    return undefined
  }
}

const isObject = (value: unknown): value is Json => typeof value === "object" && value !== null
const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) > 0
const isHex = (value: unknown, bytes?: number): boolean =>
  typeof value === "string" && /^([0-9a-f]{2})+$/i.test(value) && (bytes === undefined || value.length === 2 * bytes)

/** Whether the file has every field that is used, in the form that the standard requires. */
function isKeystore(file: unknown): file is Keystore {
  if (!isObject(file) || file.version !== 3 || !isObject(file.crypto)) return false
  const { cipher, ciphertext, cipherparams, kdf, kdfparams, mac } = file.crypto
  if (cipher !== "aes-128-ctr" || !isHex(ciphertext, KEY_BYTES) || !isHex(mac, KEY_BYTES)) return false
  if (!isObject(cipherparams) || !isHex(cipherparams.iv, 16)) return false
  if (!isObject(kdfparams) || kdfparams.dklen !== 32 || !isHex(kdfparams.salt)) return false
  const { c, prf, n, r, p } = kdfparams
  if (kdf === "pbkdf2") return isCount(c) && c <= MAX_PBKDF2_ROUNDS && prf === "hmac-sha256"
  if (kdf !== "scrypt" || !isCount(n) || !isCount(r) || !isCount(p)) return false
  return 128 * n * r <= MAX_SCRYPT_BYTES && 128 * n * r * p <= MAX_SCRYPT_WORK
}

/** Returns the address that a file may contain: foundry omits it, and other tools write it without 0x. */
function plainAddress(file: object): string | undefined {
  const { address } = file as Json
  return typeof address === "string" ? `0x${address.replace(/^0x/, "").toLowerCase()}` : undefined
}
