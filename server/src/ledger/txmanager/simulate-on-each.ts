/**
 * Simulates a call on every endpoint, and finds the outcome on which enough endpoints agree. So a single lying endpoint
 * can't cause a call to be sent, held or refused.
 */
import { ask, awake, type Endpoint, hostOf } from "../../platform/chain/endpoints.ts"
import { askAgreed } from "../../platform/chain/in-time.ts"
import type { ReachableChain } from "../../platform/chain/networks.ts"
import type { RpcCall, RpcResult } from "../../platform/chain/rpc.ts"
import { quorumOf } from "../../platform/chain/wallet-state.ts"
import type { Context } from "../../platform/context.ts"
import { gatherBy } from "../../platform/db/gather.ts"
import type { LaneName } from "../../platform/db/payout-kinds.ts"
import { payoutAlarms } from "../../platform/metrics.ts"

/** One endpoint's outcome for a call. `used` means that the nonce of the call's authorization is used. */
export interface Trial {
  outcome: "succeeds" | "fails" | "used"
}

/** Matches the errors with which nodes report that the call itself fails. */
export const failedTrial = /revert|vm (execution|exception)|evm error|out ?of ?gas|gas required|invalid opcode/i

/**
 * Returns the trials with the outcome that a quorum of the endpoints reports, and that more endpoints report than any
 * other. Undefined if there is no such outcome.
 */
export function agreedTrial<T extends Trial>(chain: ReachableChain, trials: readonly T[]): [T, ...T[]] | undefined {
  const groups = [...Map.groupBy(trials, each => each.outcome).values()].sort((a, b) => b.length - a.length)
  const [most, next] = groups
  if (!most || most.length < quorumOf(chain) || next?.length === most.length) return undefined
  return most as [T, ...T[]]
}

/**
 * Logs that endpoints did not agree on an outcome. If their outcomes differ, also raises an alarm that names the
 * endpoints.
 */
export function reportDisagreement(
  ctx: Context,
  chain: ReachableChain,
  wallet: LaneName,
  trials: readonly Trial[],
  payoutId?: string,
): void {
  const facts = { network: chain.name, wallet, payoutId, endpoints: chain.endpoints.map(hostOf), trials }
  if (new Set(trials.map(each => each.outcome)).size < 2) {
    ctx.log.warn(facts, "too few endpoints could simulate a call; it is retried")
    return
  }
  payoutAlarms.inc({ network: chain.name, wallet, reason: "rpc_unavailable" })
  ctx.log.error(facts, "endpoints do not agree on whether a call would succeed; it is retried")
}

/**
 * Returns each endpoint's results for all calls. The results are undefined for an endpoint that did not respond, or
 * that was not awaited because enough others agreed.
 */
export async function askEach(
  chain: ReachableChain,
  calls: readonly RpcCall[],
  signal: AbortSignal,
): Promise<(RpcResult[] | undefined)[]> {
  return await askAgreed(askable(chain), calls, { needed: quorumOf(chain) }, signal)
}

/** Returns the endpoints that have not just failed, or all endpoints if too few are left to agree. */
function askable(chain: ReachableChain): readonly Endpoint[] {
  const ready = awake(chain.endpoints)
  return ready.length < quorumOf(chain) ? chain.endpoints : ready
}

/**
 * Asks every endpoint until `isEnough` accepts the answers or `maxMs` have passed, so that a slow or hanging endpoint
 * delays nobody. `read` gets each endpoint's results once. Returns what was read in time.
 */
export async function askUntil<T>(
  chain: ReachableChain,
  calls: readonly RpcCall[],
  { signal, maxMs, read, isEnough }: Patience<T>,
): Promise<T[]> {
  const answers: T[] = []
  const over = new AbortController()
  const timer = setTimeout(() => over.abort(), maxMs)
  const until = AbortSignal.any([signal, over.signal])
  const askOne = async (endpoint: Endpoint) => {
    const results = await ask(endpoint, calls, until)
    if (results === undefined || until.aborted) return
    answers.push(read(results))
    if (isEnough(answers)) over.abort()
  }
  const asked = askable(chain).map(endpoint =>
    askOne(endpoint).catch(error => {
      // The other endpoints had already decided, or this one took too long.
      if (signal.aborted || !until.aborted) throw error
    }),
  )
  await Promise.all(asked).finally(() => clearTimeout(timer))
  return answers
}

interface Patience<T> {
  signal: AbortSignal
  maxMs: number
  read: (results: readonly RpcResult[]) => T
  isEnough: (answers: readonly T[]) => boolean
}

/** The calls of one request to a chain's endpoints. */
interface Question {
  chain: ReachableChain
  calls: readonly RpcCall[]
}

/** How many requests share one exchange. Endpoints accept 50 calls at a time, and a request has two or three. */
const ASKED_TOGETHER = 16

/**
 * Asks as {@link askEach} does, but together with other requests of the same moment, in one exchange. Use this only for
 * calls whose cost and duration no caller controls, because all requests wait for the slowest call.
 */
export const askTogether = async (ctx: Context, question: Question): Promise<(RpcResult[] | undefined)[]> =>
  (await gathered(ctx, question)) ?? []

const gathered = gatherBy(async (ctx: Context, questions: readonly Question[]) => {
  const exchanges = [...Map.groupBy(questions, each => each.chain)].flatMap(([chain, asked]) =>
    Array.from({ length: Math.ceil(asked.length / ASKED_TOGETHER) }, (_, i) =>
      exchange(ctx, chain, asked.slice(i * ASKED_TOGETHER, (i + 1) * ASKED_TOGETHER)),
    ),
  )
  return new Map((await Promise.all(exchanges)).flat())
})

async function exchange(
  ctx: Context,
  chain: ReachableChain,
  questions: readonly Question[],
): Promise<[Question, (RpcResult[] | undefined)[]][]> {
  const answers = await askEach(
    chain,
    questions.flatMap(({ calls }) => calls),
    ctx.signal,
  )
  let start = 0
  return questions.map(question => {
    const end = start + question.calls.length
    const own = answers.map(results => results?.slice(start, end))
    start = end
    return [question, own]
  })
}
