/**
 * Finds the transaction that executed an authorization, no matter who sent the transaction. Once broadcast, an
 * authorization is public, and anyone may submit it.
 */
import { pad, toEventSelector } from "viem"
import { AUTHORIZATION_USED } from "../../platform/chain/authorization-uses.ts"
import { type Address, type Hash, parseHash } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { openQuorum } from "../../platform/chain/quorum.ts"
import { hexNumber, type RpcCall, type RpcError, type RpcResult } from "../../platform/chain/rpc.ts"
import type { Receipt, Transfer } from "../../platform/chain/transfers.ts"
import { quorumOf } from "../../platform/chain/wallet-state.ts"
import type { Context } from "../../platform/context.ts"
import { askEach } from "../txmanager/simulate-on-each.ts"
import { stateCall } from "./try-relay.ts"

/** The EIP-3009 event that a token emits when a wallet cancels an authorization. */
const AUTHORIZATION_CANCELED = toEventSelector("AuthorizationCanceled(address,bytes32)")
/**
 * The number of blocks in one search for an authorization, which is over an hour on Base. Nodes accept ranges of this
 * size.
 */
export const SEARCHED_BLOCKS = 2_000n
/**
 * The most searches for a used authorization if the scan lagged when the settlement was claimed. These searches cover
 * two days on Base.
 */
const MAX_SEARCHES = 50

/** The token transfer that an authorization permits. */
export interface Permitted {
  token: Address
  payer: Address
  nonce: Hash
  payTo: Address
  /** In base units. */
  amount: bigint
}

/** Whether a transfer is exactly the one that an authorization permits. */
export const isPermitted = (
  { token, from, to, value }: Transfer,
  { token: asset, payer, payTo, amount }: Permitted,
): boolean => token === asset && from === payer && to === payTo && value === amount

/**
 * Returns the receipt of the transaction that used an authorization and moved its money, searching from block `start`.
 * Returns null if a quorum reports the authorization as unused, and `used` if it was cancelled or used for something
 * else. Returns undefined if its use is unknown. Throws an {@link RpcError} if too few endpoints answer.
 *
 * A used nonce alone proves nothing: cancelling uses the nonce too, and a payer may sign the same nonce for another
 * amount. A token emits an authorization's transfer right after its own event, so only the transfer with the next index
 * counts. Otherwise any number of nonces could point at one transfer elsewhere in the transaction.
 */
export async function findUse(
  ctx: Context,
  network: Network,
  permitted: Permitted,
  start: bigint,
): Promise<Pick<Receipt, "txHash" | "blockNumber" | "position"> | "used" | null | undefined> {
  const quorum = await openQuorum(network, 0n, ctx.signal)
  const needed = quorumOf(network)
  let agreed: Use[] | undefined = []
  // A node that does not have the log may lag behind the node that reported the nonce as used. Only an unused nonce
  // proves that nothing was paid.
  let unused: unknown[] = []
  for (let i = 0n, from = start; agreed?.length === 0 && from <= quorum.head && i < MAX_SEARCHES; i++) {
    // Nodes refuse a range that ends beyond their head.
    const to = minOf(quorum.head, from + SEARCHED_BLOCKS - 1n)
    const { payer, nonce } = permitted
    const calls = [usesCall(permitted, from, to), ...(i === 0n ? [stateCall(network, payer, nonce)] : [])]
    const answers = await askEach(network, calls, ctx.signal)
    agreed = agreedUses(answers, needed)
    if (i === 0n)
      unused = answers.filter(
        results => results?.[0]?.ok && usesOf(results[0].value).length === 0 && isZero(results[1]),
      )
    if (unused.length >= needed) break
    from = to + 1n
  }
  if (agreed === undefined || quorum.head < start) return undefined
  if (agreed.length === 0) return unused.length >= needed ? null : undefined
  await quorum.learn(
    [],
    agreed.map(({ txHash }) => txHash),
  )
  for (const { txHash, logIndex } of agreed) {
    const receipt = quorum.receiptOf(txHash)
    // A quorum has just agreed on the log, so a missing receipt does not prove that nothing was paid.
    if (!receipt) return undefined
    const transfer = receipt.transfers.find(each => each.logIndex === logIndex + 1)
    if (receipt.succeeded && transfer && isPermitted(transfer, permitted)) return receipt
  }
  return "used"
}

const minOf = (a: bigint, b: bigint): bigint => (a < b ? a : b)

/** Builds the call that reads where an authorization was used or cancelled. */
function usesCall({ payer, nonce, token }: Permitted, from: bigint, to: bigint): RpcCall {
  const topics = [[AUTHORIZATION_USED, AUTHORIZATION_CANCELED], pad(payer), nonce]
  const range = { fromBlock: hexNumber(from), toBlock: hexNumber(to) }
  return { method: "eth_getLogs", params: [{ address: token, topics, ...range }] }
}

/** A nonce never has this many uses, because it is used or cancelled only once. */
const MAX_USES = 16

/** Returns the uses that enough endpoints report in their first answer; undefined if too few endpoints answer. */
function agreedUses(answers: readonly (RpcResult[] | undefined)[], needed: number): Use[] | undefined {
  // An endpoint that reports more logs than one nonce can have is ignored, because comparing them would delay everyone.
  const lists = answers
    .flatMap(results => (results?.[0]?.ok ? [usesOf(results[0].value)] : []))
    .filter(list => list.length <= MAX_USES)
  if (lists.length < needed) return undefined
  return lists
    .flat()
    .filter((use, i, all) => all.findIndex(each => isSame(each, use)) === i)
    .filter(use => lists.filter(list => list.some(each => isSame(each, use))).length >= needed)
}

const isZero = (result: RpcResult | undefined): boolean =>
  result?.ok === true && typeof result.value === "string" && /^0x0+$/.test(result.value)

/** The position of the log of a use. */
interface Use {
  txHash: Hash
  logIndex: number
}

const isSame = (a: Use, b: Use): boolean => a.txHash === b.txHash && a.logIndex === b.logIndex

/** Returns the positions in a list of logs; an empty list if the answer is not a list. */
function usesOf(logs: unknown): Use[] {
  if (!Array.isArray(logs)) return []
  return logs.flatMap(log => {
    const txHash = log?.removed === true ? undefined : parseHash(log?.transactionHash)
    const isIndex = typeof log?.logIndex === "string" && /^0x[0-9a-f]{1,8}$/i.test(log.logIndex)
    return txHash && isIndex ? [{ txHash, logIndex: Number.parseInt(log.logIndex, 16) }] : []
  })
}
