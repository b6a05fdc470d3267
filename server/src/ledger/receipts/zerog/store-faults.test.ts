// No endpoint, node, file or setting that is wrong has the storage of receipts pay too much, or stop for the other files.
import { mkdirSync, rmSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { json } from "node:stream/consumers"
import { sql } from "kysely"
import { encodeFunctionData, type Hex } from "viem"
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { startServer } from "../../../../test/local-server.ts"
import { MAX_FEE, type StorageRig, startStorageRig } from "../../../../test/storage.ts"
import { PRICE, startZerog } from "../../../../test/zerog.ts"
import type { Address, Hash } from "../../../platform/chain/hex.ts"
import { payoutAlarms } from "../../../platform/metrics.ts"
import { notifyDuePayments } from "../../settlement/notify-paid.ts"
import { type Storage, storageOf } from "./storage.ts"
import { storeFilesRound } from "./store-files.ts"
import { flowAbi } from "./submission.ts"
import { storeCallsRound } from "./write-store-calls.ts"

let on: StorageRig
beforeAll(async () => {
  on = await startStorageRig()
})
afterAll(() => on?.stop())
beforeEach(async () => {
  for (const node of on.zerog.nodes) node.fault = undefined
  await on.empty()
})
const servers: { stop: () => void }[] = []
afterEach(() => {
  on.zerog.name()
  for (const { stop } of servers.splice(0)) stop()
})

interface Asked {
  id: number
  method: string
  params: [{ data?: Hex } & string]
}
/** A server of JSON-RPC in front of another; `answer` may give another answer to a call, or undefined. */
async function inFrontOf(url: string, answer: (asked: Asked) => object | undefined, isDown = () => false) {
  const server = await startServer((request, response) => {
    void json(request).then(async body => {
      if (isDown()) return response.writeHead(503).end()
      const headers = { "content-type": "application/json" }
      const got = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) }).then(got => got.json())
      const asked = [body].flat() as Asked[]
      const said = ([got].flat() as { id: number }[]).map(reply => {
        const other = answer(asked.find(({ id }) => id === reply.id) as Asked)
        return other ? { jsonrpc: "2.0", id: reply.id, ...other } : reply
      })
      response.setHeader("content-type", "application/json").end(JSON.stringify(Array.isArray(body) ? said : said[0]))
    })
  })
  servers.push(server)
  return server.url
}
const askedPrice = encodeFunctionData({ abi: flowAbi, functionName: "pricePerSector" })
/** An endpoint that reports another price. */
const pricing = (price: bigint) =>
  inFrontOf(on.anvil.rpcUrl, ({ method, params: [call] }) =>
    method === "eth_call" && call.data === askedPrice
      ? { result: `0x${price.toString(16).padStart(64, "0")}` }
      : undefined,
  )
const storage = (more: Partial<Parameters<typeof storageOf>[0]>): Storage =>
  storageOf({
    chainId: on.storage.chain.chainId,
    rpcUrls: [on.anvil.rpcUrl],
    flow: on.zerog.flow,
    indexer: on.zerog.indexer,
    maxFee: MAX_FEE,
    ...more,
  })
const states = async () => (await on.calls()).map(({ state }) => state)
const uploaded = async () => (await on.batches()).map(({ uploaded_at }) => uploaded_at !== null)
const later = (ms = 60_000) => on.rig.service.advance(ms)
const alarms = async () =>
  (await payoutAlarms.get()).values.find(({ labels }) => labels.reason === "receipt_file")?.value ?? 0

