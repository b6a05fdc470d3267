/**
 * Checks that a network's deposit factory is the one for which this version was written. Addresses are sold before any
 * contract is deployed there, so with another factory nobody could move the money there.
 */
// I/O: queries the endpoints at startup, before there is a context.
import { randomBytes } from "node:crypto"
import { decodeFunctionResult, encodeFunctionData, type Hex, isAddressEqual, pad } from "viem"
import { depositFactoryAbi, depositFactoryRuntime, depositRuntime } from "../../platform/chain/abi.ts"
import { NetworkMismatch } from "../../platform/chain/check-network.ts"
import { addressOfTerms, implementationOf } from "../../platform/chain/deposit-terms.ts"
import { ask, type Endpoint, hostOf } from "../../platform/chain/endpoints.ts"
import { type Address, checksummed, type Hash, parseAddress } from "../../platform/chain/hex.ts"
import { immutablesOf } from "../../platform/chain/immutables.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { hexNumber, type RpcCall, RpcError, type RpcResult } from "../../platform/chain/rpc.ts"

type Served = Pick<Network, "name" | "chainId" | "endpoints" | "depositFactory">

/**
 * Compares the code of the factory and its deposits, and one address that the factory computes, with what this version
 * expects. Throws a {@link NetworkMismatch} if any endpoint on the chain reports something else, or if the operator is
 * not `payoutWallet`. Throws an RpcError if no endpoint answers. Asks every endpoint, so that no endpoint is trusted
 * over another.
 */
export async function checkFactory(
  network: Served,
  { payoutWallet, signal }: { payoutWallet?: Address | undefined; signal?: AbortSignal } = {},
): Promise<void> {
  const question = questionAbout(network.depositFactory)
  const operators = await Promise.all(
    network.endpoints.map(endpoint => operatorBy(network, endpoint, question, signal)),
  )
  const reported = operators.filter(operator => operator !== undefined)
  const [operator] = reported
  if (!operator) throw new RpcError(`${network.name}: no endpoint returns the code of the deposit factory`)
  if (reported.some(other => !isAddressEqual(other, operator)))
    throw new NetworkMismatch(`${network.name}: the endpoints disagree on the operator of the deposit factory`)
  // Money at another operator's factory is practically lost: for a year only that operator can release it.
  if (payoutWallet && !isAddressEqual(operator, payoutWallet))
    throw new NetworkMismatch(
      `${network.name}: the operator of the deposit factory ${network.depositFactory} is ${checksummed(operator)}, but the payout ` +
        `wallet is ${checksummed(payoutWallet)}; see PAYOUT_PRIVATE_KEY, PAYOUT_KEYSTORE and PAYOUT_SIGNER`,
    )
}

interface Question {
  factory: Address
  implementation: Address
  calls: RpcCall[]
  /** The factory's expected answer. The salt is random, so no stub can know the answer in advance. */
  address: Address
}

function questionAbout(factory: Address): Question {
  const implementation = implementationOf(factory)
  const random = (bytes: number) => `0x${randomBytes(bytes).toString("hex")}` as Hex
  const salt = random(32)
  const terms = {
    owner: random(20) as Address,
    approver: random(20) as Address,
    payeesHash: random(32) as Hash,
    openAfter: BigInt(random(7)),
  }
  const abi = depositFactoryAbi
  const data = encodeFunctionData({ abi, functionName: "addressOf", args: [salt, terms] })
  const operator = encodeFunctionData({ abi, functionName: "operator" })
  return {
    factory,
    implementation,
    address: addressOfTerms(factory, salt, terms),
    calls: [
      { method: "eth_chainId", params: [] },
      { method: "eth_getCode", params: [factory, "latest"] },
      { method: "eth_getCode", params: [implementation, "latest"] },
      { method: "eth_call", params: [{ to: factory, data }, "latest"] },
      { method: "eth_call", params: [{ to: factory, data: operator }, "latest"] },
    ],
  }
}

/**
 * Returns the factory's operator as one endpoint reports it; undefined if the endpoint does not answer or serves
 * another chain.
 */
async function operatorBy(
  { name, chainId }: Served,
  endpoint: Endpoint,
  { factory, implementation, calls, address }: Question,
  signal: AbortSignal | undefined,
): Promise<Address | undefined> {
  const [chain, factoryCode, depositCode, computed, saidOperator] = (await ask(endpoint, calls, signal)) ?? []
  const values = [textOf(factoryCode), textOf(depositCode)]
  if (textOf(chain) !== hexNumber(chainId) || values.includes(undefined)) return undefined
  const mismatch = (message: string) =>
    new NetworkMismatch(`${name}: ${message} (according to the endpoint ${hostOf(endpoint)}); see DEPOSIT_FACTORY_*`)
  if (values[0] === "0x") throw mismatch(`there is no deposit factory at ${checksummed(factory)}`)
  // The guardian is not checked: the factory's deployer chose it, and all the guardian can do is pause the operator and
  // name another one.
  const words = immutablesOf(values[0], depositFactoryRuntime)
  if (words?.[1] !== pad(implementation))
    throw mismatch(`the contract at ${checksummed(factory)} is not the deposit factory of this version of Sluice`)
  const own = immutablesOf(values[1], depositRuntime)
  if (own?.[0] !== pad(factory))
    throw mismatch(
      `the deposit factory ${checksummed(factory)} creates deposits with other code than this version of Sluice`,
    )
  // A node that does not answer this call is unusable, but its silence proves nothing about the factory.
  const answer = textOf(computed)
  const operator = parseAddress(`0x${textOf(saidOperator)?.slice(26)}`)
  if (answer === undefined || !operator) return undefined
  if (!/^0x[0-9a-f]{64}$/i.test(answer) || addressIn(answer) !== address)
    throw mismatch(
      `the deposit factory ${checksummed(factory)} computes different addresses from this version of Sluice`,
    )
  return operator
}

const textOf = (result: RpcResult | undefined): string | undefined =>
  result?.ok && typeof result.value === "string" ? result.value.toLowerCase() : undefined

const addressIn = (word: string): Address =>
  decodeFunctionResult({
    abi: depositFactoryAbi,
    functionName: "addressOf",
    data: word as Hex,
  }).toLowerCase() as Address
