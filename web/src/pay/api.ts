/** Requests to this server. */
import type { PayPage } from "../page-data.ts"

/** The server's refusal of a request. */
export class Refusal extends Error {
  readonly code: string
  /** Whether it is unknown if the request had an effect: no answer came, or none from this server. */
  readonly isUnsure: boolean
  constructor(code: string, message: string, isUnsure = false) {
    super(message)
    this.code = code
    this.isUnsure = isUnsure
  }
}

/** Whether an error from this server means that nothing was accepted. */
const isDefinite = (code: unknown): boolean =>
  typeof code === "string" && !["INTERNAL_ERROR", "DATABASE_UNAVAILABLE"].includes(code)

/** Errors whose first detail says what is wrong; the message only says that there are details. */
const wholeFaults = ["VALIDATION_ERROR", "AUTHORIZATION_REFUSED"]

/** Posts JSON; throws a {@link Refusal} with the server's code, or `OFFLINE` if it can't be reached. */
export const post = <T>(path: string, body: object): Promise<T> => call<T>("POST", path, { body })

/** Sends a request with or without a body and a token; throws as {@link post} does. */
export async function call<T>(
  method: "GET" | "POST" | "DELETE",
  path: string,
  { body, token }: { body?: object; token?: string },
): Promise<T> {
  const response = await fetch(path, {
    method,
    headers: {
      ...(body === undefined ? {} : { "content-type": "application/json" }),
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  }).catch(() => {
    throw new Refusal("OFFLINE", "", true)
  })
  const answer = await response.json().catch(() => undefined)
  // A proxy, or a network that requires a sign-in, answers with a page of its own.
  if (typeof answer !== "object" || answer === null) throw new Refusal("OFFLINE", "", true)
  if (!response.ok) {
    const [detail] = (answer.details ?? []) as { message: string }[]
    const words = detail && wholeFaults.includes(answer.error) ? detail.message : answer.message
    const code = answer.error ?? `HTTP ${response.status}`
    throw new Refusal(code, words ?? code, response.status >= 500 && !isDefinite(answer.error))
  }
  return answer
}

/** Submits the hash of a transfer. For a paywall the payer must be given. Throws a {@link Refusal}. */
export async function submitHash(
  { kind }: PayPage,
  { id, txHash, payer }: { id: string; txHash: string; payer?: string },
): Promise<void> {
  if (kind === "paywall") await post(`/api/paywalls/${id}/pay`, { txHash, address: payer })
  else
    await post("/api/pay/confirm", { sessionId: id, txHash, ...(payer === undefined ? {} : { payerAddress: payer }) })
}
