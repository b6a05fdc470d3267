/** Signers whose key is outside the process: in a KMS, or in a Web3Signer. */
// I/O: sends requests to the signer.
import { setTimeout as sleep } from "node:timers/promises"
import { stringToHex } from "viem"
import { type Address, checksummed } from "../hex.ts"
import { possibleWallets, type Signer, SignerError } from "../signer.ts"
import { awsKms } from "./aws-kms.ts"
import { oneLine } from "./exchange.ts"
import { gcpKms } from "./gcp-kms.ts"
import type { RemoteKey } from "./remote-key.ts"
import type { Sign } from "./sign.ts"
import { listKeys, web3Signer } from "./web3signer.ts"

/** If a signer takes longer than this, it is asked again later. */
const TIMEOUT_MS = 10_000

interface Options {
  /** The address of a KMS's API, if it is not the provider's default. */
  endpoint?: string | undefined
  timeoutMs?: number
}

/**
 * Returns the signer of a wallet whose key is outside the process. The signer answers within ten seconds, or throws a
 * {@link SignerError}.
 */
export function remoteSigner(key: RemoteKey, address: Address, options: Options = {}): Signer {
  const sign = key.kind === "web3signer" ? web3Signer(key.name, address) : kms(key, options)
  return { address, remote: key.kind, sign: signWith(sign, options.timeoutMs) }
}

const kms = ({ kind, name }: RemoteKey, { endpoint }: Options): Sign =>
  kind === "aws-kms" ? awsKms(name, endpoint) : gcpKms(name, endpoint)

/**
 * Finds the wallet of a KMS key. A KMS only returns signatures, so the wallet is the only one that can have made two of
 * them.
 */
export async function walletOfKey(key: RemoteKey, signal: AbortSignal, options: Options = {}): Promise<Address> {
  if (key.kind === "web3signer") throw new Error("a Web3Signer lists its keys itself")
  const sign = signWith(kms(key, options), options.timeoutMs)
  const [first, second] = await Promise.all([1, 2].map(async n => await possibleOf(sign, n, signal)))
  const both = first?.filter(wallet => second?.includes(wallet)) ?? []
  const [wallet] = both
  if (!wallet || both.length > 1)
    throw new SignerError("answered with something that is not a signature", { isWrong: true })
  return wallet
}

/**
 * Has a signer sign a test message, which is not a transaction; throws a {@link SignerError} if the signature is not
 * from the signer's wallet.
 */
export async function trySigner({ address, sign }: Signer, signal: AbortSignal): Promise<void> {
  const wallets = await possibleOf(sign, 1, signal)
  if (!wallets.includes(address))
    throw new SignerError(`signs for a wallet other than ${checksummed(address)}`, { isWrong: true })
}

async function possibleOf(sign: Sign, n: number, signal: AbortSignal): Promise<Address[]> {
  const bytes = stringToHex(`Sluice checks whose key this is (${n})`)
  return possibleWallets(bytes, await sign(bytes, signal))
}

/** Returns the keys of a Web3Signer with their wallets, within ten seconds; otherwise throws a {@link SignerError}. */
export const walletsOf = (url: string, signal: AbortSignal, timeoutMs?: number): ReturnType<typeof listKeys> =>
  within(signal => listKeys(url, signal), timeoutMs)(signal)

const signWith =
  (sign: Sign, timeoutMs?: number): Sign =>
  (bytes, signal) =>
    within(signal => sign(bytes, signal), timeoutMs)(signal)

/**
 * Adds a deadline that holds whatever the client does. Turns every failure into a {@link SignerError} without control
 * characters.
 */
function within<T>(
  ask: (signal: AbortSignal) => Promise<T>,
  timeoutMs = TIMEOUT_MS,
): (signal: AbortSignal) => Promise<T> {
  return async signal => {
    const over = new AbortController()
    const either = AbortSignal.any([signal, over.signal])
    const deadline = sleep(timeoutMs, undefined, { signal: either, ref: false }).then(() => {
      throw new SignerError(`did not answer within ${timeoutMs / 1_000} seconds`)
    })
    try {
      return await Promise.race([ask(either), deadline])
    } catch (error) {
      if (error instanceof SignerError) throw error
      const { name, message } = error as Error
      throw new SignerError(`failed: ${oneLine(`${name === "Error" ? "" : `${name}: `}${message}`)}`, { cause: error })
    } finally {
      // Ends the call and the timer, whichever is still running.
      over.abort()
      deadline.catch(() => {})
    }
  }
}
