/** The API as the pages call it: typed by the OpenAPI document, for the chosen merchant, with failures as {@link Failure}. */
import createClient, { type Middleware } from "openapi-fetch"
import type { paths } from "../../../../tools/openapi/api.d.ts"
import { pretend } from "./dev-state.ts"
import { isSandbox } from "./facts.ts"
import { Failure } from "./failure.ts"
import { keptStore, newStore } from "./store.ts"

/** A read that nobody answers fails after this, so that the page can say so. The slowest answer of the API takes 5 s. */
const READ_MS = 20_000
/** A write may be long, as where it waits for a lock; whether it was done is not known then. */
const WRITE_MS = 60_000

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
    return request
  },
  onResponse({ response }) {
    const left = response.headers.get("x-ratelimit-remaining")
    if (left !== null) requestsLeft.set(Number(left))
  },
}

/** Ends what takes too long, with a timer of the page: `AbortSignal.timeout` would not follow a test's clock. */
async function fetchInTime(request: Request): Promise<Response> {
  const over = new AbortController()
  const clock = setTimeout(() => over.abort(new Failure(0, late)), request.method === "GET" ? READ_MS : WRITE_MS)
  try {
    const answer = await fetch(request, { signal: AbortSignal.any([request.signal, over.signal]) })
    // Its body belongs to the time, too.
    return new Response(answer.status === 204 ? null : await answer.arrayBuffer(), answer)
  } finally {
    clearTimeout(clock)
  }
}

const late = { error: "TIMEOUT", message: `The server did not answer within ${READ_MS / 1_000} s. Try again.` }

const client = createClient<paths>({ baseUrl: "", headers: { accept: "application/json" }, fetch: fetchInTime })
client.use(headers)
if (isSandbox) client.use(pretend)

interface Answer<T> {
  data?: T
  error?: unknown
  response: Response
}

const torn = { error: "TORN", message: "The server's answer broke off. Try again." }

/** Not the service's own words: a proxy in front of it answers so while the service is away. */
const strange = ({ status }: Response) => ({
  message: `The server answered ${status} without a reason. It may be restarting: try again in a moment.`,
})

/** The answer of a call; throws {@link Failure}. */
export async function taken<T>(call: Promise<Answer<T>>): Promise<T> {
  const { data, error, response } = await call.catch((error: unknown) => {
    if (error instanceof Failure || (error instanceof DOMException && error.name === "AbortError")) throw error
    throw new Failure(0, error instanceof SyntaxError ? torn : {})
  })
  if (response.ok) return data as T
  const failure = new Failure(response.status, typeof error === "object" && error !== null ? error : strange(response))
  if (failure.status === 401) signedOut.set(true)
  if (failure.status === 429) pausedUntil.set(Date.now() + (failure.retryAfter ?? 5) * 1_000)
  throw failure
}

const { POST, PUT, DELETE } = client
export const { GET } = client

/** A GET of a route whose path is made at run time. */
export const read = <T>(path: string, query: Record<string, unknown> = {}, signal?: AbortSignal): Promise<T> =>
  taken(GET(path as never, { params: { query }, ...(signal ? { signal } : {}) } as never) as Promise<Answer<T>>)

/** Keys of writes whose outcome is not known: the same request again has the same key, so the service carries it out once. */
const unsure = new Map<string, string>()

/** A write to a route whose path is made at run time. */
export async function write<T>(
  method: "POST" | "PUT" | "DELETE",
  path: string,
  body?: unknown,
  more: Record<string, string> = {},
): Promise<T> {
  const act = { POST, PUT, DELETE }[method] as (path: string, init: object) => Promise<Answer<T>>
  const name = JSON.stringify([chosenMerchant.get(), method, path, body, more])
  const key = unsure.get(name) ?? crypto.randomUUID()
  try {
    const headers = { ...more, "Idempotency-Key": key }
    const answer = await taken(act(path, { headers, ...(body === undefined ? {} : { body }) }))
    unsure.delete(name)
    return answer
  } catch (error) {
    if (!(error instanceof Failure) || (error.status > 0 && error.status < 500)) {
      unsure.delete(name)
      throw error
    }
    unsure.set(name, key)
    throw error.status === 0 ? new Failure(0, { error: error.code, message: UNSURE }) : error
  }
}

const UNSURE =
  "No answer arrived, so it is unknown whether this was done. Send the same request again: money is moved only once."
