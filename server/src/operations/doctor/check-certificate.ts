/**
 * Checks how long the certificate of BASE_URL is still valid. That certificate belongs to the proxy in front of
 * Sluice.
 */
// I/O: makes a connection, including before the service starts, when there is no context.
import { connect } from "node:tls"
import type { Settings } from "../../platform/config/settings.ts"
import { type Finding, fine } from "./finding.ts"

const TIMEOUT_MS = 5_000
const DAY_MS = 86_400_000
/**
 * Below this share of its validity, the certificate should have been renewed. Renewal tools act long before, usually
 * with a third of the time left.
 */
const LEFT_SHARE = 0.2
const MAX_LEFT_MS = 14 * DAY_MS

const part = "address"
const check = "certificate"

/**
 * Reports a certificate if less than a fifth of its validity and less than two weeks are left. No findings if BASE_URL
 * has no certificate or does not answer. The check of BASE_URL reports that, and also an invalid certificate.
 */
export async function checkCertificate(
  { baseUrl }: Settings,
  now: () => Date,
  signal: AbortSignal,
): Promise<Finding[]> {
  const { protocol, hostname, port } = new URL(baseUrl)
  if (protocol !== "https:") return []
  const valid = await validity(hostname.replace(/^\[|\]$/g, ""), Number(port || 443), signal).catch(() => undefined)
  if (!valid) return []
  const leftMs = valid.to.getTime() - now().getTime()
  const lifeMs = valid.to.getTime() - valid.from.getTime()
  if (leftMs > Math.min(lifeMs * LEFT_SHARE, MAX_LEFT_MS))
    return [fine(part, check, "the certificate of BASE_URL is valid for long enough")]
  const left = leftMs < 2 * DAY_MS ? `${Math.floor(leftMs / 3_600_000)} hours` : `${Math.floor(leftMs / DAY_MS)} days`
  const message =
    leftMs <= 0 ? "the certificate of BASE_URL has expired" : `the certificate of BASE_URL expires in ${left}`
  const todo = "The proxy should have renewed the certificate by now: the proxy's log says why it did not."
  return [{ part, check, level: "alarm", message, todo }]
}

/** The start and end of the validity of a server's certificate. */
async function validity(host: string, port: number, signal: AbortSignal): Promise<{ from: Date; to: Date }> {
  const { promise, resolve, reject } = Promise.withResolvers<{ from: Date; to: Date }>()
  // The request to BASE_URL checks whether the certificate can be trusted.
  const socket = connect({ host, port, servername: /[a-z]/i.test(host) ? host : "", rejectUnauthorized: false })
  const stop = () => socket.destroy(new Error("stopped"))
  signal.addEventListener("abort", stop, { once: true })
  socket.setTimeout(TIMEOUT_MS, stop)
  socket.once("error", reject)
  socket.once("secureConnect", () => {
    const { valid_from, valid_to } = socket.getPeerCertificate()
    resolve({ from: new Date(valid_from), to: new Date(valid_to) })
  })
  return await promise.finally(() => {
    signal.removeEventListener("abort", stop)
    socket.destroy()
  })
}
