// The rules of authorizations: what is signed, who signed it, and the call that submits it.
import fc from "fast-check"
import { decodeFunctionData, type Hex, parseAbi, slice, toHex } from "viem"
import { privateKeyToAccount } from "viem/accounts"
import { expect, it } from "vitest"
import { paperNetwork } from "../../../test/service.ts"
import { type Authorization, authorizationDigest, relayCall, typedAuthorization } from "./authorizations.ts"
import { readSignature } from "./check-signatures.ts"
import type { Address, Hash } from "./hex.ts"
import { marked, payoutIdIn } from "./release-call.ts"

const hex = (bytes: number) => fc.uint8Array({ minLength: bytes, maxLength: bytes }).map(each => toHex(each))
const uint = fc.bigInt({ min: 0n, max: 2n ** 256n - 1n })
const authorization: fc.Arbitrary<Authorization> = fc.record({
  from: hex(20) as fc.Arbitrary<Address>,
  to: hex(20) as fc.Arbitrary<Address>,
  value: uint,
  validAfter: uint,
  validBefore: uint,
  nonce: hex(32) as fc.Arbitrary<Hash>,
})
const fields = "address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce"
const overloads = {
  key: [parseAbi([`function transferWithAuthorization(${fields}, uint8 v, bytes32 r, bytes32 s)`]), "0xe3ee160e"],
  contract: [parseAbi([`function transferWithAuthorization(${fields}, bytes signature)`]), "0xcf092995"],
} as const

it("a relay's call says exactly what was signed, in the form that USDC has, and ends with its payout", () => {
  fc.assert(
    fc.property(
      authorization,
      fc.tuple(hex(64), fc.constantFrom("1b", "1c")).map(([rs, v]) => `${rs}${v}` as Hex),
      fc.constantFrom("key" as const, "contract" as const),
      fc.uuid(),
      (given, signature, by, id) => {
        const call = relayCall(given, signature, by)
        const [abi, selector] = overloads[by]
        expect(slice(call, 0, 4)).toBe(selector)
        const { args } = decodeFunctionData({ abi: abi as (typeof overloads.key)[0], data: call })
        const said = args.slice(0, 6).map(each => (typeof each === "string" ? each.toLowerCase() : each))
        const { from, to, value, validAfter, validBefore, nonce } = given
        expect(said).toEqual([from, to, value, validAfter, validBefore, nonce])
        const [first, r, s] = args.slice(6) as unknown as [number | Hex, Hex, Hex]
        expect(by === "contract" ? first : `${r}${s.slice(2)}${first.toString(16)}`).toBe(signature)
        expect(payoutIdIn(marked(call, id))).toBe(id)
      },
    ),
  )
})

it("a key's signature is accepted for what it signed, and for nothing that differs in one field or in its domain", async () => {
  const changes: ((given: Authorization) => Partial<Authorization>)[] = [
    given => ({ to: `${given.to.slice(0, -1)}${given.to.endsWith("0") ? "1" : "0"}` as Address }),
    given => ({ value: given.value ^ 1n }),
    given => ({ validAfter: given.validAfter ^ 1n }),
    given => ({ validBefore: given.validBefore ^ 1n }),
    given => ({ nonce: `${given.nonce.slice(0, -1)}${given.nonce.endsWith("0") ? "1" : "0"}` as Hash }),
  ]
  const other = { ...paperNetwork, token: { ...paperNetwork.token, version: "1" } }
  const ctx = { signal: new AbortController().signal }
  await fc.assert(
    fc.asyncProperty(authorization, fc.constantFrom(...changes), async (given, change) => {
      const account = privateKeyToAccount(`0x${"7".repeat(64)}`)
      const from = account.address.toLowerCase() as Address
      const signed = { ...given, from }
      const signature = await account.signTypedData(typedAuthorization(paperNetwork, signed))
      const digest = authorizationDigest(paperNetwork, signed)
      const good = { by: "key", signature }
      expect(await readSignature(ctx, paperNetwork, { from, digest, signature }, "transaction")).toEqual(good)
      for (const another of [
        authorizationDigest(paperNetwork, { ...signed, ...change(signed) }),
        authorizationDigest(other, signed),
        authorizationDigest({ ...paperNetwork, chainId: 1 }, signed),
      ]) {
        expect(another).not.toBe(digest)
        // Not the signature of a key, so a contract would have to be asked, and there is no node.
        const read = readSignature(ctx, paperNetwork, { from, digest: another, signature }, "transaction")
        await expect(read).rejects.toThrow("can't be reached")
      }
    }),
    { numRuns: 20 },
  )
})