describe("a price", () => {
  it("that one endpoint of three reports is paid by nobody, though the others are silent when it is asked", async () => {
    let isDown = true
    const lie = await pricing(PRICE * 1_000n)
    const honest = await Promise.all(
      [1, 2].map(() =>
        inFrontOf(
          on.anvil.rpcUrl,
          () => undefined,
          () => isDown,
        ),
      ),
    )
    const rpcUrls = [lie, ...honest]
    await on.batched()
    await on.round(storage({ rpcUrls }))
    expect(await states()).toEqual([])
    isDown = false
    await on.round(storage({ rpcUrls }))
    await on.carryOut(storage({ rpcUrls }))
    const [{ size } = { size: 0 }] = await on.batches()
    expect(await on.calls()).toMatchObject([{ state: "final", value: BigInt(size / 256) * PRICE }])
  })

  it("that makes a file's fee exceed ZEROG_MAX_FEE is paid once it does not, and is an alarm", async () => {
    const before = await alarms()
    await on.batched()
    await on.zerog.setPrice(MAX_FEE)
    await on.round()
    await on.round()
    expect([await states(), await alarms()]).toEqual([[], before + 1])
    await on.zerog.setPrice(PRICE)
    later()
    await on.round()
    await on.carryOut()
    expect(await states()).toEqual(["final"])
  })

  it("that was too high for the wallet is read again, so that a refill pays today's", async () => {
    const { client, accounts } = on.anvil
    const { address } = accounts[1]
    const balance = await client.getBalance({ address })
    const price = 2n * 10n ** 21n
    const lied = storage({ rpcUrls: [await pricing(price)], maxFee: 10n ** 30n })
    await on.batched()
    await on.round(lied)
    await on.pay(undefined, lied)
    expect(await on.calls()).toMatchObject([{ state: "held", held_reason: "low_gas" }])
    await client.setBalance({ address, value: 10n ** 24n })
    for (let i = 0; i < 2; i++) {
      later()
      await on.round()
      await on.carryOut()
    }
    const [{ size } = { size: 0 }] = await on.batches()
    expect(await on.calls()).toMatchObject([
      { state: "cancelled", held_detail: expect.stringMatching("price") },
      { state: "final", value: BigInt(size / 256) * PRICE },
    ])
    await client.setBalance({ address, value: balance })
  })

  it("that is too low has a call written less and less often", async () => {
    const low = storage({ rpcUrls: [await pricing(1n)] })
    await on.batched()
    for (let i = 0; i < 20; i++) {
      await on.round(low)
      await on.pay(undefined, low)
      later(5_000)
    }
    // In 100 seconds: at once, and after 5, 10, 20 and 40.
    expect((await states()).length).toBeLessThan(7)
    later(3_600_000)
    await on.round()
    await on.carryOut()
    expect((await states()).at(-1)).toBe("final")
  })

  it("of 0 is none: nothing is written or signed until there is one", async () => {
    await on.batched()
    await on.zerog.setPrice(0n)
    await on.round()
    expect(await states()).toEqual([])
    await on.zerog.setPrice(PRICE)
    await on.round()
    await on.zerog.setPrice(0n)
    await on.carryOut()
    expect(await states()).toEqual(["queued"])
    await on.zerog.setPrice(PRICE)
    later()
    await on.carryOut()
    expect(await states()).toEqual(["final"])
  })
})

it.each([4_000_000, 200])(
  "a file whose row says %i bytes is an alarm and is not paid for; the others are",
  async size => {
    const before = await alarms()
    const { db } = on.rig.service.ctx
    await on.batched()
    await on.batched()
    await on.batched()
    const [altered, , late] = await on.batches()
    const resize = (root = "", to = size) =>
      db
        .updateTable("receipt_batches")
        .set({ size: to })
        .where("root", "=", root as Hash)
        .execute()
    await resize(altered?.root)
    await on.round()
    expect([(await states()).length, await alarms()]).toEqual([2, before + 1])
    await resize(late?.root)
    await on.carryOut()
    expect((await states()).filter(state => state === "final")).toHaveLength(1)
    await resize(altered?.root, altered?.size)
    await resize(late?.root, late?.size)
  },
)

describe("a file that can't be read", () => {
  const pathOf = (root: string) => join(on.dataDir, "receipts", root.slice(2, 4), root.slice(2))

  it.each([
    ["is missing", () => {}],
    ["is a folder", (path: string) => void mkdirSync(path)],
    ["has other bytes", (path: string) => writeFileSync(path, "others")],
  ])("since it %s is an alarm, and stops none before or after it", async (_, spoil) => {
    const before = await alarms()
    await on.batched()
    await on.round()
    await on.carryOut()
    for (let i = 0; i < 3; i++) await on.batched()
    const [, unpaid, , last] = await on.batches()
    const lost = [unpaid?.root ?? "", last?.root ?? ""].map(pathOf)
    rmSync(lost[0] ?? "")
    spoil(lost[0] ?? "")
    await on.round()
    expect([await alarms(), await uploaded()]).toEqual([before + 1, [true, false, false, false]])
    rmSync(lost[1] ?? "")
    spoil(lost[1] ?? "")
    await on.carryOut()
    // It is held when it is to be signed, and the other is signed.
    expect((await states()).sort()).toEqual(["final", "final", "held"])
    await on.round()
    expect(await uploaded()).toEqual([true, false, true, false])
    for (const path of lost) rmSync(path, { recursive: true, force: true })
  })

  it("once it is paid for stops none either", async () => {
    await on.batched()
    await on.batched()
    await on.round()
    await on.carryOut()
    const path = pathOf((await on.batches())[0]?.root ?? "")
    rmSync(path)
    await on.round()
    expect(await uploaded()).toEqual([false, true])
    mkdirSync(dirname(path), { recursive: true })
  })
})

