/** The API as the pages call it: typed by the OpenAPI document, for the chosen merchant, with failures as {@link Failure}. */
import createClient, { type Middleware } from "openapi-fetch"
import type { paths } from "../../../../tools/openapi/api.d.ts"
import { Failure } from "./failure.ts"
import { keptStore, newStore } from "./store.ts"

/** The merchant that the person chose at the top left; null means the only one. */
export const chosenMerchant = keptStore<string | null>("merchant", null)
/** Whether the session ended while a page was open. */
export const signedOut = newStore(false)
/** When requests may go on after a 429, in ms of the browser's clock; 0 while none was refused. */
export const pausedUntil = newStore(0)
/** How many requests of this minute are left, as the last answer said. */
export const requestsLeft = newStore(60)

const headers: Middleware = {
  onRequest({ request }) {
    const merchant = chosenMerchant.get()
    if (merchant !== null) request.headers.set("Sluice-Merchant", merchant)
    if (request.method !== "GET" && !request.headers.has("Idempotency-Key"))
      request.headers.set("Idempotency-Key", crypto.randomUUID())
    return request
  },
  onResponse({ response }) {
    const left = response.headers.get("x-ratelimit-remaining")
    if (left !== null) requestsLeft.set(Number(left))
  },
}

const client = createClient<paths>({ baseUrl: "", headers: { accept: "application/json" } })
client.use(headers)

interface Answer<T> {
  data?: T
  error?: unknown
  response: Response
}

/** The answer of a call; throws {@link Failure}. */
export async function taken<T>(call: Promise<Answer<T>>): Promise<T> {
  const { data, error, response } = await call.catch((error: unknown) => {
    if (error instanceof DOMException && error.name === "AbortError") throw error
    throw new Failure(0, {})
  })
  if (response.ok) return data as T
  const failure = new Failure(response.status, typeof error === "object" && error !== null ? error : {})
  if (failure.status === 401) signedOut.set(true)
  if (failure.status === 429) pausedUntil.set(Date.now() + (failure.retryAfter ?? 5) * 1_000)
  throw failure
}

const { POST, PUT, DELETE } = client
export const { GET } = client

/** A GET of a route whose path is made at run time. */
export const read = <T>(path: string, query: Record<string, unknown> = {}, signal?: AbortSignal): Promise<T> =>
  taken(GET(path as never, { params: { query }, ...(signal ? { signal } : {}) } as never) as Promise<Answer<T>>)

/** A write to a route whose path is made at run time. */
export function write<T>(
  method: "POST" | "PUT" | "DELETE",
  path: string,
  body?: unknown,
  more: Record<string, string> = {},
): Promise<T> {
  const act = { POST, PUT, DELETE }[method] as (path: string, init: object) => Promise<Answer<T>>
  return taken(act(path, { headers: more, ...(body === undefined ? {} : { body }) }))
}
