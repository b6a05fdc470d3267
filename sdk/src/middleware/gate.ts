/**
 * What the middleware of every framework does with a request, in terms of none: `admit` either answers it or lets the handler run, and
 * `finish` says what becomes of the handler's answer, which is held back until then.
 */

/** A request, as each adapter shows it. */
export interface Asked {
  method: string
  /** Absolute, as the buyer wrote it. */
  url: string
  header(name: string): string | undefined
  /** The parsed body; undefined without one, or where it is not JSON. */
  body(): Promise<unknown>
  /** The framework's own request, which `price` gets. */
  native: unknown
}

/** A whole answer of the middleware. */
export interface Answer {
  status: number
  headers: Record<string, string>
  /** JSON, or the bytes of a handler's answer that is given again. */
  body: string | Uint8Array<ArrayBuffer>
}

/** The handler's answer: while it is held back, or when it has ended. */
export interface Handled {
  status: number
  /** Undefined if it was not held. */
  body?: Uint8Array<ArrayBuffer> | undefined
  /** Of an answer that is held; without cookies. */
  headers?: Record<string, string>
  /** False where the answer broke off, as a stream may. */
  isWhole: boolean
}

/** The handler may run. */
export interface Admitted {
  /** Whether the handler's answer must be held back until `finish` was asked. */
  isHeld: boolean
  /** Whether the payment was settled before the handler runs. */
  isSettled?: boolean
  /** Who pays, as an address; undefined where nothing is paid. */
  payer?: string | undefined
  /** What is added to the headers of an answer that is not held. */
  headersFor(status: number): Record<string, string>
  /** Called once with the handler's answer. For one that is held it returns what is sent instead, or headers to add. */
  finish(handled: Handled): Promise<Answer | Record<string, string>>
}

/** The middleware of one route. */
export interface Gate {
  admit(asked: Asked): Promise<Answer | Admitted>
  /** Resolves when the service was found as it must be; rejects with what is wrong. Every request is refused until then. */
  ready(): Promise<void>
}

/** The most that is held back of one answer, in bytes. */
export const MAX_HELD = 10_000_000

export const isAnswer = (result: object): result is Answer => "status" in result

/** Whether a handler gave what was asked for. */
export const isGood = (status: number): boolean => status >= 200 && status < 300

/** The answer of a handler that threw, where its payment may have been settled before it: the payer needs the retry token. */
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

/** Lets a request pass that costs nothing. */
export const free: Admitted = { isHeld: false, headersFor: () => ({}), finish: async () => ({}) }

const payers = new WeakMap<object, string>()

/** Remembers who pays a request. */
export function notePayer(native: object, payer: string | undefined): void {
  if (payer !== undefined) payers.set(native, payer)
}

/**
 * The address that paid for a request, or proved its access: pass the framework's request (in Hono `c.req.raw`). Undefined outside a
 * paid route.
 */
export const payerOf = (request: object): string | undefined => payers.get(request)

/** A JSON answer. */
export const answer = (status: number, body: object, headers: Record<string, string> = {}): Answer => ({
  status,
  headers: { "content-type": "application/json", "cache-control": "no-store", ...exposed, ...headers },
  body: JSON.stringify(body),
})

/** A browser's client reads these only if they are named. */
const exposed = {
  "access-control-expose-headers":
    "PAYMENT-REQUIRED, PAYMENT-RESPONSE, X-PAYMENT-RESPONSE, Sluice-Retry-Token, Retry-After",
}

/** The answer to a handler's that is too large to hold. Nothing was charged. */
export const tooLarge = (): Answer =>
  answer(500, {
    error: "ANSWER_TOO_LARGE",
    message: `The handler's answer has more than ${MAX_HELD} bytes, and was not paid for. Serve it with settle: "before".`,
  })
