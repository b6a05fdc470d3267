/**
 * Sends the money at one receiving address to its owner with the factory's `recover`, and waits until the transaction
 * is mined.
 */
import { setTimeout as sleep } from "node:timers/promises"
import { createWalletClient, encodeFunctionData, type Hex, http } from "viem"
import { privateKeyToAccount } from "viem/accounts"
import { depositFactoryAbi } from "../../platform/chain/abi.ts"
import type { TermsArgument } from "../../platform/chain/deposit-terms.ts"
import { type Address, checksummed, type Hash, ZERO_ADDRESS } from "../../platform/chain/hex.ts"
import { batch, type RpcCall, RpcError, type RpcResult } from "../../platform/chain/rpc.ts"
import { type Receipt, readReceipt, receiptCall } from "../../platform/chain/transfers.ts"

/** The node that is used for all reads and transactions. */
export interface Node {
  url: string
  network: string
}

/** A deposit, and the token to send from it. */
export interface RecoveryTerms extends TermsArgument {
  address: Address
  factory: Address
  salt: Hash
  /** The zero address for ether. */
  token: Address
}

interface Recovery {
  node: Node
  chainId: number
  /** The private key of any account with a little gas. */
  key: Hex
  terms: RecoveryTerms
  /** The amount that the address held a moment ago. */
  held: bigint
  say: (line: string) => void
  /** How long the transaction may stay unmined, in milliseconds. */
  patienceMs: number
}

/** Thrown if a transaction was sent but is not in a block yet. */
export class Unmined extends Error {}

const POLL_MS = 500
const PROGRESS_MS = 10_000

/** Queries the node; throws an Error with a sentence if the node can't be reached or responds with an error. */
export async function askNode(node: Node, calls: RpcCall[]): Promise<unknown[]> {
  const results = await batch(node, calls).catch((error: Error) => {
    throw new Error(`The node at ${node.url} can't be reached: ${error.message}.`, { cause: error })
  })
  return results.map(answerOf)
}

/** The value in a node's answer; throws if the answer is an error. */
export function answerOf(result: RpcResult | undefined): unknown {
  if (!result?.ok) throw new RpcError(`The node answers: ${result?.error ?? "nothing"}`)
  return result.value
}

/** The first line of an error's message, because the library's errors have many. */
export const firstLine = (error: unknown): string => `${(error as Error).message}`.split("\n")[0] ?? ""

/**
 * Simulates the recovery, sends it, and waits for its receipt; returns the amount moved. Throws {@link Unmined} if
 * the transaction is not mined in time, and an Error with a sentence if nothing moved.
 */
export async function sendRecovery(recovery: Recovery): Promise<{ hash: Hash; moved: bigint }> {
  const { node, chainId, key, terms, held, say } = recovery
  const { factory, salt, owner, token, address } = terms
  const account = privateKeyToAccount(key)
  const data = encodeFunctionData({ abi: depositFactoryAbi, functionName: "recover", args: [salt, terms, token] })
  const [code] = await askNode(node, [{ method: "eth_getCode", params: [factory, "latest"] }])
  if (code === "0x") throw new Error(`There is no factory at ${checksummed(factory)} on this network.`)
  await askNode(node, [{ method: "eth_call", params: [{ from: account.address, to: factory, data }, "latest"] }])
  const chain = {
    id: chainId,
    name: "",
    nativeCurrency: { name: "", symbol: "", decimals: 18 },
    rpcUrls: { default: { http: [] } },
  }
  const client = createWalletClient({ account, chain, transport: http(node.url) })
  const hash = (await client.sendTransaction({ to: factory, data })) as Hash
  say(`Waiting for the transaction ${hash}, which empties ${checksummed(address)}.`)
  const receipt = await receiptOf(hash, recovery)
  if (receipt.succeeded && token === ZERO_ADDRESS) return { hash, moved: held }
  const moved = receipt.transfers.find(each => each.token === token && each.from === address && each.to === owner)
  if (!receipt.succeeded || !moved) throw new Error(`The transaction ${hash} moved nothing.`)
  return { hash, moved: moved.value }
}

/**
 * Waits for a receipt, and reports every ten seconds that it is still waiting. A node that fails in the meantime is
 * queried again.
 */
async function receiptOf(hash: Hash, { node, say, patienceMs }: Recovery): Promise<Receipt> {
  const begin = performance.now()
  let shownMs = 0
  for (;;) {
    const answer = await askNode(node, [receiptCall(hash)])
      .then(([reported]) => readReceipt(reported))
      .catch((error: Error) => error)
    if (answer !== undefined && !(answer instanceof Error)) return answer
    const trouble = answer === undefined ? "" : ` (${firstLine(answer)})`
    const waitedMs = performance.now() - begin
    const seconds = Math.round(waitedMs / 1_000)
    if (waitedMs >= patienceMs)
      throw new Unmined(
        `The transaction ${hash} is still not in a block after ${seconds} s${trouble}. It may still be mined: look it up in an explorer. You can safely run this command again, because the money can only go to its owner.`,
      )
    if (waitedMs - shownMs >= PROGRESS_MS) {
      shownMs = waitedMs
      say(`Still waiting for ${hash} after ${seconds} s${trouble}.`)
    }
    await sleep(POLL_MS)
  }
}
