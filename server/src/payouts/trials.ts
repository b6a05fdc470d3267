/**
 * Simulations of a call on every endpoint, and the outcome that enough of them agree on. One endpoint that lies alone has
 * nothing sent, held or refused.
 */
import { ask, awake, hostOf } from "../chain/endpoints.ts"
import type { Network } from "../chain/networks.ts"
import type { RpcCall, RpcResult } from "../chain/rpc.ts"
import { quorumOf } from "../chain/wallet-state.ts"
import type { Context } from "../context.ts"
import { gatherBy } from "../db/gather.ts"
import type { Lane } from "../db/payout-rows.ts"
import { payoutAlarms } from "../metrics.ts"

/** What one endpoint says that a call would do; `used`: the nonce of its authorization is used. */
export interface Trial {
  outcome: "succeeds" | "fails" | "used"
}

/** The trials whose outcome a quorum and a plurality of the endpoints share; undefined where there is no such outcome. */
export function agreedTrial<T extends Trial>(network: Network, trials: readonly T[]): [T, ...T[]] | undefined {
  const groups = [...Map.groupBy(trials, each => each.outcome).values()].sort((a, b) => b.length - a.length)
  const [most, next] = groups
  if (!most || most.length < quorumOf(network) || next?.length === most.length) return undefined
  return most as [T, ...T[]]
}

/** Logs that no outcome was agreed on; an alarm with the endpoints where their outcomes differ. */
export function reportDisagreement(
  ctx: Context,
  network: Network,
  wallet: Lane,
  trials: readonly Trial[],
  payoutId?: string,
): void {
  const facts = { network: network.name, wallet, payoutId, endpoints: network.endpoints.map(hostOf), trials }
  if (new Set(trials.map(each => each.outcome)).size < 2) {
    ctx.log.warn(facts, "too few endpoints could simulate a call; it is retried")
    return
  }
  payoutAlarms.inc({ network: network.name, wallet, reason: "rpc_unavailable" })
  ctx.log.error(facts, "endpoints do not agree on whether a call would succeed; it is retried")
}

/** Each endpoint's results of all calls; undefined for an endpoint that did not answer. */
export async function askEach(
  network: Network,
  calls: readonly RpcCall[],
  signal: AbortSignal,
): Promise<(RpcResult[] | undefined)[]> {
  const ready = awake(network.endpoints)
  const endpoints = ready.length < quorumOf(network) ? network.endpoints : ready
  return await Promise.all(endpoints.map(endpoint => ask(endpoint, calls, signal)))
}

/** What one request asks of a network's endpoints. */
interface Question {
  network: Network
  calls: readonly RpcCall[]
}

/** Requests whose calls are one exchange: endpoints take 50 calls in one, and a request has two or three. */
const ASKED_TOGETHER = 16

/**
 * The same as {@link askEach}, in one exchange with what other requests ask at the same time. For calls whose cost and length no caller
 * chooses: all wait for the slowest.
 */
export const askTogether = async (ctx: Context, question: Question): Promise<(RpcResult[] | undefined)[]> =>
  (await gathered(ctx, question)) ?? []

const gathered = gatherBy(async (ctx: Context, questions: readonly Question[]) => {
  const exchanges = [...Map.groupBy(questions, each => each.network)].flatMap(([network, asked]) =>
    Array.from({ length: Math.ceil(asked.length / ASKED_TOGETHER) }, (_, i) =>
      exchange(ctx, network, asked.slice(i * ASKED_TOGETHER, (i + 1) * ASKED_TOGETHER)),
    ),
  )
  return new Map((await Promise.all(exchanges)).flat())
})

async function exchange(
  ctx: Context,
  network: Network,
  questions: readonly Question[],
): Promise<[Question, (RpcResult[] | undefined)[]][]> {
  const answers = await askEach(
    network,
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
