/**
 * `sluice signer KEY`: prints the wallet of a key in a KMS or behind a Web3Signer, in the form that PAYOUT_SIGNER and
 * RELAY_SIGNER need.
 */
import { checksummed } from "../../platform/chain/hex.ts"
import { SignerError } from "../../platform/chain/signer.ts"
import { parseRemoteKey, type RemoteKey } from "../../platform/chain/signers/remote-key.ts"
import { walletOfKey, walletsOf } from "../../platform/chain/signers/remote-signer.ts"
import { apiUrl, privateKey } from "../../platform/config/setting-values.ts"
import { smallText } from "../../platform/config/small-text.ts"
import { parseCommandLine, parsedValue, runCommand, UsageError } from "./run-command.ts"

const usage = `Prints the wallet of a key in a KMS or a Web3Signer, as the value of PAYOUT_SIGNER or RELAY_SIGNER; or the wallet of a private
key in a file, as the value of PAYOUT_WALLET or RELAY_WALLET.

  sluice signer aws-kms:arn:aws:kms:REGION:ACCOUNT:key/ID
  sluice signer gcp-kms:projects/PROJECT/locations/LOCATION/keyRings/RING/cryptoKeys/KEY/cryptoKeyVersions/VERSION
  sluice signer web3signer:https://HOST:PORT
  sluice signer --key-file FILE

  --endpoint URL  the address of the KMS's API, if it is a private endpoint (KMS_ENDPOINT).
  --help          this text.

A KMS signs a test message twice, which shows its wallet, so the permission to sign is enough. A Web3Signer lists its keys.
Exits with 0 when it printed a wallet, 1 when the signer names none, 2 for an invalid command line.
`

/**
 * The settings for a key, one for each wallet to which the name may refer. Throws an Error with a sentence if there is
 * none.
 */
export async function settingsOf(key: RemoteKey, endpoint: string | undefined, signal: AbortSignal): Promise<string[]> {
  const name = `${key.kind}:${key.name}`
  try {
    const wallets =
      key.kind === "web3signer"
        ? (await walletsOf(key.name, signal)).map(({ wallet }) => wallet)
        : [await walletOfKey(key, signal, { endpoint })]
    if (wallets.length === 0) throw new SignerError("has no key of this curve")
    return wallets.map(wallet => `${name}/${checksummed(wallet)}`)
  } catch (error) {
    if (error instanceof SignerError) throw new Error(`The signer ${error.message}.`)
    throw error
  }
}

async function main(args: string[]): Promise<string> {
  const { positionals, values } = parseCommandLine(args, {
    allowPositionals: true,
    options: { endpoint: { type: "string" }, "key-file": { type: "string" } },
  })
  const [name, ...more] = positionals
  if (values.help) return usage.trimEnd()
  const file = values["key-file"]
  if (file !== undefined && name === undefined)
    return checksummed(parsedValue(`--key-file ${file}`, file, path => privateKey(smallText(path).trim())).address)
  if (!name || more.length > 0 || file !== undefined) throw new UsageError("Name one key.")
  const key = parsedValue("The key", name, parseRemoteKey)
  const endpoint = values.endpoint && parsedValue("--endpoint", values.endpoint, apiUrl)
  return (await settingsOf(key, endpoint || undefined, new AbortController().signal)).join("\n")
}

/** Runs the command with the arguments of the process. */
export const run = (): Promise<void> => runCommand("signer", main)
