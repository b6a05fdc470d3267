// A file reaches 0G's nodes, is proven to be there, and no fault of a node passes for success.
import { randomBytes } from "node:crypto"
import { json } from "node:stream/consumers"
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { rootOf, treeOf } from "../../../../../verify/src/merkle.ts"
import { type Anvil, revertOf, startAnvil } from "../../../../test/anvil.ts"
import { startServer } from "../../../../test/local-server.ts"
import { type NodeFault, PRICE, startZerog } from "../../../../test/zerog.ts"
import type { Address } from "../../../platform/chain/hex.ts"
import type { Context } from "../../../platform/context.ts"
import type { Asking } from "./ask-nodes.ts"
import { uploadFile } from "./send-file.ts"
import { storeFee } from "./store-call.ts"
import { flowAbi, submissionOf } from "./submission.ts"

let anvil: Anvil
let zerog: Awaited<ReturnType<typeof startZerog>>
const allowing = (allowCidrs: string[]) =>
  ({ settings: { webhooks: { allowCidrs } }, signal: new AbortController().signal }) as Context
const ctx = allowing(["127.0.0.0/8"])
beforeAll(async () => {
  anvil = await startAnvil()
  zerog = await startZerog(anvil)
})
afterAll(async () => {
  zerog?.stop()
  await anvil?.stop()
})
beforeEach(() => {
  zerog.name()
  for (const node of zerog.nodes) node.fault = undefined
})

const callOf = (file: Uint8Array, more = 0n) => {
  const submission = submissionOf(treeOf(file), file.length, anvil.accounts[0].address.toLowerCase() as Address)
  const value = storeFee(file.length, PRICE) + more
  return { address: zerog.flow, abi: flowAbi, functionName: "submit", args: [submission], value } as const
}
const submit = async (file: Uint8Array) => {
  const { status } = await anvil.client.writeContractSync(callOf(file))
  expect(status).toBe("success")
  const { seq = -1, start = -1 } = (await zerog.files()).at(-1) ?? {}
  return { bytes: file, tree: treeOf(file), seq, start }
}
type Sent = Awaited<ReturnType<typeof submit>>
const upload = (sent: Sent, as: Partial<Asking> = {}) => uploadFile({ ...ctx, ...as }, zerog.indexer, sent)
/** Of three segments, the last not full. */
const largeFile = () => randomBytes(2 * 262_144 + 5 * 256)

describe("the contract", () => {
  it("takes the submission of any size of file, with the root that ours is, and no wei less", async () => {
    for (const chunks of [1, 2, 3, 16, 17, 33, 1_000, 1_025, 2_100]) {
      const file = randomBytes(chunks * 256)
      await submit(file)
      expect((await zerog.files()).at(-1)).toMatchObject({ root: rootOf(treeOf(file)), size: file.length })
      expect(await revertOf(anvil.client.simulateContract(callOf(file, -1n)))).toMatch(/^NotEnoughFee/)
    }
    expect(await anvil.client.getBalance({ address: zerog.flow })).toBe(0n)
  })
})

describe("a file", () => {
  it("waits until a node has read its transaction", async () => {
    const file = await submit(largeFile())
    for (const node of zerog.nodes) node.fault = "stale"
    expect(await upload(file)).toMatchObject({ state: "pending" })
    for (const node of zerog.nodes) node.fault = undefined
    expect(await upload(file)).toMatchObject({ state: "stored" })
  })

  it("is stored once all its segments are proven to be there, and nothing is sent again then", async () => {
    const file = await submit(largeFile())
    expect(await upload(file)).toEqual({ state: "stored" })
    const before = zerog.nodes.map(({ uploads }) => uploads)
    expect(await upload(file)).toEqual({ state: "stored" })
    expect(zerog.nodes.map(({ uploads }) => uploads)).toEqual(before)
  })

  it.each<NodeFault>([
    "down",
    "stale",
    "half",
    "unfinalized",
    "boasting",
    "other bytes",
    "other proof",
    "other file",
    "silent",
  ])("is not stored while a node's fault is: %s; and is once it is not", async fault => {
    for (const [i, node] of zerog.nodes.entries()) {
      const file = await submit(largeFile())
      node.fault = fault
      // A node that does not answer is left alone for a while by those who share its ranges.
      const { state } = await upload(file, fault === "silent" ? { ...allowing(["127.0.0.0/8"]), timeoutMs: 1_000 } : {})
      expect(state, `node ${i}`).not.toBe("stored")
      node.fault = undefined
      expect((await upload(file)).state).toBe("stored")
    }
  })

  it("that somebody submitted too is stored by either transaction", async () => {
    const file = largeFile()
    for (const sent of [await submit(file), await submit(file)]) expect((await upload(sent)).state).toBe("stored")
  })

  it.each(["127.0.0.1", "localhost"])(
    "is brought to no node at %s, which is no public address, unless it is allowed",
    async host => {
      const file = await submit(largeFile())
      zerog.name(zerog.nodes.map(node => node.url.replace("127.0.0.1", host)))
      const before = zerog.nodes.map(({ asked }) => asked)
      const refused = await uploadFile(allowing([]), zerog.indexer, file)
      expect(refused).toMatchObject({
        state: "pending",
        why: expect.stringMatching(/which is not a public address|not public/),
      })
      expect(zerog.nodes.map(({ asked }) => asked)).toEqual(before)
      expect((await uploadFile(allowing(["127.0.0.0/8", "::1/128"]), zerog.indexer, file)).state).toBe("stored")
    },
  )

  it("waits where the indexer does not answer", async () => {
    expect(await uploadFile(ctx, "http://127.0.0.1:9", await submit(largeFile()))).toMatchObject({ state: "pending" })
  })
})

