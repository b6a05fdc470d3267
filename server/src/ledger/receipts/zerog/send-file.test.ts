// A file reaches 0G's nodes, is proven to be there, and no fault of a node passes for success.
import { randomBytes } from "node:crypto"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { rootOf, treeOf } from "../../../../../verify/src/merkle.ts"
import { type Anvil, revertOf, startAnvil } from "../../../../test/anvil.ts"
import { type NodeFault, PRICE, startZerog } from "../../../../test/zerog.ts"
import type { Address } from "../../../platform/chain/hex.ts"
import type { Context } from "../../../platform/context.ts"
import { uploadFile } from "./send-file.ts"
import { feeOf, flowAbi, submissionOf } from "./submission.ts"

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
  const value = feeOf(submission, PRICE) + more
  return { address: zerog.flow, abi: flowAbi, functionName: "submit", args: [submission], value } as const
}
const submit = async (file: Uint8Array) => {
  const { status } = await anvil.client.writeContractSync(callOf(file))
  expect(status).toBe("success")
}
const upload = (file: Uint8Array, timeoutMs?: number) =>
  uploadFile(timeoutMs ? { ...ctx, timeoutMs } : ctx, zerog.indexer, file)
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
    const file = largeFile()
    expect(await upload(file)).toMatchObject({ state: "pending" })
    await submit(file)
    for (const node of zerog.nodes) node.fault = "stale"
    expect(await upload(file)).toMatchObject({ state: "pending" })
    for (const node of zerog.nodes) node.fault = undefined
    expect(await upload(file)).toMatchObject({ state: "stored" })
  })

  it("is stored once all its segments are proven to be there, and nothing is sent again then", async () => {
    const file = largeFile()
    await submit(file)
    const { seq } = (await zerog.files()).at(-1) ?? {}
    expect(await upload(file)).toEqual({ state: "stored", seq })
    const before = zerog.nodes.map(({ uploads }) => uploads)
    expect(await upload(file)).toEqual({ state: "stored", seq })
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
      const file = largeFile()
      await submit(file)
      node.fault = fault
      const { state } = await upload(file, fault === "silent" ? 1_000 : undefined)
      expect(state, `node ${i}`).not.toBe("stored")
      node.fault = undefined
      expect((await upload(file)).state).toBe("stored")
    }
  })

  it("that somebody submitted too is stored by either transaction", async () => {
    const file = largeFile()
    await submit(file)
    await submit(file)
    expect((await upload(file)).state).toBe("stored")
    expect((await upload(file)).state).toBe("stored")
  })

  it.each(["127.0.0.1", "localhost"])(
    "is brought to no node at %s, which is no public address, unless it is allowed",
    async host => {
      const file = largeFile()
      await submit(file)
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
    expect(await uploadFile(ctx, "http://127.0.0.1:9", largeFile())).toMatchObject({ state: "pending" })
  })
})
