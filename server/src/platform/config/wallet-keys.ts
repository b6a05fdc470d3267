/** Finds a wallet's key: in the environment, in an encrypted file with a password file, or at a remote signer. */
import { statSync } from "node:fs"
import { type Address, checksummed } from "../chain/hex.ts"
import { openKeystore } from "../chain/keystore.ts"
import type { Mode } from "../chain/network-facts.ts"
import { localSigner, type Signer } from "../chain/signer.ts"
import type { RemoteKey } from "../chain/signers/remote-key.ts"
import { remoteSigner } from "../chain/signers/remote-signer.ts"
import { isPrivate } from "./private-url.ts"
import type { SettingReader } from "./setting-reader.ts"
import type { settingsTable } from "./settings-table.ts"
import { smallText } from "./small-text.ts"

/** Bits of a file's mode that give access to users other than its owner. */
const OTHERS = 0o077

/** The settings of a wallet; a setting that is not set is undefined. */
interface KeySettings {
  wallet: "PAYOUT" | "RELAY" | "ZEROG"
  key: Signer | undefined
  keystore: string | undefined
  passwordFile: string | undefined
  remote: { key: RemoteKey; address: Address } | undefined
  kmsEndpoint: string | undefined
  /** Whether to refuse passwords that other users can read, and signers that other machines can reach. */
  live: boolean
}

/**
 * The service's wallets with their signers, and the files with their secrets. A wallet may be known only by its
 * address.
 */
export function walletSettings({ env, read, faults }: SettingReader, mode: Mode) {
  const kmsEndpoint = read("KMS_ENDPOINT")
  const remotes = new Map<string, KeySettings["remote"]>()
  const signerOf = (wallet: KeySettings["wallet"]): Signer | undefined => {
    const remote = read(`${wallet}_SIGNER`)
    remotes.set(wallet, remote)
    const { signer, faults: found } = walletSigner({
      wallet,
      key: read(`${wallet}_PRIVATE_KEY`),
      keystore: read(`${wallet}_KEYSTORE`),
      passwordFile: read(`${wallet}_KEYSTORE_PASSWORD_FILE`),
      remote,
      kmsEndpoint,
      live: mode === "live",
    })
    faults.push(...found)
    return signer
  }
  const payoutSigner = signerOf("PAYOUT")
  const relaySigner = signerOf("RELAY")
  const storageSigner = signerOf("ZEROG")
  const keys = (wallet: "PAYOUT" | "RELAY") => remotes.get(wallet)?.key
  faults.push(...keysTogether(keys("PAYOUT"), keys("RELAY"), env.KMS_ENDPOINT))
  const walletOf = (wallet: "PAYOUT" | "RELAY", signer: Signer | undefined): Address | undefined => {
    const named = read(`${wallet}_WALLET`)
    if (named && signer && named !== signer.address)
      faults.push(`${wallet}_WALLET is not the wallet of the key, which is ${checksummed(signer.address)}`)
    return signer?.address ?? named
  }
  const payoutWallet = walletOf("PAYOUT", payoutSigner)
  const relayWallet = walletOf("RELAY", relaySigner)
  const serviceWallets = [payoutWallet, relayWallet, storageSigner?.address].filter(wallet => wallet !== undefined)
  const secretFiles = FILES_WITH_SECRETS.flatMap(setting => (env[setting] ? [{ setting, path: env[setting] }] : []))
  return { payoutSigner, payoutWallet, relaySigner, relayWallet, storageSigner, serviceWallets, secretFiles }
}

/** Faults that two remote keys have only in combination. */
function keysTogether(
  payout: RemoteKey | undefined,
  relay: RemoteKey | undefined,
  endpoint: string | undefined,
): string[] {
  if (!payout || !relay || payout.kind === "web3signer" || relay.kind === "web3signer") return []
  if (payout.kind !== relay.kind)
    return endpoint
      ? ["KMS_ENDPOINT can't be set with keys of two providers: each provider would receive the other's credentials"]
      : []
  return payout.name === relay.name ? ["RELAY_SIGNER must differ from PAYOUT_SIGNER: each wallet has its own key"] : []
}

const FILES_WITH_SECRETS = [
  "PAYOUT_KEYSTORE",
  "PAYOUT_KEYSTORE_PASSWORD_FILE",
  "RELAY_KEYSTORE",
  "RELAY_KEYSTORE_PASSWORD_FILE",
  "ZEROG_KEYSTORE",
  "ZEROG_KEYSTORE_PASSWORD_FILE",
] as const satisfies (keyof typeof settingsTable)[]

/**
 * The signer of a wallet; undefined if nothing is set. Faults start with the name of a setting and reveal no secret.
 */
function walletSigner({ wallet, key, keystore, passwordFile, remote, kmsEndpoint, live }: KeySettings): {
  signer: Signer | undefined
  faults: string[]
} {
  const name = `${wallet}_KEYSTORE`
  const fault = (text: string) => ({ signer: undefined, faults: [text] })
  if (key && (keystore ?? passwordFile) !== undefined)
    return fault(`${name} can't be set together with ${wallet}_PRIVATE_KEY: set only one of them`)
  if (remote) {
    const taken = key ? "PRIVATE_KEY" : (keystore ?? passwordFile) === undefined ? undefined : "KEYSTORE"
    if (taken) return fault(`${wallet}_SIGNER can't be set together with ${wallet}_${taken}: set only one of them`)
    const signer = remoteSigner(remote.key, remote.address, { endpoint: kmsEndpoint })
    const [name, url] =
      remote.key.kind === "web3signer" ? [`${wallet}_SIGNER`, remote.key.name] : ["KMS_ENDPOINT", kmsEndpoint]
    const isOpen = live && url !== undefined && new URL(url).protocol === "http:" && !isPrivate(url)
    return {
      signer,
      faults: isOpen ? [`${name} must use https: only a signer on a private address may use http`] : [],
    }
  }
  if (keystore === undefined)
    return passwordFile === undefined
      ? { signer: key, faults: [] }
      : fault(`${name} must be set, because ${name}_PASSWORD_FILE is`)
  if (passwordFile === undefined) return fault(`${name}_PASSWORD_FILE must be set: it names a file with the password`)
  let at = `${name}_PASSWORD_FILE`
  try {
    const password = passwordIn(passwordFile, live)
    at = name
    return { signer: localSigner(openKeystore(smallText(keystore), password)), faults: [] }
  } catch (error) {
    return fault(`${at} ${(error as Error).message}`)
  }
}

function passwordIn(path: string, live: boolean): string {
  const password = smallText(path).replace(/\r?\n$/, "")
  if (password === "") throw new Error("is empty")
  if (live && (statSync(path).mode & OTHERS) !== 0)
    throw new Error("is readable by users other than its owner: run chmod 600, and treat the password as compromised")
  return password
}
