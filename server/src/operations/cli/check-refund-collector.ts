/**
 * Checks the contract that pulls refunds from merchants' wallets: it must have this version's code, this escrow and
 * this operator.
 */
import { ask, type Endpoint, hostOf } from "../../platform/chain/endpoints.ts"
import { type Address, checksummed } from "../../platform/chain/hex.ts"
import { isRefundCollector } from "../../platform/chain/refund-collector.ts"

/**
 * Queries every endpoint for the contract's code. Throws an Error with a sentence if one reports another code, escrow
 * or operator, or if none answers.
 */
export async function checkRefundCollector(
  endpoints: readonly Endpoint[],
  address: Address,
  { escrow, operator }: { escrow: Address; operator: Address },
): Promise<void> {
  const call = { method: "eth_getCode", params: [address, "latest"] }
  const codes = await Promise.all(endpoints.map(async endpoint => (await ask(endpoint, [call]))?.[0]))
  for (const [i, code] of codes.entries()) {
    if (!code?.ok) continue
    if (!isRefundCollector(code.value, escrow, operator))
      throw new Error(
        `The contract at ${checksummed(address)} is not this version's refund collector for that escrow and operator (according to the endpoint ${hostOf(endpoints[i] as Endpoint)}).`,
      )
  }
  if (!codes.some(code => code?.ok)) throw new Error("No endpoint returns the code of the refund collector.")
}
