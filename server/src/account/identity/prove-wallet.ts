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
  /** A message in the form of EIP-4361; the wallet lock uses typed data instead. */
  purpose: Exclude<NonceUse["purpose"], "wallet-lock">
  /** Path of the route that the signature is for; the message's URI is the base and this. */
  path: string
  /** Whose domain the message names, if not `BASE_URL`'s. */
  baseUrl?: string
  /** Networks whose wallets may sign: a contract at one address can have another owner on each network. */
  networks: readonly Network[]
  /** The required signer, where it is known. */
  address?: Address
}

/** Where a wallet's signature signs in, and what the message's URI names. */
export const SIGN_IN_PATH = "/api/auth/verify"

/**
 * What a wallet signs to sign in at this Host. At a host of the console's own, the message names that host: wallets warn
 * of a message for another domain than the page's.
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

/** What each purpose's message says to the person who signs it. */
const statements: Record<Door["purpose"], string> = {
  "sign-in": "Sign in as a merchant.",
  paywall: "Prove that this wallet is yours, to open what it paid for.",
  return: "Name the address that your money goes back to.",
  subscriptions: "See and cancel the subscriptions of this wallet.",
}

/**
 * Creates a nonce for a purpose, and returns everything that a message for it has to contain; `message` is complete
 * except for the signer's checksummed address, which replaces `{address}`.
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
   * Whether the key of the address signed, which is the same on every network; otherwise a contract of this network
   * did.
   */
  isByKey: boolean
}

/** A wallet as the subject of a token (CAIP-10), with the checksum that wallets display. */
export const caip10Of = ({ address, network }: Pick<Proof, "address" | "network">): string =>
  `eip155:${network.chainId}:${checksummed(address)}`

const resourceOf = ({ purpose, resource }: NonceUse): string =>
  resource === "" ? `urn:sluice:${purpose}` : `urn:sluice:${purpose}:${resource}`

/**
 * Verifies that a wallet signed this message for this purpose, and returns the wallet. Throws `VALIDATION_ERROR` for
 * text that is not such a message, `SIGNATURE_REFUSED` that names each fault, and `CHAIN_UNAVAILABLE` when a contract
 * wallet can't be asked. The nonce stays valid until {@link useProof}, so that a network error, or access that is not
 * granted yet, doesn't cost a signature.
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
  // Checked before the signature: without a nonce of this service, nobody can make it call a node.
  if (!network || !(await isNonceGood(ctx, parsed.nonce, door))) throw nonceGone()
  const { address, nonce } = parsed
  const given = { from: address, digest: hashMessage(message) as Hash, signature: signature as Hex }
  const signed = await readSignature(ctx, network, given, "proof")
  if ("fault" in signed) throw refused("signature", signed.fault)
  return { address, network, nonce, isByKey: signed.by === "key" }
}

/** Uses a proof's nonce up; throws `SIGNATURE_REFUSED` for all but the first caller. */
export async function useProof(ctx: TxContext, door: Door, { nonce }: Proof): Promise<void> {
  if (!(await takeNonce(ctx, nonce, door))) throw nonceGone()
}

const refused = (path: string, ...faults: string[]) =>
  new ApiError(
    "SIGNATURE_REFUSED",
    faults.map(message => ({ path, message })),
  )

const nonceGone = () =>
  refused("message", "has a nonce that is unknown here, already used, or too old: ask for a new one and sign again")
