// Whatever an endpoint refuses as too much, all logs are read, and in the next reading nothing is refused.
import fc from "fast-check"
import { afterAll, beforeAll, expect, it } from "vitest"
import { failed, logsJson, ScriptedChain, type ScriptedNode, startNode } from "../../../test/node.ts"
import { paperNetwork } from "../../../test/service.ts"
import { newEndpoint } from "./endpoints.ts"
import type { Address } from "./hex.ts"
import { type LogQuery, readLogs, transfersOf } from "./read-logs.ts"

let chain: ScriptedChain
let node: ScriptedNode
const addressOf = (n: number) => `0x${n.toString(16).padStart(40, "a")}` as Address
const addresses = Array.from({ length: 800 }, (_, i) => addressOf(i))

beforeAll(async () => {
  chain = new ScriptedChain(new Date(), 10)
  for (let i = 0; i < 60; i++) chain.pay([{ from: addressOf(9_999), to: addressOf(i * 13), value: BigInt(i + 1) }])
  node = await startNode(chain)
})
afterAll(() => node.stop())

const query = (change: Partial<LogQuery> = {}): LogQuery => ({
  token: paperNetwork.token.address,
  side: "to",
  addresses,
  fromBlock: 0n,
  toBlock: BigInt(chain.head.number),
  has: { number: BigInt(chain.head.number), hash: chain.head.hash },
  ...change,
})

/** The most that the node accepts. */
const limits = fc.record({
  bytes: fc.integer({ min: 3_000, max: 70_000 }),
  addresses: fc.integer({ min: 30, max: 1_500 }),
  range: fc.integer({ min: 4, max: 100 }),
  results: fc.integer({ min: 2, max: 80 }),
  words: fc.constantFrom(
    "limit exceeded",
    "exceed max topics",
    "query returned more than allowed results",
    "too many topics",
  ),
})
type Limits = typeof limits extends fc.Arbitrary<infer T> ? T : never

function limit({ bytes, addresses, range, results, words }: Limits): void {
  node.maxBytes = bytes
  node.hook = (method, params, blocks) => {
    if (method !== "eth_getLogs") return undefined
    const [filter] = params as unknown as [{ topics: [string, null, string[]]; fromBlock: string; toBlock: string }]
    const span = Number.parseInt(filter.toBlock, 16) - Number.parseInt(filter.fromBlock, 16) + 1
    const logs = logsJson(params, blocks)
    return filter.topics[2].length > addresses || span > range || logs.length > results ? failed(words) : logs
  }
}

it("reads all logs from a node that accepts only so many bytes, addresses, blocks or results", async () => {
  await fc.assert(
    fc.asyncProperty(limits, async most => {
      limit(most)
      const endpoint = newEndpoint("base-sepolia", node.url)
      let readTo = -1n
      const found: bigint[] = []
      // The next round continues with what a round's refusals left unread.
      for (let rounds = 0; rounds < 4 && readTo < chain.head.number; rounds++) {
        const reading = await readLogs(endpoint, query({ fromBlock: readTo + 1n }))
        found.push(
          ...transfersOf(reading)
            .filter(each => each.blockNumber > readTo)
            .map(each => each.value),
        )
        readTo = reading.readTo
      }
      expect(readTo).toBe(BigInt(chain.head.number))
      expect([...new Set(found)].sort((a, b) => Number(a - b))).toEqual(
        Array.from({ length: 60 }, (_, i) => BigInt(i + 1)),
      )
    }),
    { numRuns: 8 },
  )
})

it("keeps what it learned: in the second reading no request is refused", async () => {
  limit({ bytes: 20_000, addresses: 150, range: 1_000, results: 1_000, words: "too many topics" })
  const endpoint = newEndpoint("base-sepolia", node.url)
  expect((await readLogs(endpoint, query())).versions.size).toBe(60)
  expect([endpoint.logRange, endpoint.logAddresses > 75]).toEqual([10_000n, true])
  const learnt = { ...endpoint }
  expect((await readLogs(endpoint, query())).versions.size).toBe(60)
  // Every refusal makes one of the sizes smaller.
  expect({ ...endpoint, bytes: learnt.bytes }).toEqual(learnt)
})

it("reads nothing from a node that refuses, or lacks the head, and says why without the key of its URL", async () => {
  const none = { readTo: -1n, versions: new Map(), isTooLarge: false }
  node.maxBytes = Number.POSITIVE_INFINITY
  node.hook = method => (method === "eth_getLogs" ? failed("no archive for project 0123456789abcdef") : undefined)
  const endpoint = newEndpoint("base-sepolia", `${node.url}/v2/0123456789abcdef`)
  expect(await readLogs(endpoint, query())).toEqual({ ...none, refusal: "no archive for project …" })
  node.hook = () => undefined
  const has = { number: BigInt(chain.head.number), hash: chain.blocks[3]?.hash as never }
  expect((await readLogs(newEndpoint("base-sepolia", node.url), query({ has }))).readTo).toBe(-1n)
  node.broken = 503
  expect((await readLogs(newEndpoint("base-sepolia", node.url), query())).refusal).toBe("HTTP 503")
  node.broken = undefined
})
