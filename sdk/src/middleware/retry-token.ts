/** A retry token: the payer of a call that failed after its payment makes it again without paying. */

/** Remembers which tokens were used. One in Redis or a database is for several processes, or one that is started again. */
export interface Store {
  /** Takes a name for `ms` milliseconds, and answers whether nobody held it: atomically, as `SET name 1 NX PX ms` does. */
  take(name: string, ms: number): Promise<boolean> | boolean
  /** Gives a name back, so that it can be taken again. */
  drop(name: string): Promise<void> | void
}

export const TOKEN_MS = 86_400_000
const encoder = new TextEncoder()

/** A store in this process: its names end with it. */
export function memoryStore(): Store {
  const ends = new Map<string, number>()
  return {
    take: (name, ms) => {
      const now = Date.now()
      // The oldest are first, as each is kept equally long.
      for (const [other, end] of ends) {
        if (end > now) break
        ends.delete(other)
      }
      if (ends.has(name)) return false
      ends.set(name, now + ms)
      return true
    },
    drop: name => void ends.delete(name),
  }
}

/** What a token says: the payment, the key that it is settled by, what it is for, and the end in milliseconds. */
export interface Retry {
  key: string
  payload: Record<string, unknown>
  terms: Record<string, unknown>
  url: string
  until: number
}

/** Signs and reads tokens by a secret. */
export function tokensOf(secret: string) {
  const key = crypto.subtle.importKey("raw", encoder.encode(`sluice retry token ${secret}`), mac, false, [
    "sign",
    "verify",
  ])
  return {
    make: async (retry: Omit<Retry, "until">): Promise<string> => {
      const text = base64url(encoder.encode(JSON.stringify({ ...retry, until: Date.now() + TOKEN_MS })))
      return `${text}.${base64url(new Uint8Array(await crypto.subtle.sign("HMAC", await key, encoder.encode(text))))}`
    },
    /** Undefined for a token that is not ours, is over, or is for another URL or method. */
    read: async (token: string, url: string): Promise<Retry | undefined> => {
      const [text = "", signature = ""] = token.split(".")
      try {
        const isOurs = await crypto.subtle.verify("HMAC", await key, bytesOf(signature), encoder.encode(text))
        if (!isOurs) return undefined
        const retry = JSON.parse(new TextDecoder().decode(bytesOf(text))) as Retry
        return retry.url === url && retry.until > Date.now() ? retry : undefined
      } catch {
        return undefined
      }
    },
  }
}

const mac = { name: "HMAC", hash: "SHA-256" }

const base64url = (bytes: Uint8Array): string =>
  btoa(Array.from(bytes, byte => String.fromCharCode(byte)).join(""))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "")

const bytesOf = (text: string): Uint8Array<ArrayBuffer> =>
  Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), char => char.charCodeAt(0))
