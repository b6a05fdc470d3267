/**
 * Parses the messages that wallets sign (EIP-4361) against the whole grammar, and checks everything that they must
 * contain. Pure.
 *
 * viem's parser takes the first occurrence of each field. Text in the statement or an extra line can then replace what
 * the wallet displayed. This parser rejects a message that does not match the grammar from start to end.
 */
import { type Address, checksummed, parseAddress } from "../../platform/chain/hex.ts"

export interface SiweMessage {
  scheme: string | undefined
  domain: string
  address: Address
  uri: string
  version: string
  chainId: string
  nonce: string
  issuedAt: Date
  expirationTime: Date | undefined
  notBefore: Date | undefined
  resources: string[]
}

/** What a message must contain for one purpose. */
export interface Expected {
  /** The base URL of the service, without a trailing slash. */
  baseUrl: string
  /** The address that the signature is for. */
  uri: string
  /** The only resource: what the signature is for. */
  resource: string
  chainIds: readonly number[]
  /** The required signer, if known. */
  address?: Address
  now: Date
  /** The maximum age, in milliseconds. */
  maxAgeMs: number
}

/** Allowed difference between clocks, in milliseconds. */
const LEEWAY_MS = 60_000

const TIME = String.raw`\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:Z|[+-]\d{2}:\d{2})`
const grammar = new RegExp(
  [
    String.raw`^(?:(?<scheme>[a-z][a-z0-9+.-]*)://)?(?<domain>[^\s/?#@]+) wants you to sign in with your Ethereum account:`,
    "(?<address>0x[0-9a-fA-F]{40})",
    "",
    // A statement is one line without control characters.
    String.raw`(?:[^\x00-\x1f\x7f]+\n)?`,
    String.raw`URI: (?<uri>\S+)`,
    String.raw`Version: (?<version>\d{1,9})`,
    String.raw`Chain ID: (?<chainId>\d{1,15})`,
    "Nonce: (?<nonce>[0-9A-Za-z]{8,64})",
    String.raw`Issued At: (?<issuedAt>${TIME})(?:\nExpiration Time: (?<expirationTime>${TIME}))?` +
      String.raw`(?:\nNot Before: (?<notBefore>${TIME}))?(?:\nRequest ID: [^\x00-\x1f\x7f]*)?` +
      String.raw`(?:\nResources:(?<resources>(?:\n- \S+)*))?$`,
  ].join(String.raw`\n`),
)

/** The fields of a message, or undefined when it does not match the grammar. */
export function parseSiwe(text: string): SiweMessage | undefined {
  const found = grammar.exec(text)?.groups
  const address = parseAddress(found?.address)
  if (!found || !address) return undefined
  const time = (value: string | undefined) => (value === undefined ? undefined : new Date(value))
  const times = {
    issuedAt: time(found.issuedAt),
    expirationTime: time(found.expirationTime),
    notBefore: time(found.notBefore),
  }
  // A time can match the grammar without existing, such as hour 99.
  if (!times.issuedAt || Object.values(times).some(each => each && Number.isNaN(each.getTime()))) return undefined
  const { scheme, domain = "", uri = "", version = "", chainId = "", nonce = "", resources = "" } = found
  return {
    scheme,
    domain,
    address,
    uri,
    version,
    chainId,
    nonce,
    ...times,
    issuedAt: times.issuedAt,
    resources: resources.split("\n- ").slice(1),
  }
}

/** The faults of a message, each as the end of a sentence that starts with "message"; empty for a correct one. */
export function siweFaults(message: SiweMessage, expected: Expected): string[] {
  const { protocol, host } = new URL(expected.baseUrl)
  const now = expected.now.getTime()
  const { issuedAt, expirationTime, notBefore } = message
  const checks: [right: boolean, fault: string][] = [
    [message.domain === host, `must name the domain ${host}`],
    [message.scheme === undefined || `${message.scheme}:` === protocol, `must name the scheme ${protocol}// or none`],
    [
      expected.address === undefined || message.address === expected.address,
      `must be signed for ${checksummed(expected.address ?? message.address)}`,
    ],
    [message.uri === expected.uri, `must name the URI ${expected.uri}`],
    [message.version === "1", "must have Version: 1"],
    [
      expected.chainIds.some(chainId => `${chainId}` === message.chainId),
      `must name the chain ID ${expected.chainIds.join(" or ")}`,
    ],
    [
      message.resources.length === 1 && message.resources[0] === expected.resource,
      `must name only the resource ${expected.resource}`,
    ],
    [issuedAt.getTime() <= now + LEEWAY_MS, "was issued in the future: check the device's clock"],
    [
      issuedAt.getTime() >= now - expected.maxAgeMs - LEEWAY_MS,
      "was issued too long ago: request a new nonce and sign again",
    ],
    [expirationTime === undefined || expirationTime.getTime() > now, "has expired: request a new nonce and sign again"],
    [notBefore === undefined || notBefore.getTime() <= now + LEEWAY_MS, "is not valid yet: check its Not Before"],
  ]
  return checks.filter(([right]) => !right).map(([_, fault]) => fault)
}
