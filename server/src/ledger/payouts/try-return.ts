/**
 * Simulates a return with a wallet's signature before the return is written, because a return that always fails can't
 * be undone.
 */
import type { Hex } from "viem"
import type { Address } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { RELEASE_GAS } from "../../platform/chain/release-call.ts"
import { hexNumber, type RpcResult } from "../../platform/chain/rpc.ts"
import type { Context } from "../../platform/context.ts"
import { agreedTrial, askEach, failedTrial, type Trial } from "../txmanager/simulate-on-each.ts"

/**
 * Returns the error with which a give-back fails, simulated without a sender and with the gas of its transaction.
 * Returns undefined if the give-back succeeds or endpoints disagree. This function calls nodes, so call it outside any
 * transaction.
 */
export async function failureOfReturn(
  ctx: Pick<Context, "signal">,
  network: Network,
  { factory, data }: { factory: Address; data: Hex },
): Promise<string | undefined> {
  const call = { method: "eth_call", params: [{ to: factory, data, gas: hexNumber(RELEASE_GAS) }, "latest"] }
  const answers = await askEach(network, [call], ctx.signal)
  const trials = answers.flatMap(results => trialOf(results?.[0]))
  const [agreed] = agreedTrial(network, trials) ?? []
  return agreed?.outcome === "fails" ? agreed.error : undefined
}

function trialOf(result: RpcResult | undefined): (Trial & { error: string })[] {
  if (result?.ok) return [{ outcome: "succeeds", error: "" }]
  return result && failedTrial.test(result.error) ? [{ outcome: "fails", error: result.error }] : []
}
