/** Sends one request without the SDK: raw calls, and requests to the sandbox's own routes. */
import { SluiceError } from "../../sdk/src/errors.ts"

const TIMEOUT_MS = 60_000

interface Request {
  method: string
  body?: string | undefined
  headers?: Record<string, string>
}

/**
 * Returns the parsed answer, or its text. Throws a {@link SluiceError} for a refusal, or if no answer comes. Nothing
 * is retried. Redirects are not followed, because they would send the key elsewhere.
 */
export async function request(
  baseUrl: string,
  path: string,
  { method, body, headers = {} }: Request,
): Promise<unknown> {
  const response = await fetch(`${baseUrl}${path}`, {
    method,
    headers: {
      accept: "application/json",
      ...(body === undefined ? {} : { "content-type": "application/json" }),
      ...headers,
    },
    redirect: "manual",
    signal: AbortSignal.timeout(TIMEOUT_MS),
    ...(body === undefined ? {} : { body }),
  }).catch(cause => {
    const code = cause instanceof DOMException && cause.name === "TimeoutError" ? "TIMEOUT" : "CONNECTION_FAILED"
    throw new SluiceError(`The service can't be reached at ${baseUrl}.`, { code, docUrl: "" }, { cause })
  })
  if (!response.ok) throw await refusalOf(baseUrl, response)
  return parse(await response.text())
}

/** Converts an answer that is a refusal to an error. */
export async function refusalOf(baseUrl: string, response: Response): Promise<SluiceError> {
  const { error, message, requestId, details, retryAfter } = (parse(await response.text()) ?? {}) as Record<
    string,
    never
  >
  return new SluiceError(message ?? `${baseUrl} answered HTTP ${response.status}.`, {
    code: error ?? "UNREADABLE_ANSWER",
    status: response.status,
    requestId: requestId ?? response.headers.get("x-request-id") ?? undefined,
    details,
    retryAfter,
    docUrl: `${baseUrl}/docs/errors#${error}`,
  })
}

/** Sends a POST to one of the sandbox's own routes; throws as {@link request} does. */
export const postSandbox = async (baseUrl: string, path: string, body: object): Promise<unknown> =>
  await request(baseUrl, `/sandbox/${path}`, { method: "POST", body: JSON.stringify(body) })

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}
