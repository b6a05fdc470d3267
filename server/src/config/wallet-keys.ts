/** Where a wallet's key comes from: the environment, an encrypted file and a file with its password, or a signer that keeps it. */
import { readFileSync, statSync } from "node:fs"
import type { Address } from "../chain/hex.ts"
import { openKeystore } from "../chain/keystore.ts"
import { localSigner, type Signer } from "../chain/signer.ts"
import type { RemoteKey } from "../chain/signers/remote-key.ts"
import { remoteSigner } from "../chain/signers/remote-signer.ts"
import { isPrivate } from "./live-mode.ts"

/** Bits of a file's mode that give access to users other than its owner. */
const OTHERS = 0o077
const KEYSTORE_BYTES = 64 * 1024

/** The settings of a wallet, as they were read; undefined: not set. */
export interface WalletSettings {
  wallet: "PAYOUT" | "RELAY"
  key: Signer | undefined
  keystore: string | undefined
  passwordFile: string | undefined
  remote: { key: RemoteKey; address: Address } | undefined
  kmsEndpoint: string | undefined
  /** Whether a password that others can read is refused, and a way to the signer that others can read. */
  live: boolean
}

/**
 * The signer for a wallet, undefined where nothing is set; faults begin with the name of a setting and reveal no
 * secret.
 */
export function walletSigner({ wallet, key, keystore, passwordFile, remote, kmsEndpoint, live }: WalletSettings): {
  signer: Signer | undefined
  faults: string[]
} {
  const name = `${wallet}_KEYSTORE`
  const fault = (text: string) => ({ signer: undefined, faults: [text] })
  if (key && (keystore ?? passwordFile) !== undefined)
    return fault(`${name} can't be set together with ${wallet}_PRIVATE_KEY: one of them holds the key`)
  if (remote) {
    const taken = key ? "PRIVATE_KEY" : (keystore ?? passwordFile) === undefined ? undefined : "KEYSTORE"
    if (taken) return fault(`${wallet}_SIGNER can't be set together with ${wallet}_${taken}: one of them has the key`)
    const signer = remoteSigner(remote.key, remote.address, { endpoint: kmsEndpoint })
    const [name, url] =
      remote.key.kind === "web3signer" ? [`${wallet}_SIGNER`, remote.key.name] : ["KMS_ENDPOINT", kmsEndpoint]
    const isOpen = live && url?.startsWith("http:") && !isPrivate(url)
    return {
      signer,
      faults: isOpen ? [`${name} must use https: only a signer on a private address may use http`] : [],
    }
  }
  if (keystore === undefined)
    return passwordFile === undefined
      ? { signer: key, faults: [] }
      : fault(`${name} must be set: ${name}_PASSWORD_FILE holds the password of one`)
  if (passwordFile === undefined) return fault(`${name}_PASSWORD_FILE must be set: it names a file with the password`)
  let at = `${name}_PASSWORD_FILE`
  try {
    const password = passwordIn(passwordFile, live)
    at = name
    return { signer: localSigner(openKeystore(textOf(keystore), password)), faults: [] }
  } catch (error) {
    return fault(`${at} ${(error as Error).message}`)
  }
}

function passwordIn(path: string, live: boolean): string {
  const password = textOf(path).replace(/\r?\n$/, "")
  if (password === "") throw new Error("is empty")
  if (live && (statSync(path).mode & OTHERS) !== 0)
    throw new Error("can be read by users other than its owner: run chmod 600, and consider the password compromised")
  return password
}

/** The text of a small file; throws an Error whose message completes "NAME …". */
function textOf(path: string): string {
  try {
    const bytes = readFileSync(path)
    if (bytes.length <= KEYSTORE_BYTES) return bytes.toString("utf8")
  } catch (error) {
    throw new Error(`can't be read: ${(error as NodeJS.ErrnoException).code ?? "unknown fault"}`)
  }
  throw new Error("is too large for this kind of file")
}
