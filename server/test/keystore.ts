/** Keystores for tests (Web3 Secret Storage v3), created by other code than the service uses to read them. */
import { createCipheriv, pbkdf2Sync, randomBytes, randomUUID, scryptSync } from "node:crypto"
import { keccak256 } from "viem"

type Kdf = { c: number } | { n: number; r: number; p: number }

/** The key derivation of foundry; `c` of PBKDF2 instead. */
export const foundry = { n: 8192, r: 8, p: 1 }

/** The JSON of a keystore with this key; `more` stands beside its fields. */
export function keystoreOf(key: string, password: string, kdf: Kdf = foundry, more: object = {}): string {
  const salt = randomBytes(32)
  const iv = randomBytes(16)
  const derived =
    "c" in kdf
      ? pbkdf2Sync(password, salt, kdf.c, 32, "sha256")
      : scryptSync(password, salt, 32, { N: kdf.n, r: kdf.r, p: kdf.p, maxmem: 512 * 1024 * 1024 })
  const cipher = createCipheriv("aes-128-ctr", derived.subarray(0, 16), iv)
  const ciphertext = Buffer.concat([cipher.update(Buffer.from(key.slice(2), "hex")), cipher.final()])
  const params = "c" in kdf ? { prf: "hmac-sha256", ...kdf } : kdf
  return JSON.stringify({
    ...more,
    crypto: {
      cipher: "aes-128-ctr",
      cipherparams: { iv: iv.toString("hex") },
      ciphertext: ciphertext.toString("hex"),
      kdf: "c" in kdf ? "pbkdf2" : "scrypt",
      kdfparams: { dklen: 32, salt: salt.toString("hex"), ...params },
      mac: keccak256(Buffer.concat([derived.subarray(16, 32), ciphertext])).slice(2),
    },
    id: randomUUID(),
    version: 3,
  })
}
