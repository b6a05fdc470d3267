/**
 * Signers of other machines in a test: one HTTP server with a real key that speaks as a Web3Signer, as AWS KMS (JSON 1.1) and as Google
 * Cloud KMS (REST), and that does what a test says. It signs the same hash differently each time, with the high s as often as with the low
 * one, as a KMS does.
 */
import { randomBytes } from "node:crypto"
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { getPublicKey, sign } from "ox/Secp256k1"
import { toDerBytes } from "ox/Signature"
import { type Hex, hexToBytes, keccak256, numberToHex, toHex } from "viem"
import { privateKeyToAddress } from "viem/accounts"
import type { Address } from "../src/platform/chain/hex.ts"
import type { RemoteKey, RemoteKind } from "../src/platform/chain/signers/remote-key.ts"

const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n

/** What is wrong with an answer. `hang`: it never comes; `cut`: the connection ends after the key has signed; `echo`: it refuses, with
 * all headers that it was sent. */
export type SignerFault =
  | "hang"
  | "cut"
  | "down"
  | "refuse"
  | "redirect"
  | "garbage"
  | "empty"
  | "endless"
  | "echo"
  | "other key"
  | "other hash"

export interface RemoteSigners {
  url: string
  wallet: Address
  /** How the service names the key. */
  keyOf(kind: RemoteKind): RemoteKey
  /** Asked for each request to sign, with how many came before; nothing: it signs. May wait. */
  fault: (nth: number) => SignerFault | undefined | Promise<SignerFault | undefined>
  /** Hashes that it was asked to sign, in order. */
  asked: Hex[]
  /** What came with each request, in one text: paths, headers and bodies. */
  heard: string[]
  stop(): Promise<void>
}

const AWS = "application/x-amz-json-1.1"
const ARN = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
const VERSION = "projects/p/locations/europe-west3/keyRings/r/cryptoKeys/payout/cryptoKeyVersions/1"

/** Starts one on a free port of the loopback interface. */
export async function startRemoteSigners(key: Hex = toHex(randomBytes(32))): Promise<RemoteSigners> {
  const server = createServer((request, response) => {
    void readBody(request).then(body => answer(signers, key, { request, response, body }))
  })
  await new Promise<void>(resolve => server.listen(0, "127.0.0.1", resolve))
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const signers: RemoteSigners = {
    url,
    wallet: privateKeyToAddress(key).toLowerCase() as Address,
    keyOf: kind => ({ kind, name: { "aws-kms": ARN, "gcp-kms": VERSION, web3signer: url }[kind] }),
    fault: () => undefined,
    asked: [],
    heard: [],
    stop: () =>
      new Promise(resolve => {
        server.closeAllConnections()
        server.close(() => resolve())
      }),
  }
  return signers
}

interface Exchange {
  request: IncomingMessage
  response: ServerResponse
  body: string
}

async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk as Buffer)
  return Buffer.concat(chunks).toString("utf8")
}

async function answer(signers: RemoteSigners, key: Hex, exchange: Exchange): Promise<void> {
  const { request, response, body } = exchange
  const path = request.url ?? ""
  signers.heard.push(`${request.method} ${path} ${JSON.stringify(request.headers)} ${body}`)
  const kind = kindOf(request)
  const hash = kind && hashIn(kind, body)
  if (path === "/token") json(response, 200, tokenAnswer)
  else if (path === "/api/v1/eth1/publicKeys") json(response, 200, [publicKeyOf(key)])
  else if (!kind || !hash) json(response, 400, { message: "not understood", path })
  else {
    const fault = await signers.fault(signers.asked.length)
    signers.asked.push(hash)
    act({ kind, key, hash, request, response, fault })
  }
}

interface Act {
  kind: RemoteKind
  key: Hex
  hash: Hex
  request: IncomingMessage
  response: ServerResponse
  fault: SignerFault | undefined
}

