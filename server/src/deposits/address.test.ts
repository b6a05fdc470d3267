// An address computed here is the one the factory names and the one where a release deploys the deposit.

import fc from "fast-check"
import { type Hex, maxUint64 } from "viem"
import { afterAll, beforeAll, expect, test } from "vitest"
import { type Anvil, deployDepositFactory, deployTestUsdc, startAnvil } from "../../test/anvil.ts"
import { depositAbi, depositFactoryAbi, testUsdcAbi } from "../chain/abi.ts"
import type { Address } from "../chain/hex.ts"
import { depositAddress, depositImplementation } from "./address.ts"

let anvil: Anvil
let usdc: Address
let factory: Address

beforeAll(async () => {
  anvil = await startAnvil()
  usdc = await deployTestUsdc(anvil.client)
  factory = await deployDepositFactory(anvil.client, anvil.accounts[0].address)
})
afterAll(() => anvil.stop())

const bytes = (length: number) =>
  fc.uint8Array({ minLength: length, maxLength: length }).map((array): Hex => `0x${array.toHex()}`)

const terms = fc.record({
  salt: bytes(32),
  owner: bytes(20),
  openAfter: fc.oneof(fc.bigInt(0n, maxUint64), fc.constantFrom(0n, maxUint64)),
})

const offline = (of: { salt: Hex; owner: Hex; openAfter: bigint }) =>
  depositAddress({ factory, implementation: depositImplementation(factory), ...of })

test("the examples in the documentation hold", () => {
  const factory = "0x5fbdb2315678afecb367f032d93f642f64180aa3"
  const implementation = depositImplementation(factory)
  expect(implementation).toBe("0xa16e02e87b7454126e5e10d957a927a7f5b5d2be")
  expect(
    depositAddress({
      factory,
      implementation,
      salt: "0x0000000000000000000000000000000000000000000000000000000000000001",
      owner: "0x70997970c51812dc3a010c7d01b50e0d17dc79c8",
      openAfter: 1893456000n,
    }),
  ).toBe("0xd9921527173dfe153452344486286c4d6c90af55")
})

test("the implementation is at the address where the factory's constructor deployed it", async () => {
  const made = await anvil.client.readContract({
    address: factory,
    abi: depositFactoryAbi,
    functionName: "implementation",
  })
  expect(depositImplementation(factory)).toBe(made.toLowerCase())
})

test("any deposit is at the address that the factory computes", async () => {
  await fc.assert(
    fc.asyncProperty(terms, async of => {
      const named = await anvil.client.readContract({
        address: factory,
        abi: depositFactoryAbi,
        functionName: "addressOf",
        args: [of.salt, of.owner, of.openAfter],
      })
      expect(offline(of)).toBe(named.toLowerCase())
    }),
    { numRuns: 100 },
  )
})

test("a release puts the deposit there, with these terms, and spends what arrived before", async () => {
  const { client } = anvil
  const payee = "0x00000000000000000000000000000000000000aa"
  await fc.assert(
    fc.asyncProperty(terms, async of => {
      const address = offline(of)
      const args = [of.salt, of.owner, of.openAfter, usdc, payee, 1n] as const
      await client.writeContractSync({ address: usdc, abi: testUsdcAbi, functionName: "mint", args: [address, 1n] })
      expect(await client.getCode({ address })).toBeUndefined()
      await client.writeContractSync({ address: factory, abi: depositFactoryAbi, functionName: "release", args })
      const [owner, openAfter] = await client.readContract({ address, abi: depositAbi, functionName: "terms" })
      expect([owner.toLowerCase(), openAfter]).toEqual([of.owner, of.openAfter])
    }),
    { numRuns: 25 },
  )
})

test("no two terms share an address", () => {
  fc.assert(
    fc.property(terms, terms, (a, b) => {
      fc.pre(a.salt !== b.salt || a.owner !== b.owner || a.openAfter !== b.openAfter)
      expect(offline(a)).not.toBe(offline(b))
    }),
  )
  fc.assert(
    fc.property(terms, terms, (a, b) => {
      fc.pre(a.salt !== b.salt && a.owner !== b.owner && a.openAfter !== b.openAfter)
      const one = offline(a)
      expect(offline({ ...a, salt: b.salt })).not.toBe(one)
      expect(offline({ ...a, owner: b.owner })).not.toBe(one)
      expect(offline({ ...a, openAfter: b.openAfter })).not.toBe(one)
    }),
  )
})

test("an opening time outside uint64 is refused rather than cut", () => {
  const of = { salt: `0x${"11".repeat(32)}`, owner: `0x${"22".repeat(20)}` } as const
  expect(() => offline({ ...of, openAfter: maxUint64 + 1n })).toThrow("not in safe 64-bit unsigned integer range")
  expect(() => offline({ ...of, openAfter: -1n })).toThrow("not in safe 64-bit unsigned integer range")
})
