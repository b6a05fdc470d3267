/**
 * `sluice signer KEY`: prints the wallet of a key in a KMS or behind a Web3Signer, as PAYOUT_SIGNER and RELAY_SIGNER
 * name it.
 */
import { parseArgs } from "node:util"
import { SignerError } from "../chain/signer.ts"
import { parseRemoteKey, type RemoteKey } from "../chain/signers/remote-key.ts"
import { walletOfKey, walletsOf } from "../chain/signers/remote-signer.ts"
import { apiUrl } from "../config/setting-values.ts"

const usage = `Prints the wallet of a key that another machine keeps, as the value of PAYOUT_SIGNER or RELAY_SIGNER.

  sluice signer aws-kms:arn:aws:kms:REGION:ACCOUNT:key/ID
  sluice signer gcp-kms:projects/PROJECT/locations/LOCATION/keyRings/RING/cryptoKeys/KEY/cryptoKeyVersions/VERSION
  sluice signer web3signer:https://HOST:PORT

  --endpoint URL  the address of the KMS's API, where it is a private endpoint (KMS_ENDPOINT).
  --help          this text.

A KMS is asked for two signatures of a sentence, which show its wallet: the permission to sign is enough. A Web3Signer lists its keys.
`

/** The settings for a key, one for each wallet that it may be. Throws a sentence where there is none. */
export async function settingsOf(key: RemoteKey, endpoint: string | undefined, signal: AbortSignal): Promise<string[]> {
  const name = `${key.kind}:${key.name}`
  try {
    const wallets =
      key.kind === "web3signer"
        ? (await walletsOf(key.name, signal)).map(({ wallet }) => wallet)
        : [await walletOfKey(key, signal, { endpoint })]
    if (wallets.length === 0) throw new SignerError("has no key of this curve")
    return wallets.map(wallet => `${name}/${wallet}`)
  } catch (error) {
    if (error instanceof SignerError) throw new Error(`The signer ${error.message}.`)
    throw error
  }
}

async function main(): Promise<string> {
  const { positionals, values } = parseArgs({
    allowPositionals: true,
    options: { endpoint: { type: "string" }, help: { type: "boolean" } },
  })
  const [name, ...more] = positionals
  if (values.help) return usage.trimEnd()
  if (!name || more.length > 0) throw new Error(`Name one key.\n\n${usage}`)
  const key = parsed("The key", name, parseRemoteKey)
  const endpoint = values.endpoint && parsed("--endpoint", values.endpoint, apiUrl)
  return (await settingsOf(key, endpoint || undefined, new AbortController().signal)).join("\n")
}

function parsed<T>(what: string, text: string, parse: (text: string) => T): T {
  try {
    return parse(text)
  } catch (error) {
    throw new Error(`${what} ${(error as Error).message}.`)
  }
}

/** Runs the command with the arguments of the process. */
export const run = (): Promise<void> =>
  main().then(
    said => void process.stdout.write(`${said}\n`),
    (error: Error) => {
      process.stderr.write(`${error.message}\n`)
      process.exitCode = 1
    },
  )
