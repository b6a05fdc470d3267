/** Reads from 0G's chain what enough of its endpoints report alike: one endpoint that lies decides nothing. */
import type { RpcCall, RpcResult } from "../../../platform/chain/rpc.ts"
import { quorumOf } from "../../../platform/chain/wallet-state.ts"
import type { Context } from "../../../platform/context.ts"
import { askEach } from "../../txmanager/simulate-on-each.ts"
import type { Storage } from "./storage.ts"

/**
 * What `read` makes of the answer that as many endpoints give as agree elsewhere, and more than give any other; undefined
 * where there is none. `read` returns text, or undefined for an answer that says nothing.
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
