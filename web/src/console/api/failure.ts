/** What a request to the API failed with, as the pages show it. */

/** One fault of a request's field, or data that a wallet has to sign. */
export interface Detail {
  path: string
  message: string
  typedData?: TypedData
}

export interface TypedData {
  domain: Record<string, unknown>
  types: Record<string, unknown>
  primaryType: string
  message: Record<string, unknown>
}

/** `OFFLINE` is ours: nobody answered. All other codes are the API's (docs/developers/errors.md). */
export class Failure extends Error {
  readonly code: string
  readonly status: number
  readonly requestId: string | undefined
  readonly details: Detail[]
  /** In seconds, of a 429. */
  readonly retryAfter: number | undefined
  constructor(status: number, body: Partial<Answered>) {
    super(body.message ?? "The server did not answer. Check the connection, then try again.")
    this.status = status
    this.code = body.error ?? (status === 0 ? "OFFLINE" : "UNKNOWN")
    this.requestId = body.requestId
    this.details = body.details ?? []
    this.retryAfter = body.retryAfter
  }
}

interface Answered {
  error: string
  message: string
  requestId: string
  details: Detail[]
  retryAfter: number
}

/** Any thrown thing as a failure. */
export const failureOf = (error: unknown): Failure =>
  error instanceof Failure ? error : new Failure(0, { message: error instanceof Error ? error.message : String(error) })

/** What a failure says where no field stands beside it: of an invalid request, its faults, which name their fields. */
export function wordsOf(error: unknown): string {
  const { code, message, details } = failureOf(error)
  if (code !== "VALIDATION_ERROR" || details.length === 0) return message
  return details.map(each => each.message.replaceAll(/`([^`]*)`/g, "“$1”")).join(" ")
}

/** What is wrong with each field, by its name. */
export const fieldFaults = (error: unknown): Record<string, string> =>
  Object.fromEntries(
    failureOf(error)
      .details.filter(({ typedData }) => typedData === undefined)
      .map(({ path, message }) => [path.replace(/^\//, "").replace(/\//g, "."), message]),
  )
