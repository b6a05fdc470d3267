/** The client of a Sluice service. */
import { at, type PageQuery, pagesOf } from "./pages.ts"
import { openQueue, type QueueOptions } from "./queue.ts"
import { type Call, type Connection, type RateLimit, type RequestOptions, send } from "./request.ts"
import { type Resources, table } from "./resources.ts"
import { type WaitUntil, waitUntil } from "./wait-until.ts"

/** Options of a client. Without them, it uses `SLUICE_URL` and `SLUICE_API_KEY` from the environment. */
export interface SluiceOptions {
  /** The address of the service, such as `https://pay.example.com`. */
  baseUrl?: string
  /** A key from `POST /api/console/api-keys`. */
  apiKey?: string
  /** A person's token instead of a key. */
  accessToken?: string
  /** How often a request that is safe to repeat is sent again; 2 by default. */
  maxRetries?: number
  /** Milliseconds that one attempt may take; 30,000 by default. */
  timeoutMs?: number
  /** Milliseconds that a call may take with all its retries; 120,000 by default. */
  totalTimeoutMs?: number
  /**
   * Lets bursts wait instead of failing. A call that a rate limit refuses is sent when the limit allows, and calls of
   * one operation wait for each other.
   */
  queue?: boolean | QueueOptions
  /** The function that sends the requests; the runtime's `fetch` by default. */
  fetch?: typeof fetch
}

interface Client extends Omit<Resources, "checkouts"> {
  checkouts: Resources["checkouts"] & {
    /**
     * Waits until a checkout has one of these statuses, and returns it. Throws a {@link SluiceError} with the code `TIMEOUT`
     * after `timeoutMs`.
     */
    waitUntil: WaitUntil
  }
}

const environment = (name: string): string | undefined =>
  (globalThis as { process?: { env?: Record<string, string | undefined> } }).process?.env?.[name]

export interface Sluice extends Client {}

/**
 * The client: one property for each kind of thing, with its operations. The constructor throws a TypeError if no address,
 * or neither a key nor a token is given.
 *
 * @example const sluice = new Sluice({ baseUrl: "https://pay.example.com", apiKey: process.env.SLUICE_API_KEY })
 */
// biome-ignore lint/suspicious/noUnsafeDeclarationMerging: see above.
export class Sluice {
  #rateLimit: RateLimit | undefined

  constructor(options: SluiceOptions = {}) {
    const connection = connectionOf(options, heard => {
      this.#rateLimit = heard
    })
    for (const [name, calls] of Object.entries(table)) {
      const operations = Object.entries(calls).map(([method, line]) => [method, operation(connection, line)])
      Object.assign(this, { [name]: Object.fromEntries(operations) })
    }
    this.checkouts.waitUntil = waitUntil(this)
  }

  /** The rate limit that the last answer reported. */
  get rateLimit(): RateLimit | undefined {
    return this.#rateLimit
  }
}

function connectionOf(options: SluiceOptions, heardLimits: Connection["heardLimits"]): Connection {
  const baseUrl = (options.baseUrl ?? environment("SLUICE_URL"))?.replace(/\/+$/, "")
  if (!baseUrl || !/^https?:\/\//.test(baseUrl))
    throw new TypeError(
      "Give the service's address as `baseUrl`, or set SLUICE_URL: it begins with http:// or https://.",
    )
  const apiKey = options.apiKey ?? (options.accessToken === undefined ? environment("SLUICE_API_KEY") : undefined)
  if (!apiKey && !options.accessToken)
    throw new TypeError("Give an API key as `apiKey`, or set SLUICE_API_KEY; or give an `accessToken`.")
  return {
    baseUrl,
    credential: apiKey ? { "x-api-key": apiKey } : { authorization: `Bearer ${options.accessToken}` },
    // Called through the global, because some runtimes refuse it with another `this`.
    fetch: options.fetch ?? ((input, init) => fetch(input, init)),
    maxRetries: options.maxRetries ?? 2,
    timeoutMs: options.timeoutMs ?? 30_000,
    totalTimeoutMs: options.totalTimeoutMs ?? 120_000,
    queue: options.queue ? openQueue(options.queue === true ? {} : options.queue) : undefined,
    heardLimits,
  }
}

/** The function of an operation, created from its line in the table. */
function operation(connection: Connection, line: string) {
  const [method = "", path = "", ...marks] = line.split(" ")
  const names = path.match(/\{\w+\}/g) ?? []
  const pathOf = (mark: string) => marks.find(each => each.startsWith(`${mark}=`))?.slice(mark.length + 1)
  const has = (mark: string) => marks.includes(mark)
  const list = pathOf("list")
  const envelope = pathOf("at")
  return (...args: unknown[]) => {
    const ids = args.slice(0, names.length)
    // `fetch` would resolve . and .. to another path.
    if (ids.some(id => typeof id !== "string" || /^\.{0,2}$/.test(id)))
      throw new TypeError(`${method} ${path} needs ${names.join(" and ")}`)
    const rest = args.slice(names.length)
    const input = has("body") || has("query") ? rest.shift() : undefined
    const options = (rest[0] ?? {}) as RequestOptions & { idempotencyKey?: string }
    const call: Call = {
      method,
      operation: path,
      path: names.reduce((text, name, i) => text.replace(name, encodeURIComponent(`${ids[i]}`)), path),
      ...(has("body")
        ? { text: JSON.stringify(input ?? {}) }
        : { query: input as Record<string, unknown> | undefined }),
      isPublic: has("public") || has("wallet"),
      isText: has("csv"),
      idempotencyKey: has("key") ? (options.idempotencyKey ?? crypto.randomUUID()) : undefined,
    }
    if (list !== undefined)
      return pagesOf(
        (page: PageQuery, isPatient) =>
          send(connection, { ...call, query: { ...call.query, ...page }, isPatient }, options),
        list,
      )
    const answer = send(connection, call, options)
    return envelope === undefined ? answer : answer.then(body => at(body, envelope))
  }
}
