/** Proof that a caller controls a wallet: a message signed by its key, or approved by its contract (ERC-1271). */
import { type Hex, hashMessage } from "viem"
import { readSignature } from "../../platform/chain/check-signatures.ts"
import { type Address, checksummed, type Hash } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { type Context, type TxContext, wallTime } from "../../platform/context.ts"
import { ApiError, invalid } from "../../platform/errors.ts"
import { isNonceGood, makeNonce, NONCE_MS, type NonceUse, takeNonce } from "./make-nonces.ts"
import { parseSiwe, siweFaults } from "./siwe.ts"

export interface Signed {
  message: string
  signature: string
}

/** What a signature is for. */
export interface Door extends NonceUse {
  /** The purpose of an EIP-4361 message; the wallet lock uses typed data instead. */
  purpose: Exclude<NonceUse["purpose"], "wallet-lock">
  /** Path of the route that the signature is for. The message's URI is the base URL and this path. */
  path: string
  /** The base URL whose domain the message names, if not `BASE_URL`. */
  baseUrl?: string
  /** Networks whose wallets may sign, because a contract address can have a different owner on each network. */
  networks: readonly Network[]
  /** The required signer, if known. */
  address?: Address
}

/** The path to which a wallet's sign-in is sent. The message's URI names this path. */
export const SIGN_IN_PATH = "/api/auth/verify"

/**
 * What a wallet signs to sign in at this Host. At the console's own host, the message names that host, because wallets
 * warn about a message that names another domain.
 */
export function signInDoor({ settings, chain }: Context, host: string | undefined): Door {
  const isConsole = host?.toLowerCase() === new URL(settings.consoleUrl).host
  return {
    purpose: "sign-in",
    resource: "",
    path: SIGN_IN_PATH,
    baseUrl: isConsole ? settings.consoleUrl : settings.baseUrl,
    networks: chain.networks,
  }
}

/** What each purpose's message tells the signer. */
const statements: Record<Door["purpose"], string> = {
  "sign-in": "Sign in as a merchant.",
  paywall: "Prove that this wallet is yours, to open what it paid for.",
  return: "Name the address that your money goes back to.",
  subscriptions: "See and cancel the subscriptions of this wallet.",
}

/**
 * Creates a nonce for a purpose and returns everything that its message must contain. `message` is complete except for
 * `{address}`, which stands for the signer's checksummed address.
 */
export async function offerNonce(ctx: Context, door: Door) {
  const { purpose, resource } = door
  const { nonce, expiresAt } = await makeNonce(ctx, { purpose, resource })
  const { baseUrl = ctx.settings.baseUrl } = door
  const { host: domain } = new URL(baseUrl)
  const uri = `${baseUrl}${door.path}`
  const chainIds = door.networks.map(network => network.chainId)
  const statement = statements[purpose]
  const resources = [resourceOf(door)]
  const message = [
    `${domain} wants you to sign in with your Ethereum account:`,
    "{address}",
    "",
    statement,
    "",
    `URI: ${uri}`,
    "Version: 1",
    `Chain ID: ${chainIds[0]}`,
    `Nonce: ${nonce}`,
    `Issued At: ${wallTime(ctx).toISOString()}`,
    "Resources:",
    ...resources.map(each => `- ${each}`),
  ].join("\n")
  return { nonce, expiresAt: expiresAt.toISOString(), domain, uri, chainIds, statement, resources, message }
}

/** A wallet that signed; its nonce is not used up yet. */
export interface Proof {
  address: Address
  network: Network
  nonce: string
  /**
   * Whether the address's key signed; a key has the same address on every network. Otherwise, the contract at this
   * address on this network signed.
   */
  isByKey: boolean
}

/** A wallet as a token's subject (CAIP-10), with the checksum that wallets display. */
export const caip10Of = ({ address, network }: Pick<Proof, "address" | "network">): string =>
  `eip155:${network.chainId}:${checksummed(address)}`

const resourceOf = ({ purpose, resource }: NonceUse): string =>
  resource === "" ? `urn:sluice:${purpose}` : `urn:sluice:${purpose}:${resource}`

/**
 * Verifies that a wallet signed this message for this purpose, and returns the wallet. Throws `VALIDATION_ERROR` for
 * text that is not such a message, `SIGNATURE_REFUSED` with each fault, and `CHAIN_UNAVAILABLE` if a contract wallet
 * can't be queried. The nonce stays valid until {@link useProof}, so a network error or missing access wastes no
 * signature.
 */
export async function proveWallet(ctx: Context, door: Door, { message, signature }: Signed): Promise<Proof> {
  const parsed = parseSiwe(message)
  if (!parsed) throw invalid("message", "must be a message in the form of EIP-4361, exactly as the wallet signed it")
  const { baseUrl = ctx.settings.baseUrl } = door
  const faults = siweFaults(parsed, {
    baseUrl,
    uri: `${baseUrl}${door.path}`,
    resource: resourceOf(door),
    chainIds: door.networks.map(network => network.chainId),
    ...(door.address === undefined ? {} : { address: door.address }),
    now: wallTime(ctx),
    maxAgeMs: NONCE_MS,
  })
  if (faults.length > 0) throw refused("message", ...faults)
  const network = door.networks.find(each => `${each.chainId}` === parsed.chainId)
  // Checked before the signature: without a valid nonce, nobody can make the service call a node.
  if (!network || !(await isNonceGood(ctx, parsed.nonce, door))) throw nonceGone()
  const { address, nonce } = parsed
  const given = { from: address, digest: hashMessage(message) as Hash, signature: signature as Hex }
  const signed = await readSignature(ctx, network, given, "proof")
  if ("fault" in signed) throw refused("signature", signed.fault)
  return { address, network, nonce, isByKey: signed.by === "key" }
}

/** Uses up a proof's nonce; throws `SIGNATURE_REFUSED` for all but the first caller. */
export async function useProof(ctx: TxContext, door: Door, { nonce }: Proof): Promise<void> {
  if (!(await takeNonce(ctx, nonce, door))) throw nonceGone()
}

const refused = (path: string, ...faults: string[]) =>
  new ApiError(
    "SIGNATURE_REFUSED",
    faults.map(message => ({ path, message })),
  )

const nonceGone = () =>
  refused("message", "has a nonce that is unknown here, already used, or too old: request a new one and sign again")
