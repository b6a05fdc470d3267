// The real clients of AWS KMS, Google Cloud KMS and Web3Signer against a server that speaks their protocols: what they ask, what they take,
// and what they say of everything else.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { keccak256, recoverTransactionAddress } from "viem"
import { generatePrivateKey, privateKeyToAddress } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from "vitest"
import { type RemoteSigners, type SignerFault, startRemoteSigners } from "../../../../test/remote-signers.ts"
import { SignerError, signTransaction, type UnsignedTransaction, unsignedHash } from "../signer.ts"
import { numbersOfDer } from "./der.ts"
import { parseRemoteKey, parseRemoteWallet, type RemoteKind } from "./remote-key.ts"
import { remoteSigner, trySigner, walletOfKey, walletsOf } from "./remote-signer.ts"

const kinds = ["aws-kms", "gcp-kms", "web3signer"] as const
const signal = new AbortController().signal
let signers: RemoteSigners
let dir: string

beforeAll(async () => {
  signers = await startRemoteSigners()
  dir = mkdtempSync(join(tmpdir(), "sluice-signers-"))
  writeFileSync(join(dir, "identity"), "the-token-of-a-workload")
  // As a workload outside of Google signs in: its own token for one of Google's.
  const credentials = {
    type: "external_account",
    audience: "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/p",
    subject_token_type: "urn:ietf:params:oauth:token-type:jwt",
    token_url: `${signers.url}/token`,
    credential_source: { file: join(dir, "identity") },
  }
  writeFileSync(join(dir, "google.json"), JSON.stringify(credentials))
  vi.stubEnv("AWS_ACCESS_KEY_ID", "an-id")
  vi.stubEnv("AWS_SECRET_ACCESS_KEY", "a-secret-of-aws")
  vi.stubEnv("AWS_SESSION_TOKEN", "a-session-of-a-role")
  vi.stubEnv("GOOGLE_APPLICATION_CREDENTIALS", join(dir, "google.json"))
})
afterAll(async () => {
  vi.unstubAllEnvs()
  rmSync(dir, { recursive: true })
  await signers.stop()
})
beforeEach(() => {
  signers.fault = () => undefined
  signers.asked.length = 0
  signers.heard.length = 0
})

const transaction: UnsignedTransaction = {
  chainId: 84532,
  nonce: 7,
  to: parseRemoteWallet(`web3signer:http://x/0x${"1".repeat(40)}`).address,
  data: "0x1234",
  value: 0n,
  gas: 21_000n,
  maxFeePerGas: 2n,
  maxPriorityFeePerGas: 1n,
}
const signerOf = (kind: RemoteKind, wallet = signers.wallet) =>
  remoteSigner(signers.keyOf(kind), wallet, { endpoint: signers.url })
const failure = (kind: RemoteKind, wallet = signers.wallet): Promise<SignerError> =>
  signTransaction(signerOf(kind, wallet), transaction, signal).then(
    () => Promise.reject(new Error("it was signed")),
    error => error,
  )

