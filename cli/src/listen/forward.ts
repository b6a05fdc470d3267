/**
 * Posts a delivery to an address on this machine as the service would: with the same bytes and headers, and without
 * redirects.
 */
import { request as overHttp } from "node:http"
import { request as overHttps } from "node:https"
import { Failure } from "../failure.ts"
import type { Pulled } from "./pull-deliveries.ts"

/**
 * How long an answer may take: as long as the service waits by default. A delivery's lease ends half a minute later.
 */
const TIMEOUT_MS = 30_000
/** How much of an answer is sent to the service, in characters, and how much of it is read, in bytes. */
const KEPT = 4_096
const READ_BYTES = 64 * 1024
const MAX_ERROR = 500

/** What is reported about an attempt. */
export interface Result {
  deliveryId: string
  attempt: number
  durationMs: number
  status?: number
  error?: string
  answer?: string
}

/** Where deliveries go, and whether the certificate of that address is verified. */
export interface Target {
  url: URL
  verifiesTls: boolean
}

/** Parses an address, from which `http://` may be missing; throws a {@link Failure} if it is not an address. */
export function targetOf(address: string, verifiesTls: boolean): Target {
  const whole = /^[a-z]+:\/\//.test(address) ? address : `http://${address}`
  if (!URL.canParse(whole) || !/^https?:$/.test(new URL(whole).protocol))
    throw new Failure(`${address} is not an address, such as localhost:3000/webhooks.`, 2)
  return { url: new URL(whole), verifiesTls }
}

/**
 * Posts a delivery and returns the result. It never throws, because a failure is a result too. `signal` cuts the
 * attempt short.
 */
export async function forward(
  { url, verifiesTls }: Target,
  { deliveryId, attempt, headers, body }: Pulled,
  signal: AbortSignal,
): Promise<Result> {
  const startedAt = performance.now()
  const facts = await new Promise<Pick<Result, "status" | "error" | "answer">>(resolve => {
    const send = url.protocol === "https:" ? overHttps : overHttp
    const bytes = Buffer.from(body, "base64")
    const sent = send(url, {
      method: "POST",
      headers: { ...headers, "content-length": bytes.length },
      rejectUnauthorized: verifiesTls,
      // A receiver that restarts closes connections that were kept alive, and the next delivery would fail.
      agent: false,
      signal: AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]),
    })
    sent.once("error", error => resolve({ error: reasonOf(error) }))
    sent.once("response", response => {
      const { statusCode: status = 0 } = response
      const chunks: Buffer[] = []
      let read = 0
      const done = (error?: string) => {
        const isKnown = status >= 100 && status <= 599
        resolve({
          ...(isKnown ? { status } : {}),
          ...(error || !isKnown ? { error: error ?? `answered ${status}, which is not a valid status` } : {}),
          answer: textOf(chunks),
        })
      }
      response.on("data", (chunk: Buffer) => {
        read += chunk.length
        if (read <= READ_BYTES) return void chunks.push(chunk)
        done()
        response.destroy()
      })
      response.once("end", () => done())
      response.once("error", error => done(`answered ${status}, but did not finish its answer: ${reasonOf(error)}`))
    })
    sent.end(bytes)
  })
  return { deliveryId, attempt, durationMs: Math.round(performance.now() - startedAt), ...facts }
}

function reasonOf(error: Error & { code?: string; errors?: Error[] }): string {
  const { name } = (error.cause as Error | undefined) ?? error
  if (name === "TimeoutError") return `no answer within ${TIMEOUT_MS / 1_000} s`
  if (name === "AbortError") return "`sluice listen` was stopped before the answer arrived"
  // localhost has two addresses, and each fails for a reason of its own.
  const text = error.message || error.errors?.[0]?.message || error.code || "no answer"
  return text.slice(0, MAX_ERROR).toWellFormed()
}

/** Text that the service can store: without NUL, and without half a character where the text is cut. */
const textOf = (chunks: Buffer[]): string =>
  Buffer.concat(chunks).toString("utf8").replaceAll("\0", "").slice(0, KEPT).toWellFormed()
