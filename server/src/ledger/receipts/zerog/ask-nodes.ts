/**
 * Queries 0G's indexer and storage nodes with JSON-RPC over HTTP, one call in each request. Whatever the nodes respond
 * with is checked against the root.
 */
import { Agent } from "undici"
import type { Hash } from "../../../platform/chain/hex.ts"
import { post } from "../../../platform/chain/post.ts"
import type { Context } from "../../../platform/context.ts"
import { guardedConnector, openResolver } from "../../../platform/net/connector.ts"
import { addressRule } from "../../../platform/net/public-address.ts"
import type { Place } from "./read-submitted.ts"
import type { Segment } from "./segments.ts"

/** How a query is made. `timeoutMs` is how long an exchange may take, 15 seconds by default. */
export type Asking = Pick<Context, "settings" | "signal"> & { timeoutMs?: number }

const TIMEOUT_MS = 15_000
/** A segment in base64 with its proof takes 350 KB. */
const MAX_BYTES = 1_048_576
/** The most characters of a node's error that go into the log. */
const MAX_WORDS = 200
const MAX_SHARDS = 1_024
/** The most nodes that are used, because an indexer may name any number. */
const MAX_NODES = 64
/** How long a node that did not answer is skipped. */
const DEAD_MS = 60_000

/** A node could not be queried, or refused. The message names the node's host and what the node said. */
export class NodeRefused extends Error {}

/** A node can't be reached, or does not answer in time. */
class NodeSilent extends NodeRefused {}

/**
 * The connections to nodes. Also has, for each host that did not answer, the time until which the host is skipped, by
 * `performance.now()`.
 */
interface Nodes {
  agent: Agent
  deadUntil: Map<string, number>
}

/** The connections for each list of address ranges that the operator allows. */
const connections = new WeakMap<readonly string[], Nodes>()

/**
 * Returns the connections for these settings. Someone else runs the indexer, and the indexer names the nodes. So a node
 * is queried only at a public address, or at one that WEBHOOK_ALLOW_CIDRS allows. The check applies to the address to
 * which the name resolves for this very connection.
 */
function nodesOf({ settings }: Asking): Nodes {
  const { allowCidrs } = settings.webhooks
  const known = connections.get(allowCidrs)
  if (known) return known
  const connect = guardedConnector({
    allows: addressRule(allowCidrs),
    resolve: openResolver({ systemToo: allowCidrs.length > 0 }),
    timeoutMs: TIMEOUT_MS,
    answerBytes: MAX_BYTES,
  })
  const agent = new Agent({ connect, allowH2: false, headersTimeout: 0, bodyTimeout: 0 })
  const made = { agent, deadUntil: new Map<string, number>() }
  connections.set(allowCidrs, made)
  return made
}

/** Returns the host of a node, with its port. Requests to the same host and port reach the same node. */
export const hostOf = ({ url }: StorageNode): string => new URL(url).host

const isDead = ({ deadUntil }: Nodes, node: StorageNode): boolean =>
  (deadUntil.get(hostOf(node)) ?? Number.NEGATIVE_INFINITY) > performance.now()

async function callNode(ctx: Asking, node: StorageNode, method: string, params: readonly unknown[]): Promise<unknown> {
  const nodes = nodesOf(ctx)
  if (isDead(nodes, node)) throw new NodeRefused(`${hostOf(node)} did not answer a moment ago`)
  try {
    return await call(ctx, node.url, method, params, nodes.agent)
  } catch (error) {
    if (error instanceof NodeSilent && !ctx.signal.aborted) {
      const now = performance.now()
      for (const [host, until] of nodes.deadUntil) if (until <= now) nodes.deadUntil.delete(host)
      nodes.deadUntil.set(hostOf(node), now + DEAD_MS)
    }
    throw error
  }
}

