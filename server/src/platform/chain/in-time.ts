/**
 * Asks several endpoints in parallel, and continues without the slow ones: a payment must not wait for the slowest of
 * three when two agree. An endpoint that was left behind is queried again only after its pending answer has arrived.
 */
import { ask, type Endpoint } from "./endpoints.ts"
import type { RpcCall, RpcResult } from "./rpc.ts"

/** The minimum time that the other endpoints get once enough have answered. */
const GRACE_MS = 500

/** An answer, as a function that applies it; called only while the question is open. */
type Answer = (() => void) | undefined

/**
 * Asks all endpoints, and applies each answer as it comes. Returns the endpoints that it did not wait for. Once
 * `isEnough` holds, the other endpoints get as much extra time as the answers so far took, and at least half a second.
 * An endpoint that was late the last time gets no extra time.
 */
export async function askInTime(
  endpoints: readonly Endpoint[],
  ask: (endpoint: Endpoint) => Promise<Answer>,
  isEnough: () => boolean,
): Promise<Endpoint[]> {
  const startedAt = performance.now()
  const open = new Set<Endpoint>()
  const waiting = Promise.withResolvers<void>()
  let overAt: number | undefined
  let timer: NodeJS.Timeout | undefined
  const check = () => {
    if (open.size === 0) return waiting.resolve()
    if (timer || !isEnough()) return
    const isExpected = [...open].some(endpoint => !endpoint.isLate)
    const graceMs = isExpected ? Math.max(GRACE_MS, performance.now() - startedAt) : 0
    timer = setTimeout(waiting.resolve, graceMs)
  }
  const one = async (endpoint: Endpoint) => {
    try {
      const apply = await ask(endpoint)
      if (overAt === undefined) apply?.()
    } finally {
      open.delete(endpoint)
      if (overAt !== undefined) endpoint.lateOpen--
      // If the endpoint is only just behind the others, the next question waits for it.
      if (overAt === undefined || performance.now() - overAt < GRACE_MS) endpoint.isLate = false
    }
    if (overAt === undefined) check()
  }
  for (const endpoint of endpoints) open.add(endpoint)
  // The error of an endpoint that answers too late no longer matters.
  for (const endpoint of endpoints) one(endpoint).catch(error => waiting.reject(error))
  if (endpoints.length === 0) waiting.resolve()
  try {
    await waiting.promise
  } finally {
    overAt = performance.now()
    clearTimeout(timer)
    for (const endpoint of open) {
      endpoint.isLate = true
      endpoint.lateOpen++
    }
  }
  return [...open]
}

/** How to wait for the answers of several endpoints. */
interface Agreement {
  /** How many must give the same answer. */
  needed: number
  /** Whether two endpoints give the same answer; by default, whether all their results are equal. */
  isSame?: (a: readonly RpcResult[], b: readonly RpcResult[]) => boolean
}

/**
 * Sends the same calls to all endpoints. Returns each endpoint's results in order, or undefined for one that did not
 * respond. The call continues without a slow endpoint once `needed` endpoints give the same answer. If the answers
 * differ, it waits for all.
 */
export async function askAgreed(
  endpoints: readonly Endpoint[],
  calls: readonly RpcCall[],
  { needed, isSame = sayTheSame }: Agreement,
  signal?: AbortSignal,
): Promise<(RpcResult[] | undefined)[]> {
  const answers = new Map<Endpoint, RpcResult[]>()
  const free = endpoints.filter(({ lateOpen }) => lateOpen === 0)
  await askInTime(
    free.length < needed ? endpoints : free,
    async endpoint => {
      const results = await ask(endpoint, calls, signal)
      return results && (() => void answers.set(endpoint, results))
    },
    () => {
      const said = [...answers.values()]
      return said.some(one => said.filter(other => other === one || isSame(one, other)).length >= needed)
    },
  )
  return endpoints.map(endpoint => answers.get(endpoint))
}

const sayTheSame = (a: readonly RpcResult[], b: readonly RpcResult[]): boolean =>
  JSON.stringify(a.map(factOf)) === JSON.stringify(b.map(factOf))

/** The comparable part of a result. Error messages are left out, because each node words them differently. */
const factOf = (result: RpcResult | undefined): unknown =>
  result?.ok ? { value: result.value } : { data: result?.data ?? null }
