/** Bytes as text and back: hexadecimal, base64url (RFC 4648, without padding) and UTF-8. */

export type Bytes = Uint8Array<ArrayBuffer>

const HEX = /^0x([0-9a-f]{2})*$/

/** The bytes of lower-case hexadecimal after `0x`; throws for any other text. */
export function fromHex(text: string): Bytes {
  if (!HEX.test(text)) throw new Error("it is not hexadecimal")
  const bytes = new Uint8Array(text.length / 2 - 1)
  for (let i = 0; i < bytes.length; i++) bytes[i] = Number.parseInt(text.slice(2 + 2 * i, 4 + 2 * i), 16)
  return bytes
}

/** Lower-case hexadecimal after `0x`. */
export const toHex = (bytes: Uint8Array): string =>
  `0x${Array.from(bytes, byte => byte.toString(16).padStart(2, "0")).join("")}`

/** Without padding. */
export function toBase64url(bytes: Uint8Array): string {
  let binary = ""
  for (const byte of bytes) binary += String.fromCharCode(byte)
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")
}

/**
 * The bytes of base64url; throws for any other text. Only the shortest form is accepted: some bits of the last
 * character carry nothing, and a text that differs only there is a different text.
 */
export function fromBase64url(text: string): Bytes {
  if (!/^[\w-]*$/.test(text)) throw new Error("it is not base64url")
  const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"))
  const bytes = Uint8Array.from(binary, character => character.charCodeAt(0))
  if (toBase64url(bytes) !== text) throw new Error("it is not base64url in its shortest form")
  return bytes
}

export const utf8 = (text: string): Bytes => new TextEncoder().encode(text) as Bytes

/** Throws for bytes that are not UTF-8. */
export const fromUtf8 = (bytes: Uint8Array): string => new TextDecoder("utf-8", { fatal: true }).decode(bytes)

export function concat(...parts: readonly Uint8Array[]): Bytes {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0))
  let at = 0
  for (const part of parts) {
    all.set(part, at)
    at += part.length
  }
  return all
}

export const sha256 = async (bytes: Bytes): Promise<Bytes> =>
  new Uint8Array(await crypto.subtle.digest("SHA-256", bytes))
