/** Holds back a handler's answer that is a `Response`. */
import { type Admitted, type Answer, type Asked, isAnswer, MAX_HELD, tooLarge } from "./gate.ts"

/** A `Request` in the middleware's terms. */
export const askedOf = (request: Request, native: unknown = request): Asked => ({
  method: request.method,
  url: request.url,
  header: name => request.headers.get(name) ?? undefined,
  body: async () => {
    try {
      return await request.clone().json()
    } catch {
      return undefined
    }
  },
  native,
})

export const responseOf = ({ status, headers, body }: Answer): Response =>
  new Response(status === 204 || status === 205 ? null : body, { status, headers })

/** The answer to send: the handler's, held until the payment is settled, or passed on as it arrives. */
export async function finishWith(admitted: Admitted, response: Response): Promise<Response> {
  return admitted.isHeld ? await hold(admitted, response) : follow(admitted, response)
}

async function hold(admitted: Admitted, response: Response): Promise<Response> {
  const body = await wholeOf(response)
  if (body === undefined) return responseOf(tooLarge())
  const headers = Object.fromEntries([...response.headers].filter(([name]) => name !== "set-cookie"))
  const result = await admitted.finish({ status: response.status, headers, body, isWhole: true })
  if (isAnswer(result)) return responseOf(result)
  return remade(response, response.body === null ? null : body, result)
}

/** The bytes of an answer; undefined if it is too large. Rejects if the answer breaks off. */
async function wholeOf({ body }: Response): Promise<Uint8Array<ArrayBuffer> | undefined> {
  const chunks: Uint8Array[] = []
  let size = 0
  for (const reader = body?.getReader(); reader; ) {
    const { done, value } = await reader.read()
    if (done) break
    size += value.length
    if (size > MAX_HELD) {
      await reader.cancel()
      return undefined
    }
    chunks.push(value)
  }
  const whole = new Uint8Array(size)
  let at = 0
  for (const chunk of chunks) {
    whole.set(chunk, at)
    at += chunk.length
  }
  return whole
}

async function follow(admitted: Admitted, response: Response): Promise<Response> {
  const { status, body } = response
  const headers = admitted.headersFor(status)
  if (body === null) {
    await admitted.finish({ status, isWhole: true })
    return remade(response, null, headers)
  }
  const reader = body.getReader()
  const end = (isWhole: boolean) => admitted.finish({ status, isWhole }).catch(() => undefined)
  const passing = new ReadableStream<Uint8Array>({
    pull: async to => {
      try {
        const { done, value } = await reader.read()
        if (!done) return to.enqueue(value)
        await end(true)
        to.close()
      } catch (error) {
        await end(false)
        to.error(error)
      }
    },
    cancel: async reason => {
      await end(false)
      await reader.cancel(reason)
    },
  })
  return remade(response, passing, headers)
}

function remade(response: Response, body: BodyInit | null, more: Record<string, string>): Response {
  const { status, statusText } = response
  const headers = new Headers(response.headers)
  for (const [name, value] of Object.entries(more)) headers.set(name, value)
  return new Response(body, { status, statusText, headers })
}
