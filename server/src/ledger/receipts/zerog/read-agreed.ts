/** Reads from 0G's chain what enough of its endpoints agree on, so that one lying endpoint decides nothing. */
import type { RpcCall, RpcResult } from "../../../platform/chain/rpc.ts"
import { quorumOf } from "../../../platform/chain/wallet-state.ts"
import type { Context } from "../../../platform/context.ts"
import { askEach } from "../../txmanager/simulate-on-each.ts"
import type { Storage } from "./storage.ts"

/**
 * Returns what `read` makes of the answer that a quorum of endpoints gives, and that more endpoints give than any
 * other. Returns undefined if there is no such answer. `read` returns text, or undefined for an answer that says
 * nothing.
 */
export async function readAgreed(
  { signal }: Pick<Context, "signal">,
  { chain }: Pick<Storage, "chain">,
  call: RpcCall,
  read: (result: RpcResult) => string | undefined,
): Promise<string | undefined> {
  const said = (await askEach(chain, [call], signal)).flatMap(([result] = []) => (result ? (read(result) ?? []) : []))
  const [most, next] = [...Map.groupBy(said, text => text).values()].sort((a, b) => b.length - a.length)
  if (!most || most.length < quorumOf(chain) || next?.length === most.length) return undefined
  return most[0]
}
