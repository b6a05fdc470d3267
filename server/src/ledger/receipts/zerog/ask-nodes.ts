/** Asks 0G's indexer and storage nodes: JSON-RPC over HTTP, one call a request. Whatever they say is checked by the root. */
import { Agent } from "undici"
import type { Hash } from "../../../platform/chain/hex.ts"
import { post } from "../../../platform/chain/post.ts"
import type { Context } from "../../../platform/context.ts"
import { guardedConnector, openResolver } from "../../../platform/net/connector.ts"
import { addressRule } from "../../../platform/net/public-address.ts"
import type { Segment } from "./segments.ts"

/** `timeoutMs`: how long an exchange may take; 15 seconds by default. */
export type Asking = Pick<Context, "settings" | "signal"> & { timeoutMs?: number }

const TIMEOUT_MS = 15_000
/** A segment in base64 with its proof takes 350 KB. */
const MAX_BYTES = 1_048_576
/** Of the error of a node, which goes into the log. */
const MAX_WORDS = 200
const MAX_SHARDS = 1_024

/** A node that could not be asked, or that refuses; the message names its host and what it said. */
export class NodeRefused extends Error {}

/** Connections to nodes, by the ranges that the operator allows. */
const connections = new WeakMap<readonly string[], Agent>()

/**
 * The indexer is another's and names the nodes, so a node is asked only at a public address, or at one that
 * WEBHOOK_ALLOW_CIDRS allows, as its name resolves for this very connection.
 */
function nodesOf({ settings }: Asking): Agent {
  const { allowCidrs } = settings.webhooks
  const known = connections.get(allowCidrs)
  if (known) return known
  const connect = guardedConnector({
    allows: addressRule(allowCidrs),
    resolve: openResolver({ systemToo: allowCidrs.length > 0 }),
    timeoutMs: TIMEOUT_MS,
    answerBytes: MAX_BYTES,
  })
  const made = new Agent({ connect, allowH2: false, headersTimeout: 0, bodyTimeout: 0 })
  connections.set(allowCidrs, made)
  return made
}

const callNode = (ctx: Asking, url: string, method: string, params: readonly unknown[]): Promise<unknown> =>
  call(ctx, url, method, params, nodesOf(ctx))

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
    throw new NodeRefused(`${host} does not answer ${method}: ${error.message || error.name}`)
  })
  const { result, error } = (json ?? {}) as { result?: unknown; error?: { message?: unknown } }
  if (status > 299 || error || result === undefined)
    throw new NodeRefused(`${host} refuses ${method}: ${`${error?.message ?? `status ${status}`}`.slice(0, MAX_WORDS)}`)
  return result
}

/** A storage node; it has the segments whose number in the whole log is `shardId` modulo `numShard`. */
export interface StorageNode {
  url: string
  shardId: number
  numShard: number
}

/** The nodes that the indexer trusts. */
export async function trustedNodes(ctx: Asking, indexer: string): Promise<StorageNode[]> {
  const { trusted } = ((await call(ctx, indexer, "indexer_getShardedNodes", [])) ?? {}) as { trusted?: unknown }
  if (!Array.isArray(trusted)) return []
  return trusted.flatMap((each: { url?: unknown; config?: { shardId?: unknown; numShard?: unknown } }) => {
    const { shardId, numShard } = each.config ?? {}
    const isShard = Number.isInteger(shardId) && POWERS.some(n => n === numShard) && Number(shardId) < Number(numShard)
    if (!isShard || Number(shardId) < 0 || typeof each.url !== "string" || !isHttp(each.url)) return []
    return [{ url: each.url, shardId: Number(shardId), numShard: Number(numShard) }]
  })
}

const POWERS = Array.from({ length: Math.log2(MAX_SHARDS) + 1 }, (_, i) => 2 ** i)

const isHttp = (text: string): boolean => URL.canParse(text) && ["http:", "https:"].includes(new URL(text).protocol)

/** A file as a node knows it; `start` is its first chunk in the whole log. */
export interface FileInfo {
  seq: number
  start: number
  isFinal: boolean
}

/** What a node knows of a file; undefined where it has not read the transaction yet. */
export async function fileInfo(ctx: Asking, { url }: StorageNode, root: Hash): Promise<FileInfo | undefined> {
  const info = (await callNode(ctx, url, "zgs_getFileInfo", [root, true])) as {
    tx?: { seq?: unknown; startEntryIndex?: unknown; dataMerkleRoot?: unknown }
    finalized?: unknown
  } | null
  if (info === null) return undefined
  const { seq, startEntryIndex: start, dataMerkleRoot } = info.tx ?? {}
  if (!Number.isSafeInteger(seq) || !Number.isSafeInteger(start) || dataMerkleRoot !== root)
    throw new NodeRefused(`${new URL(url).host} answers zgs_getFileInfo with something else`)
  return { seq: Number(seq), start: Number(start), isFinal: info.finalized === true }
}

/** Gives segments to a node; one that it has already is no error. */
export async function giveSegments(
  ctx: Asking,
  { url }: StorageNode,
  segments: readonly Segment[],
  seq: number,
): Promise<void> {
  try {
    await callNode(ctx, url, "zgs_uploadSegmentsByTxSeq", [segments, seq])
  } catch (error) {
    if (!(error instanceof NodeRefused) || !/already uploaded and finalized/i.test(error.message)) throw error
  }
}

/** A segment with its proof, as the node gives it: unchecked. */
export const takeSegment = (ctx: Asking, { url }: StorageNode, seq: number, index: number): Promise<unknown> =>
  callNode(ctx, url, "zgs_downloadSegmentWithProofByTxSeq", [seq, index])
