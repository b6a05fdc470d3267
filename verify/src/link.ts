/** Fetches the bytes that a link names. Strangers send links, so its server can't send the command elsewhere or hold it up. */
import { concat } from "./bytes.ts"
import { MAX_BYTES } from "./storage.ts"

/** A file of 16 MB takes this long at 2 Mbit/s; batches have at most 4 MB. */
const TIMEOUT_MS = 60_000

/**
 * The bytes at this address. Throws a sentence for a redirect, another failure, more than 16 MB or an answer that takes over
 * a minute.
 */
export async function fetchLinked(url: string, timeoutMs = TIMEOUT_MS): Promise<Uint8Array> {
  try {
    return await bytesAt(url, AbortSignal.timeout(timeoutMs))
  } catch (error) {
    if (!(error instanceof DOMException && error.name === "TimeoutError")) throw error
    throw new Error(`${url} does not answer in full within ${timeoutMs / 1_000} seconds. ${elsewhere}`)
  }
}

const elsewhere = "Name the bytes with --batch where you have them, or with --indexer an indexer of 0G's storage."

async function bytesAt(url: string, signal: AbortSignal): Promise<Uint8Array> {
  // A redirect could lead into the user's network.
  const response = await fetch(url, { redirect: "manual", signal })
  const { ok, status } = response
  if (!ok) {
    // The connection of an answer that isn't read would keep the command running.
    await response.body?.cancel()
    const note = status > 299 && status < 400 ? ", and no redirect is followed" : ""
    throw new Error(`${url} answers ${status}${note}. ${elsewhere}`)
  }
  const parts: Uint8Array[] = []
  let size = 0
  for await (const part of response.body ?? []) {
    size += part.length
    if (size > MAX_BYTES)
      throw new Error(`${url} answers more than the ${MAX_BYTES} bytes that a file of receipts has.`)
    parts.push(part)
  }
  return concat(...parts)
}
