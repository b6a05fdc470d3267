// Only one answer of a signer is accepted: a signature of exactly these bytes by its wallet, in the form that nodes
// take, whatever it answers.
import fc from "fast-check"
import { hexToBigInt, keccak256, parseTransaction, recoverTransactionAddress } from "viem"
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts"
import { describe, expect, it } from "vitest"
import { type Address, checksummed } from "./hex.ts"
import {
  localSigner,
  possibleWallets,
  type SignatureNumbers,
  type Signer,
  SignerError,
  signTransaction,
  type UnsignedTransaction,
  unsignedHash,
} from "./signer.ts"

const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n
const signal = new AbortController().signal
const key = `0x${"11".repeat(32)}` as const
const ours = localSigner(key)
const transaction: UnsignedTransaction = {
  chainId: 84532,
  nonce: 0,
  to: ours.address,
  data: "0x1234",
  value: 0n,
  gas: 21_000n,
  maxFeePerGas: 2n,
  maxPriorityFeePerGas: 1n,
}
/** A signer of our wallet that gives a wrong answer. */
const answering = (change: (true_: SignatureNumbers) => SignatureNumbers): Signer => ({
  address: ours.address,
  sign: async (bytes, signal) => change(await ours.sign(bytes, signal)),
})
const refused = async (signer: Signer) => {
  const error = await signTransaction(signer, transaction, signal).catch((error: unknown) => error)
  expect(error).toBeInstanceOf(SignerError)
  expect(error).toMatchObject({
    isWrong: true,
    message: `answered with something that is not a signature of the wallet ${checksummed(ours.address)}`,
  })
}

describe("signTransaction", () => {
  it("signs exactly what it was given, for any transaction", async () => {
    const amount = fc.bigInt({ min: 0n, max: 2n ** 128n })
    const any = fc.record({
      chainId: fc.integer({ min: 1, max: 2 ** 31 }),
      nonce: fc.nat(),
      data: fc.uint8Array({ maxLength: 200 }).map(bytes => `0x${Buffer.from(bytes).toString("hex")}` as const),
      value: amount,
      gas: amount,
      fees: fc.tuple(amount, amount).map(fees => fees.sort((a, b) => (a < b ? 1 : -1))),
    })
    await fc.assert(
      fc.asyncProperty(any, async ({ fees: [maxFeePerGas = 0n, maxPriorityFeePerGas = 0n], ...rest }) => {
        const asked = { ...rest, to: ours.address, maxFeePerGas, maxPriorityFeePerGas }
        const { raw, hash } = await signTransaction(ours, asked, signal)
        expect(hash).toBe(keccak256(raw))
        const said = parseTransaction(raw as `0x02${string}`)
        // An empty field is left out.
        const of = (name: keyof typeof asked) => (said as typeof asked)[name] ?? (name === "data" ? "0x" : 0)
        for (const name of Object.keys(asked) as (keyof typeof asked)[]) expect(`${of(name)}`).toBe(`${asked[name]}`)
        expect((await recoverTransactionAddress({ serializedTransaction: raw as `0x02${string}` })).toLowerCase()).toBe(
          ours.address,
        )
      }),
      { numRuns: 40 },
    )
  })

  it("takes the signature with the high s as the one with the low s, which nodes take", async () => {
    const honest = await signTransaction(ours, transaction, signal)
    const high = await signTransaction(
      answering(({ r, s }) => ({ r, s: ORDER - s })),
      transaction,
      signal,
    )
    expect(high).toEqual(honest)
    const { s = "0x0" } = parseTransaction(high.raw as `0x02${string}`)
    expect(hexToBigInt(s)).toBeLessThanOrEqual(ORDER / 2n)
  })

  it.each<[string, (true_: SignatureNumbers) => SignatureNumbers]>([
    ["zeros", () => ({ r: 0n, s: 0n })],
    ["r of zero", ({ s }) => ({ r: 0n, s })],
    ["s of the order", ({ r }) => ({ r, s: ORDER })],
    ["s above the order", ({ r, s }) => ({ r, s: s + ORDER })],
    ["r above the order", ({ r, s }) => ({ r: r + ORDER, s })],
    ["a negative s", ({ r, s }) => ({ r, s: -s })],
    ["a number of more than 32 bytes", ({ r }) => ({ r, s: 2n ** 300n })],
    ["r and s exchanged", ({ r, s }) => ({ r: s, s: r })],
    ["another number", ({ r, s }) => ({ r, s: s + 1n })],
  ])("refuses %s", async (_what, change) => {
    await refused(answering(change))
  })

  it("refuses another key's signature, and one of other bytes", async () => {
    await refused({ ...localSigner(generatePrivateKey()), address: ours.address })
    await refused({ address: ours.address, sign: (_bytes, signal) => ours.sign("0x02", signal) })
    const other = { ...transaction, nonce: 1 }
    const { r, s } = parseTransaction((await signTransaction(ours, other, signal)).raw as `0x02${string}`)
    await refused(answering(() => ({ r: hexToBigInt(r ?? "0x0"), s: hexToBigInt(s ?? "0x0") })))
  })
})

it("the hash of what is unsigned differs with every field", () => {
  const changes: Partial<UnsignedTransaction>[] = [
    { chainId: 1 },
    { nonce: 1 },
    { to: `0x${"1".repeat(40)}` as Address },
    { data: "0x1235" },
    { value: 1n },
    { gas: 21_001n },
    { maxFeePerGas: 3n },
    { maxPriorityFeePerGas: 0n },
  ]
  const hashes = changes.map(change => unsignedHash({ ...transaction, ...change }))
  expect(new Set([unsignedHash(transaction), ...hashes]).size).toBe(changes.length + 1)
})

it("two signatures show whose they are", async () => {
  const of = async (bytes: `0x${string}`) => possibleWallets(bytes, await ours.sign(bytes, signal))
  const first = await of("0x01")
  const second = await of("0x02")
  expect(first.filter(wallet => second.includes(wallet))).toEqual([privateKeyToAccount(key).address.toLowerCase()])
  expect(possibleWallets("0x01", { r: 0n, s: 1n })).toEqual([])
})