describe("a setting that was wrong", () => {
  it.each<[string, () => Promise<Partial<Storage>>]>([
    [
      "ZEROG_FLOW",
      async () => {
        const other = await startZerog(on.anvil)
        servers.push(other)
        return { flow: other.flow }
      },
    ],
    ["ZEROG_CHAIN_ID", async () => ({ chain: { ...on.storage.chain, chainId: 16_602 } })],
  ])("of %s is corrected: calls for elsewhere are cancelled, and files are paid for here", async (_, wrong) => {
    await on.batched()
    await on.round({ ...on.storage, ...(await wrong()) })
    expect(await states()).toEqual(["queued"])
    await on.round()
    expect(await states()).toEqual(["cancelled"])
    later()
    await on.round()
    await on.carryOut()
    await on.round()
    expect((await states()).sort()).toEqual(["cancelled", "final"])
    expect(await uploaded()).toEqual([true])
  })

  it("of one process of two has calls cancelled less and less often", async () => {
    const second = await startZerog(on.anvil)
    servers.push(second)
    await on.batched()
    for (let i = 0; i < 20; i++) {
      await on.round()
      await on.round(storage({ flow: second.flow, indexer: second.indexer }))
      later(5_000)
    }
    expect((await states()).length).toBeLessThan(7)
  })

  it("leaves a call that is signed: it is mined, and the file is paid for where the settings say, once each", async () => {
    await on.batched()
    await on.round()
    await on.anvil.client.setAutomine(false)
    await on.pay()
    await on.anvil.client.dropAllTransactions()
    await on.anvil.client.setAutomine(true)
    const second = await startZerog(on.anvil)
    servers.push(second)
    const before = await on.submitted()
    const there = storage({ flow: second.flow, indexer: second.indexer })
    for (let i = 0; i < 2; i++) {
      await on.round(there)
      await on.pay({ resendMs: 0, replaceMs: 60_000 }, there)
      await on.anvil.client.mine({ blocks: 5 })
      await on.pay(undefined, there)
      later()
    }
    expect([await states(), (await second.files()).length, await uploaded()]).toEqual([["final", "final"], 1, [true]])
    // Back again before it was uploaded there: what was paid here is not paid for twice.
    await sql`update receipt_batches set uploaded_at = null, storage_seq = null, storage_run_at = null`.execute(
      on.rig.service.ctx.db,
    )
    for (let i = 0; i < 2; i++) {
      await on.round()
      await on.carryOut()
    }
    expect([await states(), await uploaded()]).toEqual([["final", "final"], [true]])
    expect((await on.submitted()).length).toBe(before.length + 1)
  })
})

describe("nodes", () => {
  it("that do not know sixteen files do not keep the seventeenth from those that would take it", async () => {
    for (let i = 0; i < 17; i++) await on.batched()
    for (let i = 0; i < 2; i++) {
      await storeCallsRound(on.rig.service.ctx, on.storage, on.anvil.accounts[1].address.toLowerCase() as Address)
      await on.carryOut()
    }
    const lost = new Set((await on.batches()).slice(0, 16).map(({ root }) => root))
    const seqs = new Set((await on.zerog.files()).flatMap(({ root, seq }) => (lost.has(root) ? seq : [])))
    const knowing = on.zerog.nodes.map(({ url }) =>
      inFrontOf(url, ({ method, params: [seq] }) =>
        method === "zgs_getFileInfoByTxSeq" && seqs.has(Number(seq)) ? { result: null } : undefined,
      ),
    )
    on.zerog.name(await Promise.all(knowing))
    await on.round()
    await on.round()
    expect(await uploaded()).toEqual([...Array(16).fill(false), true])
    on.zerog.name()
    later()
    await on.round()
    expect(await uploaded()).toEqual(Array(17).fill(true))
  })

  it("that never answer have a file wait no longer than it may take", async () => {
    await on.batched()
    await on.round()
    await on.carryOut()
    const hole = await startServer(() => {})
    servers.push(hole)
    const patient = { ...on.rig.service.ctx, timeoutMs: 3_600_000 }
    await storeFilesRound(patient, storage({ indexer: hole.url }), 100)
    expect(await uploaded()).toEqual([false])
    later()
    await on.round()
    expect(await uploaded()).toEqual([true])
  })

  it("that never answer do not delay what is to be paid", async () => {
    await on.batched()
    await on.round()
    await on.carryOut()
    const reached = Promise.withResolvers<void>()
    const hole = await startServer(() => reached.resolve())
    servers.push(hole)
    const ending = new AbortController()
    const { ctx } = on.rig.service
    const uploading = storeFilesRound({ ...ctx, signal: ending.signal }, storage({ indexer: hole.url }))
    await reached.promise
    await on.batched()
    await storeCallsRound(ctx, on.storage, on.anvil.accounts[1].address.toLowerCase() as Address)
    expect((await on.calls()).length).toBe(2)
    ending.abort()
    await uploading
  })
})

it("a file whose transaction has no event Submit at enough endpoints is not stored", async () => {
  await on.batched()
  await on.round()
  await on.carryOut()
  const silent = await inFrontOf(on.anvil.rpcUrl, ({ method }) =>
    method === "eth_getTransactionReceipt" ? { result: null } : undefined,
  )
  await on.round(storage({ rpcUrls: [silent, on.anvil.rpcUrl] }))
  expect(await uploaded()).toEqual([false])
  later()
  await on.round()
  expect(await uploaded()).toEqual([true])
})

it("checkout.session.completed names no call that reverted", async () => {
  await on.batched()
  await on.round()
  await on.revertCall()
  expect(await states()).toEqual(["reverted"])
  const { ctx } = on.rig.service
  const completed = async () => {
    await notifyDuePayments(ctx as never)
    const events = ctx.db.selectFrom("events").select("body").where("type", "=", "checkout.session.completed")
    return (await events.execute()).map(({ body }) => JSON.parse(body).data.zeroG)
  }
  expect(await completed()).toEqual([])
  later()
  expect(await completed()).toEqual([undefined])
})
