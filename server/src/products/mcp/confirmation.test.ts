// The token between the two steps: it is good for five minutes, for one key.
import { expect, it } from "vitest"
import { openToken, tokenOf } from "./confirmation.ts"

const keys = [new Uint8Array(32).fill(7)]
const at = new Date("2026-01-01T00:00:00Z")
const later = (ms: number) => new Date(at.getTime() + ms)
const prepared = { tool: "prepare_return", input: { id: "pay_1" }, path: "/x", body: { a: 1 }, sentence: "Return 1." }

it("opens for five minutes, as it was sealed, and each has an id of its own", () => {
  const { token, expiresAt } = tokenOf(keys, "key_1", prepared, at)
  expect(expiresAt).toEqual(later(300_000))
  expect(openToken(keys, "key_1", token, later(300_000))).toMatchObject(prepared)
  expect(() => openToken(keys, "key_1", token, later(300_001))).toThrow("older than five minutes")
  const other = tokenOf(keys, "key_1", prepared, at).token
  expect(openToken(keys, "key_1", other, at).id).not.toBe(openToken(keys, "key_1", token, at).id)
})

it("opens for no other key, and not when a character of it changed", () => {
  const { token } = tokenOf(keys, "key_1", prepared, at)
  expect(() => openToken(keys, "key_2", token, at)).toThrow("no token")
  for (let i = 0; i < token.length; i += 7) {
    const changed = `${token.slice(0, i)}${token[i] === "A" ? "B" : "A"}${token.slice(i + 1)}`
    expect(() => openToken(keys, "key_1", changed, at)).toThrow("no token")
  }
})