async function call(
  ctx: Asking,
  url: string,
  method: string,
  params: readonly unknown[],
  dispatcher?: Agent,
): Promise<unknown> {
  const { host } = new URL(url)
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params })
  const { status, json } = await post(url, body, {
    maxBytes: MAX_BYTES,
    timeoutMs: ctx.timeoutMs ?? TIMEOUT_MS,
    signal: ctx.signal,
    ...(dispatcher ? { dispatcher } : {}),
  }).catch((error: Error) => {
    throw new NodeSilent(`${host} does not answer ${method}: ${error.message || error.name}`)
  })
  const { result, error } = (json ?? {}) as { result?: unknown; error?: { message?: unknown } | null }
  if (status > 299 || error || result === undefined) {
    const words = typeof error?.message === "string" ? error.message : `status ${status}`
    throw new NodeRefused(`${host} refuses ${method}: ${words.slice(0, MAX_WORDS)}`)
  }
  return result
}

/** A storage node. The node has the segments whose number in the whole log is `shardId` modulo `numShard`. */
export interface StorageNode {
  url: string
  shardId: number
  numShard: number
}

/** Returns the nodes that the indexer trusts, each once and at most 64, without those that recently did not answer. */
export async function trustedNodes(ctx: Asking, indexer: string): Promise<StorageNode[]> {
  const { trusted } = ((await call(ctx, indexer, "indexer_getShardedNodes", [])) ?? {}) as { trusted?: unknown }
  if (!Array.isArray(trusted)) return []
  const known = nodesOf(ctx)
  const named = trusted.flatMap(
    (each: { url?: unknown; config?: { shardId?: unknown; numShard?: unknown } } | null) => {
      const { shardId, numShard } = each?.config ?? {}
      const isShard =
        Number.isInteger(shardId) && POWERS.some(n => n === numShard) && Number(shardId) < Number(numShard)
      if (!isShard || Number(shardId) < 0 || typeof each?.url !== "string" || !isHttp(each.url)) return []
      return [{ url: each.url, shardId: Number(shardId), numShard: Number(numShard) }]
    },
  )
  const nodes = [...new Map(named.map(node => [node.url, node])).values()]
  return nodes.filter(node => !isDead(known, node)).slice(0, MAX_NODES)
}

const POWERS = Array.from({ length: Math.log2(MAX_SHARDS) + 1 }, (_, i) => 2 ** i)

const isHttp = (text: string): boolean => URL.canParse(text) && ["http:", "https:"].includes(new URL(text).protocol)

/** A file that has a place in the log of all files. */
export interface Placed extends Place {
  root: Hash
}

/** Whether a node has its whole part of a file; undefined if the node has not read the transaction yet. */
export async function hasAll(
  ctx: Asking,
  node: StorageNode,
  { seq, start, root }: Placed,
): Promise<boolean | undefined> {
  const info = (await callNode(ctx, node, "zgs_getFileInfoByTxSeq", [seq])) as {
    tx?: { seq?: unknown; startEntryIndex?: unknown; dataMerkleRoot?: unknown } | null
    finalized?: unknown
  } | null
  if (info === null) return undefined
  const { tx } = info
  if (tx?.seq !== seq || tx.startEntryIndex !== start || tx.dataMerkleRoot !== root)
    throw new NodeRefused(`${hostOf(node)} answers zgs_getFileInfoByTxSeq with something else`)
  return info.finalized === true
}

/** Uploads segments to a node. A segment that the node already has is no error. */
export async function giveSegments(
  ctx: Asking,
  node: StorageNode,
  segments: readonly Segment[],
  seq: number,
): Promise<void> {
  try {
    await callNode(ctx, node, "zgs_uploadSegmentsByTxSeq", [segments, seq])
  } catch (error) {
    if (!(error instanceof NodeRefused) || !/already uploaded and finalized/i.test(error.message)) throw error
  }
}

/** Returns a segment with its proof, unchecked, as the node sent them. */
export const takeSegment = (ctx: Asking, node: StorageNode, seq: number, index: number): Promise<unknown> =>
  callNode(ctx, node, "zgs_downloadSegmentWithProofByTxSeq", [seq, index])
