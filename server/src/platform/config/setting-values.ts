/** Parsers for the text of settings; each throws an Error whose message completes "NAME …". */
import { isIP } from "node:net"
import { type Address, NOT_AN_ADDRESS, parseAddress, parseHash } from "../chain/hex.ts"
import { localSigner, type Signer } from "../chain/signer.ts"
import { parseRedisAddress } from "../limits/redis-address.ts"
import { AmountError, parseAmount } from "../money/amount.ts"

export const text = (value: string): string => value

export function whole(min: number, max: number) {
  return (value: string): number => {
    const n = /^\d{1,9}$/.test(value) ? Number.parseInt(value, 10) : Number.NaN
    if (!(n >= min && n <= max)) throw new Error(`must be a whole number from ${min} to ${max}`)
    return n
  }
}

export function oneOf<const T extends string>(...choices: T[]) {
  return (value: string): T => {
    const choice = choices.find(each => each === value)
    if (!choice) throw new Error(`must be one of: ${choices.join(", ")}; not ${value}`)
    return choice
  }
}

/** An http(s) URL without a slash at the end; throws an Error that completes "NAME …". */
export function httpUrl(value: string): string {
  if (!URL.canParse(value) || !/^https?:$/.test(new URL(value).protocol)) throw new Error("must be an http(s) address")
  return value.replace(/\/+$/, "")
}

/** The http(s) address of a host, without a path, as `URL` writes an origin. */
export function originUrl(value: string): string {
  const { origin, href } = new URL(apiUrl(value))
  if (href !== `${origin}/`) throw new Error("must be the address of a host, without a path")
  return origin
}

/**
 * The http(s) URL of an API that gets credentials in headers. The URL itself is logged, so it must contain no
 * credentials. The URL is normalized as `URL` does.
 */
export function apiUrl(value: string): string {
  httpUrl(value)
  const { username, password, search, hash, href } = new URL(value)
  if (username + password + search + hash !== "") throw new Error("must have no user, password, query or fragment")
  return href.replace(/\/+$/, "")
}

/** An http(s) URL exactly as written: issuers are compared character by character, and some end with a slash. */
export function issuerUrl(value: string): string {
  httpUrl(value)
  return value
}

/** The address of one Postgres server. The fault never repeats the address, because it may contain a password. */
export function replicaUrl(value: string): string {
  if (!/^postgres(ql)?:\/\/./.test(value) || !URL.canParse(value) || new URL(value).host.includes(","))
    throw new Error("must be the postgres:// address of one host")
  return value
}

/** The address of Redis. The fault never repeats the address, because it may contain a password. */
export function redisUrl(value: string): string {
  parseRedisAddress(value)
  return value
}

/** An IP address, or a network in CIDR notation. */
export function cidr(value: string): string {
  const [ip = "", prefix, ...rest] = value.split("/")
  const bits = { 4: 32, 6: 128 }[isIP(ip)]
  const length = prefix === undefined ? bits : /^\d{1,3}$/.test(prefix) ? Number.parseInt(prefix, 10) : undefined
  if (bits === undefined || length === undefined || length > bits || rest.length > 0 || /%|^::ffff:/i.test(ip))
    throw new Error(`must be addresses or networks such as 10.0.0.0/8 and fd00::/8, not ${value}`)
  return value
}

/** A {@link cidr} that does not cover every address. */
export function proxies(value: string): string {
  if (/\/0+$/.test(cidr(value)))
    throw new Error("must not trust everyone: callers could choose the address that rate limits count")
  return value
}

const list = (value: string): string[] =>
  value
    .split(",")
    .map(part => part.trim())
    .filter(part => part !== "")

export function listOf<T>(parse: (part: string) => T) {
  return (value: string): T[] => list(value).map(parse)
}

export function address(value: string): Address {
  const parsed = parseAddress(value)
  if (!parsed) throw new Error(NOT_AN_ADDRESS)
  return parsed
}

/** Parses `5s`, `2m`, `1h` or plain seconds into milliseconds. */
export function duration(value: string): number {
  const match = /^(\d{1,7})(s|m|h|d)?$/.exec(value)
  if (!match) throw new Error("must be a duration such as 30s, 5m or 1h")
  const unitMs = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }[match[2] ?? "s"] ?? 1_000
  return Number.parseInt(match[1] ?? "", 10) * unitMs
}

/** A duration from `minS` to `maxS` seconds, in milliseconds. */
export function durationWithin(minS: number, maxS: number) {
  return (value: string): number => {
    const ms = duration(value)
    if (ms < minS * 1_000 || ms > maxS * 1_000) throw new Error(`must be from ${minS}s to ${maxS}s`)
    return ms
  }
}

/** A duration as in {@link durationWithin}, or undefined for `off`. */
export const offOrDuration = (minS: number, maxS: number) => {
  const parse = durationWithin(minS, maxS)
  return (value: string): number | undefined => (value === "off" ? undefined : parse(value))
}

/** Returns only a signer, so that code that prints settings can't print the key. */
export function privateKey(value: string): Signer {
  // The message must not contain the key: faults of settings are printed, and the library's own error would repeat it.
  if (!parseHash(value)) throw new Error("must be a private key: 0x and 64 hexadecimal digits")
  try {
    return localSigner(value as `0x${string}`)
  } catch {
    throw new Error("is not a private key: it must be above zero and below the order of the curve")
  }
}

export function bytes32(value: string): Uint8Array {
  const hex = /^(?:0x)?([0-9a-f]{64})$/i.exec(value)?.[1]
  const base64 = /^[A-Za-z0-9+/_-]{43}=?$/.test(value) ? value : undefined
  if (hex === undefined && base64 === undefined) throw new Error("must be 32 bytes in hexadecimal or base64")
  return hex === undefined ? Buffer.from(base64 ?? "", "base64") : Buffer.from(hex, "hex")
}

/** Parses gwei into wei. */
export const gwei = (value: string): bigint => wei(value, 9)

/** Parses ether into wei; 0 is allowed. */
export const ether = (value: string): bigint => (/^0(\.0+)?$/.test(value) ? 0n : wei(value, 18))

function wei(value: string, decimals: number): bigint {
  try {
    return parseAmount(value, decimals)
  } catch (error) {
    if (error instanceof AmountError) throw new Error(error.message)
    throw error
  }
}

export const flag = (value: string): boolean => oneOf("1", "0")(value) === "1"

export function decimal(value: string): string {
  try {
    parseAmount(value, 18)
  } catch (error) {
    if (error instanceof AmountError) throw new Error(error.message)
    throw error
  }
  return value
}
