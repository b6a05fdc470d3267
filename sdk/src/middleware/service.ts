/** How the middleware calls the service: each call has a timeout, and is repeated if that is safe. */

/** The address of the service, and the key to use. */
export interface ServiceOptions {
  /** The address of the service; `SLUICE_URL` by default. */
  baseUrl?: string
  /** A key of the merchant; `SLUICE_API_KEY` by default. */
  apiKey?: string
  /** The function that sends the requests; the runtime's `fetch` by default. */
  fetch?: typeof fetch
  /** Milliseconds that one call may take; 90,000 by default: the service itself waits up to 75 s for a block. */
  timeoutMs?: number
}

export interface Service {
  baseUrl: string
  apiKey: string
  /** Sends one request, with the key. Undefined if no complete answer came: it may have taken effect or not. */
  call(path: string, init?: Sent): Promise<Heard | undefined>
}

interface Sent {
  method?: "GET" | "POST"
  body?: unknown
  headers?: Record<string, string>
  /** How often to repeat it if no complete answer came, or a 5xx. */
  retries?: number
  redirect?: "follow" | "error"
}

export interface Heard {
  status: number
  headers: Headers
  /** Undefined if the answer is not JSON. */
  body: Record<string, unknown> | undefined
  /** The address that answered, after redirects. */
  url: string
}

const TIMEOUT_MS = 90_000
const RETRY_PAUSE_MS = 300

const environment = (name: string): string | undefined =>
  (globalThis as { process?: { env?: Record<string, string | undefined> } }).process?.env?.[name]

/** Opens the connection; throws a TypeError without an address or a key. */
export function openService(options: ServiceOptions): Service {
  const baseUrl = (options.baseUrl ?? environment("SLUICE_URL"))?.replace(/\/+$/, "")
  const apiKey = options.apiKey ?? environment("SLUICE_API_KEY")
  if (!baseUrl || !/^https?:\/\//.test(baseUrl) || !apiKey)
    throw new TypeError(
      "Give `baseUrl` and `apiKey`, or set SLUICE_URL and SLUICE_API_KEY: nothing is sold without them.",
    )
  const send = options.fetch ?? ((input: string | URL | Request, init?: RequestInit) => fetch(input, init))
  const once = async (path: string, { method = "GET", body, headers = {}, redirect = "error" }: Sent) => {
    try {
      const response = await send(baseUrl + path, {
        method,
        redirect,
        headers: {
          accept: "application/json",
          "x-api-key": apiKey,
          ...(body === undefined ? {} : { "content-type": "application/json" }),
          ...headers,
        },
        signal: AbortSignal.timeout(options.timeoutMs ?? TIMEOUT_MS),
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      })
      const text = await response.text()
      return { status: response.status, headers: response.headers, body: parse(text), url: response.url }
    } catch {
      return undefined
    }
  }
  return {
    baseUrl,
    apiKey,
    call: async (path, init = {}) => {
      for (let left = init.retries ?? 0; ; left--) {
        const heard = await once(path, init)
        if (left <= 0 || (heard && heard.status < 500 && heard.status !== 429)) return heard
        await new Promise(resolve => setTimeout(resolve, RETRY_PAUSE_MS * (1 + Math.random())))
      }
    },
  }
}

function parse(text: string): Record<string, unknown> | undefined {
  try {
    const body = JSON.parse(text)
    return typeof body === "object" && body !== null ? body : undefined
  } catch {
    return undefined
  }
}

/** A check that runs at startup, and again before a request while it fails, at most once in five seconds. */
export function checkedOnce(check: () => Promise<void>, againMs = 5_000): () => Promise<void> {
  let at = Date.now()
  let last = check()
  last.catch(() => undefined)
  return () => {
    const known = last
    return known.catch(error => {
      if (known !== last) return last
      if (Date.now() - at < againMs) throw error
      at = Date.now()
      last = check()
      return last
    })
  }
}
