/**
 * The part of the middleware that every framework shares. `admit` either answers a request or lets the handler run. The
 * handler's answer is held back until `finish` decides about it.
 */

/** A request, as each adapter presents it. */
export interface Asked {
  method: string
  /** The absolute URL, as the buyer wrote it. */
  url: string
  header(name: string): string | undefined
  /** The parsed body; undefined without one, or if it is not JSON. */
  body(): Promise<unknown>
  /** The framework's own request, which `price` receives. */
  native: unknown
}

/** A complete answer of the middleware. */
export interface Answer {
  status: number
  headers: Record<string, string>
  /** JSON, or the bytes of a repeated handler's answer. */
  body: string | Uint8Array<ArrayBuffer>
}

/** The handler's answer, while it is held back or once it has ended. */
export interface Handled {
  status: number
  /** Undefined if it was not held. */
  body?: Uint8Array<ArrayBuffer> | undefined
  /** The headers of a held answer, without cookies. */
  headers?: Record<string, string>
  /** False if the answer broke off, as a stream may. */
  isWhole: boolean
}

/** The handler may run. */
export interface Admitted {
  /** Whether the handler's answer must be held back until `finish` has decided. */
  isHeld: boolean
  /** Whether the payment was settled before the handler runs. */
  isSettled?: boolean
  /** The payer's address; undefined if nothing is paid. */
  payer?: string | undefined
  /** Headers to add to an answer that is not held. */
  headersFor(status: number): Record<string, string>
  /** Called once with the handler's answer. For a held answer, it returns the replacement, or headers to add. */
  finish(handled: Handled): Promise<Answer | Record<string, string>>
}

/** The middleware of one route. */
export interface Gate {
  admit(asked: Asked): Promise<Answer | Admitted>
  /** Resolves when the service is in order; rejects with what is wrong. Every request is refused until then. */
  ready(): Promise<void>
}

/** The most bytes of one answer that are held back. */
export const MAX_HELD = 10_000_000

export const isAnswer = (result: object): result is Answer => "status" in result

/** Whether a handler delivered what was requested. */
export const isGood = (status: number): boolean => status >= 200 && status < 300

/** The answer of a handler that threw. Its payment may have been settled before, so the payer needs the retry token. */
export async function afterThrow(admitted: Admitted, error: unknown): Promise<Answer> {
  const handled = { status: 500, isWhole: true }
  const headers = { ...admitted.headersFor(handled.status), ...(await admitted.finish(handled)) } as Record<
    string,
    string
  >
  // biome-ignore lint/suspicious/noConsole: the framework would have written it, and does not see it.
  console.error(error)
  return answer(
    500,
    { error: "HANDLER_FAILED", message: "The call failed. It costs nothing to repeat it with the token." },
    headers,
  )
}

/** Admits a request that costs nothing. */
export const free: Admitted = { isHeld: false, headersFor: () => ({}), finish: async () => ({}) }

const payers = new WeakMap<object, string>()

/** Remembers who pays a request. */
export function notePayer(native: object, payer: string | undefined): void {
  if (payer !== undefined) payers.set(native, payer)
}

/**
 * The address that paid for a request, or proved its access. Pass the framework's request (in Hono `c.req.raw`).
 * Undefined outside a paid route.
 */
export const payerOf = (request: object): string | undefined => payers.get(request)

/** A JSON answer. */
export const answer = (status: number, body: object, headers: Record<string, string> = {}): Answer => ({
  status,
  headers: { "content-type": "application/json", "cache-control": "no-store", ...exposed, ...headers },
  body: JSON.stringify(body),
})

/** A client in a browser can read these headers only if they are named. */
const exposed = {
  "access-control-expose-headers":
    "PAYMENT-REQUIRED, PAYMENT-RESPONSE, X-PAYMENT-RESPONSE, Sluice-Retry-Token, Retry-After",
}

/** The answer if the handler's answer is too large to hold. Nothing was charged. */
export const tooLarge = (): Answer =>
  answer(500, {
    error: "ANSWER_TOO_LARGE",
    message: `The handler's answer has more than ${MAX_HELD} bytes, and was not paid for. Serve it with settle: "before".`,
  })