function act({ kind, key, hash, request, response, fault }: Act): void {
  if (fault === "cut") response.destroy()
  else if (fault === "down") json(response, 503, { message: "try later" })
  else if (fault === "redirect") response.writeHead(302, { location: "/elsewhere" }).end()
  else if (fault === "refuse") refuse(kind, response)
  else if (fault === "echo") refuse(kind, response, Object.values(request.headers).join(" "))
  else if (fault === "endless") endless(response)
  else if (fault !== "hang") {
    const by = fault === "other key" ? toHex(randomBytes(32)) : key
    write(kind, response, signatureOf(by, fault === "other hash" ? keccak256(hash) : hash), fault)
  }
}

/** Some megabytes; who reads with a limit stops before. */
function endless(response: ServerResponse): void {
  response.writeHead(200, { "content-type": "text/plain" })
  for (let i = 0; i < 64; i++) response.write(Buffer.alloc(65_536, "0"))
  response.end()
}

const tokenAnswer = {
  access_token: "a-token-of-the-test",
  issued_token_type: "urn:ietf:params:oauth:token-type:access_token",
  token_type: "Bearer",
  expires_in: 3_600,
}

const publicKeyOf = (key: Hex): Hex => {
  const { x, y } = getPublicKey({ privateKey: key })
  return `${numberToHex(x, { size: 32 })}${numberToHex(y, { size: 32 }).slice(2)}`
}

function kindOf({ url = "", headers }: IncomingMessage): RemoteKind | undefined {
  if (headers["x-amz-target"] === "TrentService.Sign") return "aws-kms"
  if (url === `/v1/${VERSION}:asymmetricSign` && headers.authorization === `Bearer ${tokenAnswer.access_token}`)
    return "gcp-kms"
  return /^\/api\/v1\/eth1\/sign\/0x[0-9a-f]{128}$/.test(url) ? "web3signer" : undefined
}

function hashIn(kind: RemoteKind, body: string): Hex | undefined {
  const said = JSON.parse(body)
  if (kind === "web3signer") return keccak256(said.data)
  if (kind === "gcp-kms") return toHex(Buffer.from(said.digest.sha256, "base64"))
  const { KeyId, MessageType, SigningAlgorithm } = said
  if (KeyId !== ARN || MessageType !== "DIGEST" || SigningAlgorithm !== "ECDSA_SHA_256") return undefined
  return toHex(Buffer.from(said.Message, "base64"))
}

interface Numbers {
  r: bigint
  s: bigint
  yParity: number
}

/** Another one each time: with random entropy, and with the high s by chance. */
function signatureOf(privateKey: Hex, payload: Hex): Numbers {
  const { r, s, yParity } = sign({ payload, privateKey, extraEntropy: true })
  return r % 2n === 0n ? { r, s, yParity } : { r, s: ORDER - s, yParity: 1 - yParity }
}

function write(kind: RemoteKind, response: ServerResponse, signature: Numbers, fault: SignerFault | undefined): void {
  const der = Buffer.from(fault === "garbage" ? hexToBytes("0x3006020101020100ff") : toDerBytes(signature)).toString(
    "base64",
  )
  const { r, s, yParity } = signature
  const hex = `${numberToHex(r, { size: 32 })}${numberToHex(s, { size: 32 }).slice(2)}${(27 + yParity).toString(16)}`
  if (kind === "aws-kms") json(response, 200, fault === "empty" ? {} : { KeyId: ARN, Signature: der }, AWS)
  else if (kind === "gcp-kms") json(response, 200, fault === "empty" ? {} : { signature: der, name: VERSION })
  else
    response
      .writeHead(200, { "content-type": "text/plain; charset=utf-8" })
      .end(fault === "empty" ? "" : fault === "garbage" ? hex.slice(0, -2) : hex)
}

function refuse(kind: RemoteKind, response: ServerResponse, message = "not authorized to\tsign with this key"): void {
  if (kind === "aws-kms") json(response, 400, { __type: "AccessDeniedException", message }, AWS)
  else json(response, 403, { error: { code: 403, status: "PERMISSION_DENIED", message } })
}

function json(response: ServerResponse, status: number, body: object, type = "application/json"): void {
  response.writeHead(status, { "content-type": type }).end(JSON.stringify(body))
}