describe.each(kinds)("%s", kind => {
  it("signs the very hash of the transaction, differently each time, and always for its wallet", async () => {
    const signer = signerOf(kind)
    const signed = await Promise.all(Array.from({ length: 8 }, () => signTransaction(signer, transaction, signal)))
    expect(new Set(signed.map(({ hash }) => hash)).size).toBe(8)
    for (const { raw, hash } of signed) {
      expect(keccak256(raw)).toBe(hash)
      const from = await recoverTransactionAddress({ serializedTransaction: raw as `0x02${string}` })
      expect(from.toLowerCase()).toBe(signers.wallet)
    }
    expect(new Set(signers.asked)).toEqual(new Set([unsignedHash(transaction)]))
  })

  it.each<[SignerFault, boolean, RegExp]>([
    ["garbage", true, /^answered with something that is not a signature$/],
    ["empty", true, /^answered (without a signature|with something that is not a signature)$/],
    ["other key", true, /^answered with something that is not a signature of the wallet 0x/],
    ["other hash", true, /^answered with something that is not a signature of the wallet 0x/],
    ["refuse", false, /(AccessDeniedException: |HTTP 403: .*)not authorized to(\\t| )sign with this key/],
    ["down", false, /503|try later|UnknownError|ServiceException/],
    ["cut", false, /socket hang up|ECONNRESET|UND_ERR_SOCKET|other side closed|can't be reached/],
    ["echo", false, kind === "web3signer" ? /HTTP 403/ : /\[secret\]/],
    ["redirect", false, /^(answered HTTP 302|failed: )/],
  ])("that answers %s is not believed", async (fault, isWrong, words) => {
    signers.fault = () => fault
    const error = await failure(kind)
    expect(error).toBeInstanceOf(SignerError)
    expect(error.message).toMatch(words)
    expect(error.isWrong).toBe(isWrong)
    expect(error.message).not.toMatch(
      /a-secret-of-aws|a-session-of-a-role|a-token-of-the-test|the-token-of-a-workload|\n/,
    )
  })

  it("that does not answer has a deadline, and so has a process that ends", async () => {
    signers.fault = () => "hang"
    const slow = remoteSigner(signers.keyOf(kind), signers.wallet, { endpoint: signers.url, timeoutMs: 300 })
    await expect(slow.sign("0x02", signal)).rejects.toThrow("did not answer within 0.3 seconds")
    const ending = new AbortController()
    signers.fault = () => {
      ending.abort()
      return "hang"
    }
    await expect(signerOf(kind).sign("0x02", ending.signal)).rejects.toThrow()
  })

  it("that is not there is said so", async () => {
    const nobody = await startRemoteSigners()
    await nobody.stop()
    const signer = remoteSigner(nobody.keyOf(kind), nobody.wallet, { endpoint: nobody.url })
    await expect(signer.sign("0x02", signal)).rejects.toThrow(/ECONNREFUSED/)
  })

  it("is tried with a sentence, and one of another wallet is found out", async () => {
    await trySigner(signerOf(kind), signal)
    expect(signers.asked.length).toBe(1)
    const other = parseRemoteWallet(`web3signer:http://x/${privateKeyToAddress(generatePrivateKey())}`).address
    await expect(trySigner(signerOf(kind, other), signal)).rejects.toThrow(/a wallet other than|no key of the wallet/)
  })
})

it.each(kinds)("%s is read no further than a megabyte", async kind => {
  signers.fault = () => "endless"
  expect((await failure(kind)).message).toMatch(/the answer is larger than 1,048,576 bytes/)
})

it("the wallet of a key is found by its signatures alone, and a Web3Signer lists its own", async () => {
  for (const kind of ["aws-kms", "gcp-kms"] as const)
    expect(await walletOfKey(signers.keyOf(kind), signal, { endpoint: signers.url })).toBe(signers.wallet)
  signers.fault = () => "other key"
  await expect(walletOfKey(signers.keyOf("aws-kms"), signal, { endpoint: signers.url })).rejects.toThrow(
    "not a signature",
  )
  expect((await walletsOf(signers.url, signal)).map(({ wallet }) => wallet)).toEqual([signers.wallet])
  const silent = createServer(() => {})
  await new Promise<void>(resolve => silent.listen(0, "127.0.0.1", resolve))
  const url = `http://127.0.0.1:${(silent.address() as AddressInfo).port}`
  await expect(walletsOf(url, signal, 300)).rejects.toThrow("did not answer within 0.3 seconds")
  silent.closeAllConnections()
  silent.close()
})

it("credentials go to the provider's own places alone", async () => {
  await signTransaction(signerOf("aws-kms"), transaction, signal)
  await signTransaction(signerOf("gcp-kms"), transaction, signal)
  expect(signers.heard.join()).not.toContain("a-secret-of-aws")
  const [exchange] = signers.heard.filter(text => text.includes("the-token-of-a-workload"))
  expect(exchange).toMatch(/^POST \/token /)
})

describe("a key's name", () => {
  const arn = "aws-kms:arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
  const version = "gcp-kms:projects/p/locations/global/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1"
  const wallet = `0x${"Ab".repeat(20)}`

  it.each([arn, version, "web3signer:https://signer.internal:9000", "web3signer:http://10.0.0.7:9000/behind/a/path"])(
    "%s is read with its wallet",
    name => {
      const { key, address } = parseRemoteWallet(`${name}/${wallet.toLowerCase()}`)
      expect([`${key.kind}:${key.name}`, address]).toEqual([name, wallet.toLowerCase()])
    },
  )

  it.each([
    [`vault:x/${wallet.toLowerCase()}`, /must start with aws-kms:, gcp-kms:, web3signer:/],
    [arn, /must end with a slash and the wallet's address, which `sluice signer aws-kms:arn/],
    [`${arn}/0x1234`, /must (end with|name a key)/],
    [`aws-kms:alias/payout/${wallet.toLowerCase()}`, /must name a key as aws-kms:arn:/],
    [`aws-kms:arn:aws:s3:eu-central-1:111122223333:key/x/${wallet.toLowerCase()}`, /must name a key as aws-kms:arn:/],
    [
      `gcp-kms:projects/p/locations/global/keyRings/r/cryptoKeys/k/${wallet.toLowerCase()}`,
      /cryptoKeyVersions\/VERSION/,
    ],
    [`web3signer:signer:9000/${wallet.toLowerCase()}`, /must name a key as web3signer:https/],
    [`web3signer:https://user:pass@signer:9000/${wallet.toLowerCase()}`, /must name a key as web3signer:https/],
  ])("%s is refused", (text, words) => {
    expect(() => parseRemoteWallet(text)).toThrow(words)
  })

  it("of a kind without a wallet is one too, for asking which it is", () => {
    expect(parseRemoteKey(arn)).toEqual({ kind: "aws-kms", name: arn.slice("aws-kms:".length) })
  })
})

describe("DER", () => {
  const good = "30060201010201 02".replace(" ", "")
  it("is read strictly", () => {
    expect(numbersOfDer(Buffer.from(good, "hex"))).toEqual({ r: 1n, s: 2n })
  })

  it.each([
    ["nothing", ""],
    ["something behind it", `${good}00`],
    ["something behind its numbers", "3007020101020102ff"],
    ["a longer length than it has", "3007020101020102"],
    ["a length in the long form", "308106020101020102"],
    ["another tag", "3106020101020102"],
    ["a number with another tag", "3006030101020102"],
    ["a superfluous zero", "300702020001020102"],
    ["a negative number", "3006020181020102"],
    ["a number without digits", "30050200020102"],
    ["zero", "3006020100020102"],
  ])("refuses %s", (_what, hex) => {
    expect(() => numbersOfDer(Buffer.from(hex, "hex"))).toThrow("not a signature")
  })
})
