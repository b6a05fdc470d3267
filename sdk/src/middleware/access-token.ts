/** Verifies a paywall's access tokens (ES256) for proven wallets, with the service's published keys. */
import type { Service } from "./service.ts"

const KEYS_MS = 300_000
const LEEWAY_S = 60

interface Jwk extends JsonWebKey {
  kid?: string
}

/** Returns a function that gives the address in a token of this paywall; undefined for anything else. */
export function accessTokens(service: Service, paywallId: string): (token: string) => Promise<string | undefined> {
  let keys: { at: number; all: Jwk[] } = { at: 0, all: [] }
  const keyOf = async (kid: unknown): Promise<CryptoKey | undefined> => {
    const known = () => keys.all.find(key => key.kid === kid)
    // A new key is published an hour before it signs, so an unknown key is requested at most once a minute.
    if (Date.now() - keys.at > (known() ? KEYS_MS : KEYS_MS / 5)) {
      const heard = await service.call("/.well-known/jwks.json", { retries: 1 })
      if (Array.isArray(heard?.body?.keys)) keys = { at: Date.now(), all: heard.body.keys as Jwk[] }
    }
    const jwk = known()
    return jwk && (await crypto.subtle.importKey("jwk", jwk, { name: "ECDSA", namedCurve: "P-256" }, false, ["verify"]))
  }
  return async token => {
    try {
      const [head = "", body = "", signature = "", more] = token.split(".")
      const { alg, typ, kid } = jsonOf(head)
      if (more !== undefined || alg !== "ES256" || typ !== "paywall-access+jwt") return undefined
      const key = await keyOf(kid)
      const signed = new TextEncoder().encode(`${head}.${body}`)
      const algorithm = { name: "ECDSA", hash: "SHA-256" }
      if (!key || !(await crypto.subtle.verify(algorithm, key, bytesOf(signature), signed))) return undefined
      // Not the issuer: it is the service's public address, and we may use another. The key identifies it.
      const { aud, sub, exp } = jsonOf(body)
      const isValid = aud === paywallId && Number(exp) + LEEWAY_S > Date.now() / 1_000
      return isValid && typeof sub === "string" ? sub.split(":").at(-1) : undefined
    } catch {
      return undefined
    }
  }
}

const bytesOf = (text: string): Uint8Array<ArrayBuffer> =>
  Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), char => char.charCodeAt(0))

const jsonOf = (text: string): Record<string, unknown> => JSON.parse(new TextDecoder().decode(bytesOf(text)))
