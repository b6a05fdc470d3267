import { randomBytes } from "node:crypto"
import { describe, expect, it } from "vitest"
import { isSealedWith, macsOf, seal, unseal } from "./secrets.ts"

const key = [randomBytes(32)]
const sealed = seal(key, "webhook-secret", "wh_1", "whsec_ünïcode")

describe("a sealed secret", () => {
  it("decrypts for its own key, purpose and owner, and never looks the same twice", () => {
    expect(unseal(key, "webhook-secret", "wh_1", sealed)).toBe("whsec_ünïcode")
    expect(seal(key, "webhook-secret", "wh_1", "whsec_ünïcode")).not.toBe(sealed)
    expect(unseal(key, "signing-key", "k", seal(key, "signing-key", "k", ""))).toBe("")
  })

  it.each([
    ["another key", () => unseal([randomBytes(32)], "webhook-secret", "wh_1", sealed)],
    ["another purpose", () => unseal(key, "signing-key", "wh_1", sealed)],
    ["another owner", () => unseal(key, "webhook-secret", "wh_2", sealed)],
    ["a part of it", () => unseal(key, "webhook-secret", "wh_1", sealed.slice(0, 20))],
    ["nothing", () => unseal(key, "webhook-secret", "wh_1", "")],
  ])("is not decrypted with %s, and does not reveal itself", (_what, open) => {
    expect(open).toThrow(/can't be decrypted: was SECRET_KEY changed/)
    expect(open).not.toThrow(/whsec_/)
  })

  it("is refused when a bit of it was changed, anywhere", () => {
    const bytes = Buffer.from(sealed, "base64url")
    for (let i = 0; i < bytes.length; i++) {
      const changed = Buffer.from(bytes)
      changed[i] = (changed[i] ?? 0) ^ 1
      expect(() => unseal(key, "webhook-secret", "wh_1", changed.toString("base64url"))).toThrow(/can't be decrypted/)
    }
  })

  it("needs a key", () => {
    expect(() => seal([], "signing-key", "k", "x")).toThrow("SECRET_KEY is not set")
  })

  it("decrypts with either of two keys while the key is changed, and is encrypted with the first", () => {
    const before = randomBytes(32)
    const next = randomBytes(32)
    const old = seal([before], "signing-key", "k", "x")
    for (const keys of [
      [before, next],
      [next, before],
    ])
      expect(unseal(keys, "signing-key", "k", old)).toBe("x")
    const fresh = seal([next, before], "signing-key", "k", "x")
    expect([next, before].map(each => isSealedWith(each, "signing-key", "k", fresh))).toEqual([true, false])
  })
})

it("a MAC is accepted by either key, and made with the first", () => {
  const before = randomBytes(32)
  const next = randomBytes(32)
  const [old] = macsOf([before], "x402-retry", "set_1")
  expect(macsOf([next, before], "x402-retry", "set_1").map(mac => mac.equals(old))).toEqual([false, true])
})
