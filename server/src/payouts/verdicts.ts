/**
 * What endpoints say that a call would do, and what as many of them agree on as must: one that lies alone has nothing sent,
 * held or refused.
 */
import { ask, awake, hostOf } from "../chain/endpoints.ts"
import type { Network } from "../chain/networks.ts"
import type { RpcCall, RpcResult } from "../chain/rpc.ts"
import { quorumOf } from "../chain/wallet-state.ts"
import type { Context } from "../context.ts"
import type { Lane } from "../db/payout-rows.ts"
import { payoutAlarms } from "../metrics.ts"

/** The verdicts that as many endpoints share as must agree, and that are more than any others; undefined where there are none. */
export function agreedVerdict<V extends { verdict: string }>(
  network: Network,
  verdicts: readonly V[],
): [V, ...V[]] | undefined {
  const groups = [...Map.groupBy(verdicts, each => each.verdict).values()].sort((a, b) => b.length - a.length)
  const [most, next] = groups
  if (!most || most.length < quorumOf(network) || next?.length === most.length) return undefined
  return most as [V, ...V[]]
}

/** Tells that no verdict was agreed on: an alarm with the endpoints where they contradict each other. */
export function noteDisagreement(
  ctx: Context,
  network: Network,
  wallet: Lane,
  verdicts: readonly { verdict: string }[],
  intentId?: string,
): void {
  const facts = { network: network.name, wallet, intentId, endpoints: network.endpoints.map(hostOf), verdicts }
  if (new Set(verdicts.map(each => each.verdict)).size < 2) {
    ctx.log.warn(facts, "too few endpoints could try a call, and it waits")
    return
  }
  payoutAlarms.inc({ network: network.name, wallet, reason: "untold" })
  ctx.log.error(facts, "endpoints do not agree on whether a call would succeed, and it waits")
}

/** What each endpoint answers to all calls; undefined for one that can't be asked. */
export async function askEach(
  network: Network,
  calls: readonly RpcCall[],
  signal: AbortSignal,
): Promise<(RpcResult[] | undefined)[]> {
  const ready = awake(network.endpoints)
  const endpoints = ready.length < quorumOf(network) ? network.endpoints : ready
  return await Promise.all(endpoints.map(endpoint => ask(endpoint, calls, signal)))
}