/** A server of JSON-RPC, with the fields beside `id`; it never answers where that is undefined. */
async function answering(reply: (method: string, params: unknown[]) => object | undefined | Promise<object>) {
  const state = { open: 0, asked: 0 }
  const server = await startServer((request, response) => {
    state.open++
    state.asked++
    response.once("close", () => state.open--)
    void json(request).then(async body => {
      const { method, params } = body as { method: string; params: unknown[] }
      const fields = await reply(method, params)
      if (fields) response.end(JSON.stringify({ jsonrpc: "2.0", id: 1, ...fields }))
    })
  })
  servers.push(server)
  return Object.assign(state, server)
}
const servers: { stop: () => void }[] = []
afterEach(() => {
  for (const { stop } of servers.splice(0)) stop()
})
const naming = (trusted: unknown) => answering(() => ({ result: { trusted } }))
const whole = { shardId: 0, numShard: 1 }

describe("an indexer", () => {
  it.each([
    ["null among the nodes", { result: { trusted: [null] } }],
    ["a text instead of nodes", { result: { trusted: "all" } }],
    ["nodes without a shard", { result: { trusted: [{ url: "http://127.0.0.1:9", config: null }, 5] } }],
    ["nothing", { result: null }],
    ["an error whose message is an object", { error: { message: { toString: 1, valueOf: 1 } } }],
    ["an error that is a text", { error: "no" }],
  ])("that answers %s is noted, and no more", async (_, fields) => {
    const { url } = await answering(() => fields)
    const file = await submit(largeFile())
    expect(await uploadFile(ctx, url, file)).toMatchObject({ state: "pending", why: expect.any(String) })
  })

  it("that names nodes which never answer has them asked at the same time, once, and a file is stored by the others", async () => {
    let most = 0
    const count = () => holes.filter(({ open }) => open > 0).length
    const neverAnswering = () =>
      answering(() => {
        most = Math.max(most, count())
        return undefined
      })
    const holes = await Promise.all([1, 2, 3, 4].map(neverAnswering))
    const named = holes.map(({ url }) => ({ url, config: whole }))
    const { url } = await naming([...named, ...named, ...zerog.nodes])
    const as = { ...allowing(["127.0.0.0/8"]), timeoutMs: 2_000 }
    const file = await submit(largeFile())
    expect((await uploadFile(as, url, file)).state).toBe("stored")
    expect(most).toBe(holes.length)
    expect((await uploadFile(as, url, await submit(largeFile()))).state).toBe("stored")
    expect(holes.map(({ asked }) => asked)).toEqual([1, 1, 1, 1])
  })

  it("that names more nodes than anybody needs has 64 of them asked", async () => {
    const one = await answering(() => ({ result: null }))
    const { url } = await naming(Array.from({ length: 100 }, (_, i) => ({ url: `${one.url}/${i}`, config: whole })))
    await uploadFile(ctx, url, await submit(largeFile()))
    expect(one.asked).toBe(64)
  })

  it("that names a node twice gets no second copy by that", async () => {
    const [node] = zerog.nodes
    if (!node) throw new Error("no node")
    const file = await submit(randomBytes(256))
    const index = Math.floor(file.start / 1_024) % 2
    const holder = zerog.nodes[index] ?? node
    // Another node of the same shard has the transaction, and takes nothing.
    const other = await answering(async (method, params) => {
      const asked = await fetch(holder.url, { method: "POST", body: JSON.stringify({ id: 1, method, params }) })
      const { result } = (await asked.json()) as { result: object }
      return method === "zgs_getFileInfoByTxSeq"
        ? { result: { ...result, finalized: false } }
        : { error: { message: "full" } }
    })
    const twice = [holder.url, `${holder.url}/`, `${holder.url}/again`].map(url => ({ url, config: holder.config }))
    const { url } = await naming([...twice, { url: other.url, config: holder.config }])
    expect(await uploadFile(ctx, url, file)).toMatchObject({ state: "failed" })
    other.stop()
    expect(await uploadFile(ctx, url, file)).toEqual({ state: "stored" })
  })

  it("that names a node which knows the file by another number has it counted nowhere", async () => {
    const kept: { index: number }[] = []
    const liar = await answering((method, [first, second]) => {
      if (method === "zgs_uploadSegmentsByTxSeq") kept.push(...(first as { index: number }[]))
      if (method === "zgs_downloadSegmentWithProofByTxSeq")
        return { result: kept.find(({ index }) => index === second) }
      const tx = { seq: 424_242, startEntryIndex: 0, dataMerkleRoot: rootOf(file.tree) }
      return { result: { tx, finalized: kept.length > 0 } }
    })
    const file = await submit(randomBytes(256))
    const { url } = await naming([{ url: liar.url, config: whole }])
    expect(await uploadFile(ctx, url, file)).toMatchObject({
      state: "pending",
      why: expect.stringMatching("something else"),
    })
    expect(kept).toEqual([])
  })
})
