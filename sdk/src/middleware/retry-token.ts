/** A retry token lets a payer repeat a call that failed after its payment, without paying again. */

/** Remembers which tokens were used. Several processes, or one that restarts, need Redis or a database. */
export interface Store {
  /** Takes a name for `ms` milliseconds; returns whether it was free. Atomic, like `SET name 1 NX PX ms`. */
  take(name: string, ms: number): Promise<boolean> | boolean
  /** Gives a name back, so that it can be taken again. */
  drop(name: string): Promise<void> | void
}

export const TOKEN_MS = 86_400_000
const encoder = new TextEncoder()

/** A store in this process, which loses its names when the process ends. */
export function memoryStore(): Store {
  const ends = new Map<string, number>()
  return {
    take: (name, ms) => {
      const now = Date.now()
      // The oldest come first, because each is kept for the same time.
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

/** The content of a token: the payment, the key that settles it, its purpose, and its end in milliseconds. */
export interface Retry {
  key: string
  payload: Record<string, unknown>
  terms: Record<string, unknown>
  url: string
  until: number
}

/** Signs and reads tokens with a secret. */
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
    /** Undefined for a token that is not ours, has expired, or is for another URL or method. */
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
