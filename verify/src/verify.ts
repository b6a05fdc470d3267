/**
 * Verifies receipts without trusting the service or the file's maker. It follows the paid address from the transfer on
 * the chain to its factory, and from there to the key that the factory's operator registered. Then it checks that this
 * key signed exactly this receipt.
 */
import { fromBase64url, toHex } from "./bytes.ts"
import { asTopic, depositAddress, RECEIPT_ANCHOR, saltOf, topics } from "./chain.ts"
import {
  type DepositTerms,
  type Fact,
  hashOfFact,
  hashOfReceipt,
  type Moved,
  open,
  padded,
  type ReceiptBody,
  readReceipt,
  type SavedReceipt,
} from "./format.ts"
import { rootOfPart } from "./merkle.ts"
import { type Node, numberOf } from "./rpc.ts"

/** The result of one question; `isSo` is undefined if it was not checked. */
export interface Line {
  n: number
  isSo: boolean | undefined
  words: string
}

/** The questions, in their order. */
export const questions = [
  "It opens, and its facts are its own",
  "It is signed by a key that was registered for who was paid",
  "It is part of its batch",
  "The batch is written to the chain",
  "The transfer is on the chain",
  "The address that was paid follows from its terms",
  "It follows the merchant's receipt before it",
] as const

/** The nodes to ask, and what else the caller trusts. */
export interface Asking {
  /** By chain id; a chain without a node is not asked. */
  nodes: ReadonlyMap<number, Node>
  /** A factory that the caller knows to belong to the merchant's service, for receipts that name none. */
  factory?: string | undefined
}

/** A receipt with the findings about it. */
export interface Verified {
  body: ReceiptBody | undefined
  /** The key that signed it. */
  kid?: string
  /** Its chain, and the factories of the paid addresses, or the one that the caller knows. */
  chainId?: number
  factories?: string[]
  /** The hash of its signed form, which the next receipt names. */
  hash: string | undefined
  lines: Line[]
}

/** The clocks of a chain and a service may differ by this, in seconds. */
export const CLOCKS_S = 60
/** A receipt that names this many transfers may list only a part of them. */
const MOST_TRANSFERS = 64

export type Answer = Pick<Line, "isSo" | "words">
export const yes = (words: string): Answer => ({ isSo: true, words })
export const no = (words: string): Answer => ({ isSo: false, words })
export const unchecked = (words: string): Answer => ({ isSo: undefined, words: `not checked: ${words}` })

/** Asks one question. An error that it throws is its answer. */
export async function ask(question: () => Promise<Answer>): Promise<Answer> {
  try {
    return await question()
  } catch (error) {
    return no(error instanceof Error ? error.message : "it can't be read")
  }
}

/** The data through which a receipt is followed. */
interface Followed {
  saved: SavedReceipt
  jws: string
  body: ReceiptBody
  kid: string
  node: Node | undefined
  /** The factories of the paid addresses, or the one that the caller knows. */
  factories: string[]
}

