import fc from "fast-check"
import { type Hex, keccak256, recoverAddress, toHex } from "viem"
import { privateKeyToAccount } from "viem/accounts"
import { expect, it } from "vitest"
import { recoverSigner } from "./recover.ts"

const hex = (length: number) => fc.uint8Array({ minLength: length, maxLength: length }).map(bytes => toHex(bytes))

it("recovers the signer of what a key signed, and of anything else the same as viem does", async () => {
  await fc.assert(
    fc.asyncProperty(
      hex(32),
      hex(32),
      hex(64),
      fc.constantFrom("00", "01", "1b", "1c", "1d", "02"),
      async (key, text, rs, v) => {
        const hash = keccak256(text)
        const account = privateKeyToAccount(keccak256(key))
        expect(recoverSigner(hash, await account.sign({ hash }))).toBe(account.address.toLowerCase())
        const other = `${rs}${v}` as Hex
        const expected = await recoverAddress({ hash, signature: other }).catch(() => undefined)
        expect(recoverSigner(hash, other)).toBe(expected?.toLowerCase())
      },
    ),
    { numRuns: 40 },
  )
})

it.each(["00".repeat(32), "ff".repeat(32), "fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141"])(
  "recovers nobody where r or s is %s",
  part => {
    const hash = keccak256("0x12")
    expect(recoverSigner(hash, `0x${part}${"11".repeat(32)}1b`)).toBeUndefined()
    expect(recoverSigner(hash, `0x${"11".repeat(32)}${part}1b`)).toBeUndefined()
    expect(recoverSigner(hash, `0x${"11".repeat(63)}1b`)).toBeUndefined()
  },
)
