/** Checks, before money is sent, that the escrow's addresses have the contracts for which calls are encoded. */
// I/O: queries the endpoints at startup, when there is no context yet.
import { randomBytes } from "node:crypto"
import { NetworkMismatch } from "./check-network.ts"
import { ask, type Endpoint, hostOf } from "./endpoints.ts"
import { getHashCall, type PaymentInfo, paymentInfoHash } from "./escrow.ts"
import type { EscrowDeployment } from "./escrow-deployments.ts"
import { type Address, checksummed } from "./hex.ts"
import { networkSetting } from "./network-facts.ts"
import type { Network } from "./networks.ts"
import { isRefundCollector } from "./refund-collector.ts"
import { hexNumber, RpcError } from "./rpc.ts"

type Served = Pick<Network, "name" | "chainId" | "endpoints">

/**
 * Returns the escrow if every endpoint that responds has it and its collectors; undefined if none has it, as on a
 * private test chain. Throws a {@link NetworkMismatch} if endpoints differ, or the contract computes another hash than
 * we do. A mismatch is also thrown if the refund collector is not this version's for this escrow and `relayWallet`.
 * Throws an RpcError if no endpoint responds.
 */
export async function findEscrow(
  network: Served & { escrow: EscrowDeployment | undefined },
  { relayWallet, signal }: { relayWallet?: Address | undefined; signal?: AbortSignal } = {},
): Promise<EscrowDeployment | undefined> {
  const { escrow, name } = network
  if (!escrow) return undefined
  const answers = await Promise.all(
    network.endpoints.map(endpoint => isThere(network, escrow, endpoint, relayWallet, signal)),
  )
  const found = new Set(answers.filter(answer => answer !== undefined))
  if (found.size === 0) throw new RpcError(`${name}: no endpoint returns the code of the escrow contract`)
  if (found.size > 1)
    throw new NetworkMismatch(
      `${name}: the endpoints disagree on whether there is an escrow at ${checksummed(escrow.address)}`,
    )
  return found.has(true) ? escrow : undefined
}

/** Whether one endpoint has the contracts; undefined if it does not respond, or serves another chain. */
async function isThere(
  { name, chainId }: Served,
  { address, collector, refundCollector }: EscrowDeployment,
  endpoint: Endpoint,
  relayWallet: Address | undefined,
  signal: AbortSignal | undefined,
): Promise<boolean | undefined> {
  const info = anyTerms()
  const codeAt = (at: Address) => ({ method: "eth_getCode", params: [at, "latest"] })
  const calls = [
    { method: "eth_chainId", params: [] },
    codeAt(address),
    codeAt(collector),
    codeAt(refundCollector ?? collector),
    { method: "eth_call", params: [{ to: address, data: getHashCall(info) }, "latest"] },
  ]
  const [chain, code, collects, refunds, hash] = (await ask(endpoint, calls, signal)) ?? []
  if (!chain?.ok || chain.value !== hexNumber(chainId) || !code?.ok || !collects?.ok || !refunds?.ok) return undefined
  if (code.value === "0x") return false
  const mismatch = (message: string, setting: "ESCROW" | "REFUND_COLLECTOR" = "ESCROW") =>
    new NetworkMismatch(
      `${name}: ${message} (according to the endpoint ${hostOf(endpoint)}); see ${networkSetting(setting, name)}`,
    )
  if (!hash?.ok && !/revert/i.test(hash?.error ?? "")) return undefined
  if (!hash?.ok || hash.value !== paymentInfoHash(info, chainId, address))
    throw mismatch(`the contract at ${checksummed(address)} is not an escrow that this version knows`)
  if (collects.value === "0x") throw mismatch(`there is no collector at ${checksummed(collector)} for the escrow`)
  if (refundCollector && !isRefundCollector(refunds.value, address, relayWallet))
    throw mismatch(
      `the contract at ${refundCollector} is not this version's refund collector for the escrow and the relay wallet`,
      "REFUND_COLLECTOR",
    )
  return true
}

/** Random, so that no stub can know the answer in advance. */
function anyTerms(): PaymentInfo {
  const some = () => `0x${randomBytes(20).toString("hex")}` as Address
  return {
    operator: some(),
    payer: some(),
    receiver: some(),
    token: some(),
    feeReceiver: some(),
    maxAmount: 1n,
    preApprovalExpiry: 1,
    authorizationExpiry: 2,
    refundExpiry: 3,
    minFeeBps: 4,
    maxFeeBps: 5,
    salt: BigInt(some()),
  }
}