/** Answers the first six questions about a receipt. */
export async function verify(saved: SavedReceipt, { nodes, factory }: Asking): Promise<Verified> {
  const inBatch = await ask(async () => {
    const isSo = rootOfPart(padded(saved.jwe), saved.offset, saved.size, saved.path) === saved.root
    return isSo ? yes(`at ${saved.offset} of ${saved.size} bytes`) : no("another root follows from its bytes and path")
  })
  let jws: string
  try {
    jws = await open(saved.jwe, saved.key)
  } catch (error) {
    const closed = unchecked("it does not open")
    const words = error instanceof Error ? error.message : "it does not open"
    return { body: undefined, hash: undefined, lines: linesOf([no(words), closed, inBatch, closed, closed, closed]) }
  }
  const signed = await readReceipt(jws).catch(error => error as Error)
  const opens = await ask(() => ownFacts(saved.facts, signed instanceof Error ? undefined : signed.body))
  if (signed instanceof Error) {
    const unread = unchecked("it is not signed")
    const lines = linesOf([opens, no(signed.message), inBatch, unread, unread, unread])
    return { body: undefined, hash: undefined, lines }
  }
  const { body, kid } = signed
  const chainId = numberOfChain(body)
  const node = nodes.get(chainId)
  const named = body.transfers.flatMap(each => each.factory ?? [])
  const factories = [...new Set(named.length > 0 ? named : factory === undefined ? [] : [factory])]
  const followed: Followed = { saved, jws, body, kid, node, factories }
  const anchored = await ask(() => isAnchored(followed))
  const lines = [
    opens,
    await ask(() => isRegistered(followed)),
    inBatch,
    anchored,
    await ask(() => isMoved(followed)),
    await ask(() => isCommitted(followed)),
  ]
  return { body, kid, chainId, factories, hash: await hashOfReceipt(jws), lines: linesOf(lines) }
}

const linesOf = (answers: readonly Answer[]): Line[] => answers.map((answer, i) => ({ n: i + 1, ...answer }))

const numberOfChain = ({ chain }: ReceiptBody): number => Number.parseInt(/^eip155:(\d+)$/.exec(chain)?.[1] ?? "", 10)

async function ownFacts(facts: readonly Fact[], body: ReceiptBody | undefined): Promise<Answer> {
  if (!body) return yes("it opens")
  const hashes = await Promise.all(facts.map(hashOfFact))
  const wrong = hashes.findIndex(hash => !body.facts.includes(hash))
  if (wrong >= 0) return no(`the receipt does not have the fact "${facts[wrong]?.name}" as it is here`)
  return yes(`${facts.length} of its ${body.facts.length} facts are shown`)
}

const NO_NODE = "name a node of the chain"

/** The blocks with an event about one thing: at the block that the file names, or anywhere from a given block on. */
export async function blocksOf(
  node: Node,
  event: readonly [topic: string, factory: string, about: string],
  hint: number | null | undefined,
  from: number,
): Promise<number[]> {
  const [topic, factory, about] = event
  const filter = [topic, asTopic(factory), about]
  const latest = numberOf((await node.block("latest"))?.number ?? "0x0")
  const logs = await node.logs(RECEIPT_ANCHOR, filter, hint ?? from, hint ?? latest)
  const isIt = ({ address, topics: has }: { address: string; topics: string[] }) =>
    address.toLowerCase() === RECEIPT_ANCHOR && filter.every((each, i) => has[i] === each)
  return logs.filter(isIt).map(log => numberOf(log.blockNumber))
}

const firstBlock = ({ transfers }: ReceiptBody): number =>
  transfers.length === 0 ? 0 : Math.min(...transfers.map(({ blockNumber }) => blockNumber))

async function isRegistered({ saved, body, kid, node, factories }: Followed): Promise<Answer> {
  if (!node) return unchecked(`the signature holds; ${NO_NODE} to see whose key it is`)
  if (factories.length === 0)
    return unchecked(
      "the signature holds; it names no factory, so say which one is the service's to see whether the key is its own",
    )
  const thumbprint = toHex(fromBase64url(kid))
  for (const factory of factories) {
    const [registered] = await blocksOf(node, [topics.key, factory, thumbprint], saved.keyBlock, 0)
    if (registered === undefined) return no(`nobody who may has registered its key for the factory ${factory}`)
    const block = await node.block(registered)
    if (!block || numberOf(block.timestamp) > Date.parse(body.at) / 1_000 + CLOCKS_S)
      return no("its key was registered after it was signed")
    const [revoked] = await blocksOf(node, [topics.revoked, factory, thumbprint], null, registered)
    if (revoked === undefined) continue
    const [anchored] = await blocksOf(node, [topics.anchored, factory, saved.root], saved.anchorBlock, registered)
    if (anchored === undefined || anchored >= revoked)
      return no("its key was revoked before it was written to the chain")
  }
  return yes(`key ${kid}, registered by the operator of ${factories.join(", ")}`)
}

