/**
 * A local 0G: its own `Flow` and `FixedPrice` contracts on anvil, two storage nodes that have half of the segments each, and
 * an indexer. The nodes answer as 0G's SDK expects; `npm run receipts:oracle` uploads and downloads with it.
 */
import { hash } from "node:crypto"
import { readFileSync } from "node:fs"
import type { IncomingMessage } from "node:http"
import { gunzipSync } from "node:zlib"
import { concatHex, getContract, type Hex, keccak256, parseAbi } from "viem"
import { provenBytes, segmentsOf } from "../../verify/src/segments.ts"
import type { Segment } from "../src/ledger/receipts/zerog/segments.ts"
import { flowAbi } from "../src/ledger/receipts/zerog/submission.ts"
import type { Address, Hash } from "../src/platform/chain/hex.ts"
import { type Anvil, deploy } from "./anvil.ts"
import { startServer } from "./local-server.ts"

/** Bytecode that 0G's SDK ships (1.2.8, ISC). */
export const zerogContracts = JSON.parse(
  gunzipSync(readFileSync(new URL("fixtures/zerog-contracts.json.gz", import.meta.url))).toString(),
) as { flow: Hex; market: Hex }

const setupAbi = parseAbi([
  "constructor(uint256 deployDelay)",
  "function initialize(address market, uint256 blocksPerEpoch)",
])
const marketAbi = parseAbi([
  "function initialize(uint256 pricePerSector, address flow, address reward)",
  "function setPricePerSector(uint256 pricePerSector)",
])
/** Takes whatever is sent and called. */
const REWARD = `0x${"5e".repeat(20)}` as Address
/** Longer than any test: an epoch that ends needs the hashes of blocks that are long gone. */
const BLOCKS_PER_EPOCH = 1_000_000n
export const PRICE = 30_733_644_962n

/** Deploys both contracts; each is its own implementation, so `initialize` is called once, by whoever comes first. */
async function deployFlow({ client }: Anvil): Promise<{ flow: Address; market: Address }> {
  const flow = await deploy(client, setupAbi, zerogContracts.flow, [0n])
  const market = await deploy(client, [], zerogContracts.market)
  await client.setCode({ address: REWARD, bytecode: "0x00" })
  await client.writeContractSync({
    address: market,
    abi: marketAbi,
    functionName: "initialize",
    args: [PRICE, flow, REWARD],
  })
  await client.writeContractSync({
    address: flow,
    abi: setupAbi,
    functionName: "initialize",
    args: [market, BLOCKS_PER_EPOCH],
  })
  return { flow, market }
}

/**
 * What a node does wrong. `stale`: it has not read the transaction; `half`: it keeps all but one segment of a request;
 * `unfinalized`: it does not say that it has all of its part; `boasting`: it says so, and takes nothing; `other file`: what it
 * says is about another; `silent`: it takes requests and never answers.
 */
export type NodeFault =
  | "down"
  | "stale"
  | "half"
  | "unfinalized"
  | "boasting"
  | "other bytes"
  | "other proof"
  | "other file"
  | "silent"
  | undefined

interface Filed {
  seq: number
  start: number
  size: number
  root: Hash
}

/** Starts it; `nodes[i].fault` may be set at any time. */
export async function startZerog(anvil: Anvil, shards = 2) {
  const contracts = await deployFlow(anvil)
  const read = getContract({ address: contracts.flow, abi: flowAbi, client: anvil.client })
  const files = async (): Promise<Filed[]> =>
    (await read.getEvents.Submit({}, { fromBlock: 0n, toBlock: "latest" })).map(({ args }) => ({
      seq: Number(args.submissionIndex),
      start: Number(args.startPos),
      size: Number(args.submission?.length),
      root: rootOfNodes((args.submission?.nodes ?? []).map(({ root }) => root as Hash)),
    }))
  const nodes = await Promise.all(
    Array.from({ length: shards }, (_, shardId) => startNode({ shardId, numShard: shards }, contracts.flow, files)),
  )
  const names: { urls?: string[] } = {}
  const sharded = () =>
    nodes.map(({ url, config }, i) => ({ url: names.urls?.[i] ?? url, config, latency: 1, since: 0 }))
  const indexer = await startRpc(async method => {
    if (method === "indexer_getShardedNodes") return { trusted: sharded(), discovered: [] }
    if (method === "indexer_getFileLocations") return sharded()
    throw new Error(`no method ${method}`)
  })
  return {
    ...contracts,
    indexer: indexer.url,
    nodes,
    /** Has the indexer name the nodes by these addresses; undefined: by their own. */
    name: (urls?: string[]) => Object.assign(names, { urls }),
    files,
    setPrice: (price: bigint) =>
      anvil.client.writeContractSync({
        address: contracts.market,
        abi: marketAbi,
        functionName: "setPricePerSector",
        args: [price],
      }),
    stop: () => {
      for (const { stop } of [indexer, ...nodes]) stop()
    },
  }
}

/** Each node is the left half of all that is left. */
const rootOfNodes = (roots: readonly Hash[]): Hash =>
  roots.reduceRight((right, left) => keccak256(concatHex([left, right])) as Hash)

const keccak = (bytes: Uint8Array): Uint8Array => hash("keccak-256", bytes, "buffer")

