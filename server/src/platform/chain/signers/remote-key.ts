/**
 * Parses the names of keys that are kept outside the process, as settings contain them. Pure, except that it checks
 * whether a client's package is installed.
 */
import { findPackageJSON } from "node:module"
import { type Address, parseAddress } from "../hex.ts"

export type RemoteKind = "aws-kms" | "gcp-kms" | "web3signer"

/** The location of a key: an ARN, the name of a key version, or the address of a Web3Signer. */
export interface RemoteKey {
  kind: RemoteKind
  name: string
}

/** The form of a name, in words for the operator. */
interface Kind {
  pattern: RegExp
  form: string
  /** The package of the client for this kind of key. The service loads only the clients that it needs. */
  client?: string
}

const kinds: Record<RemoteKind, Kind> = {
  "aws-kms": {
    pattern: /^arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:(key|alias)\/[\w/-]+$/,
    form: "arn:aws:kms:REGION:ACCOUNT:key/ID",
    client: "@aws-sdk/client-kms",
  },
  "gcp-kms": {
    pattern: /^projects\/[\w:.-]+\/locations\/[\w-]+\/keyRings\/[\w-]+\/cryptoKeys\/[\w-]+\/cryptoKeyVersions\/\d+$/,
    form: "projects/PROJECT/locations/LOCATION/keyRings/RING/cryptoKeys/KEY/cryptoKeyVersions/VERSION",
    client: "google-auth-library",
  },
  web3signer: { pattern: /^https?:\/\/[^\s@?#]+$/, form: "https://HOST:PORT" },
}

const isKind = (text: string): text is RemoteKind => Object.hasOwn(kinds, text)

/** Parses a key's name, `KIND:NAME`; throws an Error that completes "NAME …". */
export function parseRemoteKey(text: string): RemoteKey {
  const [kind = ""] = text.split(":", 1)
  if (!isKind(kind)) throw new Error(`must start with ${Object.keys(kinds).join(":, ")}:`)
  const { pattern, form, client } = kinds[kind]
  const name = text.slice(kind.length + 1).replace(/\/+$/, "")
  if (!pattern.test(name) || (kind === "web3signer" && !URL.canParse(name)))
    throw new Error(`must name a key as ${kind}:${form}`)
  if (client && !findPackageJSON(client, import.meta.url))
    throw new Error(`needs the package ${client}, which is not installed: install without --omit=optional`)
  return { kind, name }
}

/** Parses a key's name followed by its wallet's address, `KIND:NAME/0x…`; throws an Error that completes "NAME …". */
export function parseRemoteWallet(text: string): { key: RemoteKey; address: Address } {
  const end = text.lastIndexOf("/")
  const address = parseAddress(text.slice(end + 1))
  if (!address) {
    parseRemoteKey(text)
    throw new Error(`must end with a slash and the wallet's address, which \`sluice signer ${text}\` prints`)
  }
  return { key: parseRemoteKey(text.slice(0, end)), address }
}
