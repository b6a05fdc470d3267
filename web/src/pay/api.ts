/** Requests to this server. */
import type { PayPage } from "../page-data.ts"

/** The server's answer to a request that it refuses. */
export class Refusal extends Error {
  readonly code: string
  constructor(code: string, message: string) {
    super(message)
    this.code = code
  }
}

/** Posts JSON; throws a {@link Refusal} with the server's code, or `OFFLINE` where it can't be reached. */
export const post = <T>(path: string, body: object): Promise<T> => call<T>("POST", path, { body })

/** Sends a request with or without a body and a token; throws as {@link post} does. */
export async function call<T>(
  method: "GET" | "POST",
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
    throw new Refusal("OFFLINE", "")
  })
  const answer = await response.json().catch(() => ({}))
  if (!response.ok) {
    const [detail] = (answer.details ?? []) as { path: string; message: string }[]
    const words = detail && answer.error === "VALIDATION_ERROR" ? `${detail.path} ${detail.message}` : answer.message
    throw new Refusal(answer.error ?? `HTTP ${response.status}`, words ?? `HTTP ${response.status}`)
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