async function startNode(
  config: { shardId: number; numShard: number },
  flowAddress: Address,
  files: () => Promise<Filed[]>,
) {
  const state: { fault: NodeFault; uploads: number; asked: number } = { fault: undefined, uploads: 0, asked: 0 }
  const kept = new Map<string, Uint8Array>()
  const key = ({ seq }: Filed, index: number) => `${seq} ${index}`
  const isOurs = ({ start }: Filed, index: number) =>
    (Math.floor(start / 1_024) + index) % config.numShard === config.shardId
  const isFinal = (file: Filed) =>
    Array.from({ length: segmentsOf(file.size) }, (_, i) => i).every(i => !isOurs(file, i) || kept.has(key(file, i)))
  const proofs = new Map<string, Segment["proof"]>()
  const bySeq = async (seq: unknown): Promise<Filed> => {
    const file = (await files()).find(each => each.seq === seq)
    if (!file) throw new Error("transaction not found")
    return file
  }
  const info = (file: Filed | undefined) =>
    file === undefined || state.fault === "stale"
      ? null
      : {
          tx: {
            streamIds: [],
            data: [],
            dataMerkleRoot: state.fault === "other file" ? keccak256(file.root) : file.root,
            merkleNodes: [],
            startEntryIndex: file.start,
            size: file.size,
            seq: file.seq,
          },
          finalized: state.fault === "boasting" || (state.fault !== "unfinalized" && isFinal(file)),
          isCached: false,
          uploadedSegNum: [...kept.keys()].filter(each => each.startsWith(`${file.seq} `)).length,
        }
  const take = (file: Filed, segment: Segment): void => {
    const { index } = segment
    if (!isOurs(file, index)) throw new Error("segment of another shard")
    const bytes = provenBytes(segment, { root: file.root, size: file.size, index }, keccak)
    if (!bytes || segment.fileSize !== file.size || segment.root !== file.root) throw new Error("invalid proof")
    kept.set(key(file, index), bytes)
    proofs.set(key(file, index), segment.proof)
  }
  const give = (bytes: Uint8Array): string =>
    Buffer.from(state.fault === "other bytes" ? bytes.map(byte => byte ^ 1) : bytes).toString("base64")
  const proofOf = (file: Filed, index: number) => {
    const { lemma = [], path = [] } = proofs.get(key(file, index)) ?? {}
    return { path, lemma: state.fault === "other proof" ? lemma.map(each => keccak256(each as Hash)) : lemma }
  }
  const methods: Record<string, (...params: never[]) => Promise<unknown>> = {
    zgs_getStatus: async () => ({
      connectedPeers: 1,
      logSyncHeight: 0,
      logSyncBlock: "0x",
      nextTxSeq: 0,
      networkIdentity: { chainId: 84532, flowAddress, p2pProtocolVersion: { major: 0, minor: 1, build: 0 } },
    }),
    zgs_getShardConfig: async () => config,
    zgs_getFileInfo: async (root: Hash) => info((await files()).find(file => file.root === root)),
    zgs_getFileInfoByTxSeq: async (seq: number) => info(await bySeq(seq)),
    zgs_uploadSegmentsByTxSeq: async (segments: Segment[], seq: number) => {
      const file = await bySeq(seq)
      if (isFinal(file) || state.fault === "boasting")
        throw new Error("Invalid params: data: already uploaded and finalized")
      state.uploads += 1
      for (const segment of state.fault === "half" ? segments.slice(1) : segments) take(file, segment)
      return 0
    },
    zgs_downloadSegmentByTxSeq: async (seq: number, from: number, to: number) => {
      const bytes = kept.get(key(await bySeq(seq), Math.floor(from / 1_024)))
      return bytes ? give(bytes.subarray((from % 1_024) * 256, ((to - 1) % 1_024) * 256 + 256)) : null
    },
    zgs_downloadSegmentWithProofByTxSeq: async (seq: number, index: number) => {
      const file = await bySeq(seq)
      const bytes = kept.get(key(file, index))
      if (!bytes) return null
      return { root: file.root, data: give(bytes), index, proof: proofOf(file, index), fileSize: file.size }
    },
  }
  const server = await startRpc(async (method, params) => {
    state.asked += 1
    if (state.fault === "down") throw new Error("down")
    if (state.fault === "silent") return await new Promise(() => {})
    const answer = methods[method]
    if (!answer) throw new Error(`no method ${method}`)
    return await answer(...(params as never[]))
  })
  return Object.assign(state, { ...server, config, kept })
}

/** JSON-RPC of one call a request. */
async function startRpc(answer: (method: string, params: unknown[]) => Promise<unknown>) {
  return await startServer((request, response) => {
    void textOf(request).then(async text => {
      const { id, method, params } = JSON.parse(text) as { id: number; method: string; params?: unknown[] }
      const reply = await answer(method, params ?? []).then(
        result => ({ result }),
        (error: Error) => ({ error: { code: -32_000, message: error.message } }),
      )
      response.setHeader("content-type", "application/json")
      response.end(JSON.stringify({ jsonrpc: "2.0", id, ...reply }))
    })
  })
}

async function textOf(request: IncomingMessage): Promise<string> {
  let text = ""
  for await (const part of request) text += part
  return text
}