async function isAnchored({ saved, body, node, factories }: Followed): Promise<Answer> {
  if (!node) return unchecked(NO_NODE)
  if (factories.length === 0) return unchecked("it names no factory")
  for (const factory of factories) {
    const [block] = await blocksOf(node, [topics.anchored, factory, saved.root], saved.anchorBlock, firstBlock(body))
    if (block !== undefined) return yes(`in block ${block}`)
  }
  return no(`nobody who may has written the root ${saved.root} to the chain`)
}

async function isMoved({ body, node }: Followed): Promise<Answer> {
  if (body.type === "reversed") return unchecked("it takes another receipt back, and moves nothing")
  if (!node) return unchecked(NO_NODE)
  if (body.transfers.length === 0) return no("it names no transfer")
  const total = body.transfers.reduce((sum, { amount }) => sum + BigInt(amount), 0n)
  if (body.transfers.length < MOST_TRANSFERS && total !== BigInt(body.amount))
    return no("its transfers do not add up to its amount")
  const [chainId, finalized] = await Promise.all([node.chainId(), node.block("finalized")])
  if (chainId !== numberOfChain(body)) return unchecked("the node is of another chain")
  for (const moved of body.transfers) {
    const fault = await faultOf(node, body, moved)
    if (fault) return no(fault)
  }
  const last = Math.max(...body.transfers.map(({ blockNumber }) => blockNumber))
  if (!finalized || numberOf(finalized.number) < last)
    return unchecked(`it is in block ${last}, which is not final yet`)
  return yes(`${body.transfers.length === 1 ? "it is" : `all ${body.transfers.length} are`} there and final`)
}

/** Why a transfer is not on the chain as the receipt describes it. */
async function faultOf(node: Node, { token }: ReceiptBody, moved: Moved): Promise<string | undefined> {
  const receipt = await node.receipt(moved.txHash)
  if (receipt?.status !== "0x1") return `the transaction ${moved.txHash} is not there`
  if (receipt.blockHash !== moved.blockHash || numberOf(receipt.blockNumber) !== moved.blockNumber)
    return `the transaction ${moved.txHash} is in another block`
  const logs = receipt.logs
    .filter(log => log.address.toLowerCase() === token && log.topics[0] === topics.transfer)
    .filter(log => log.topics[2] === asTopic(moved.to) && log.topics.length === 3 && BigInt(log.data) > 0n)
    .sort((a, b) => numberOf(a.logIndex) - numberOf(b.logIndex))
  const log = logs[moved.k]
  if (log?.topics[1] !== asTopic(moved.from) || BigInt(log.data) !== BigInt(moved.amount))
    return `the transaction ${moved.txHash} does not move ${moved.amount} to ${moved.to}`
  return undefined
}

async function isCommitted({ saved, body }: Followed): Promise<Answer> {
  if (body.type === "reversed") return unchecked("it takes another receipt back")
  if (body.escrow) return unchecked("money of an escrow goes to the merchant's wallet, not to an address of its own")
  const owners = new Set<string>()
  for (const { to, factory, terms } of body.transfers) {
    if (factory === undefined || terms === undefined) return no(`it says nothing about the terms of ${to}`)
    if (depositAddress(factory, terms) !== to) return no(`${to} is another address than its terms make`)
    const known = saved.terms.find(each => each.address === to)
    if (known && !isTermsOf(known, factory, terms)) return no(`the terms of ${to} are others`)
    if (known) owners.add(known.owner)
  }
  const words = "no one but whom its address names can get the money"
  return yes(owners.size === 0 ? words : `${words}: ${[...owners].join(", ")}`)
}

const isTermsOf = (known: DepositTerms, factory: string, terms: string): boolean =>
  known.factory === factory && saltOf(known) === terms
