import { decodeFunctionData, encodeFunctionResult, type Hex } from "viem"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import {
  blockJson,
  DROPPED,
  failed,
  logsJson,
  newHash,
  ScriptedChain,
  type ScriptedNode,
  startNode,
} from "../../../test/node.ts"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import { multicall3Abi } from "../../platform/chain/abi.ts"
import { newEndpoint } from "../../platform/chain/endpoints.ts"
import type { Address } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { troubleMessages } from "../../platform/chain/note-endpoint-troubles.ts"
import { screen } from "../../platform/chain/screen-addresses.ts"
import { sweepDue } from "../payouts/make-payouts.ts"
import { verifyRound } from "../settlement/verify-payments.ts"
import { ensureCursor } from "./scan-round.ts"

const A = `0x${"a".repeat(40)}` as Address
const B = `0x${"b".repeat(40)}` as Address
const MINUTE = 60_000
const usd = (dollars: number) => BigInt(dollars * 100) * 10_000n

let service: TestService
let chain: ScriptedChain
let nodes: ScriptedNode[] = []

beforeAll(async () => {
  service = await startService()
})
afterAll(async () => {
  await service.stop()
  for (const node of nodes) await node.stop()
})
beforeEach(async () => {
  await service.empty()
  await service.merchant("shop")
  await serve(1)
})

/** A new chain, served by so many nodes. */
async function serve(count: number): Promise<void> {
  for (const node of nodes) await node.stop()
  chain = new ScriptedChain(service.ctx.now())
  nodes = await Promise.all(Array.from({ length: count }, () => startNode(chain)))
  const served: Network = { ...paperNetwork, endpoints: nodes.map(node => newEndpoint("base-sepolia", node.url)) }
  service.ctx.chain.networks.splice(0, 1, served)
  await service.ctx.db.deleteFrom("cursors").execute()
  await ensureCursor(service.ctx, network())
}

const network = (): Network => service.ctx.chain.networks[0] ?? paperNetwork
const only = (): ScriptedNode => nodes[0] as ScriptedNode

/** Runs rounds of the job at once; a round that could not ask its endpoints changed nothing. */
async function rounds(count = 2): Promise<number> {
  let thrown = 0
  for (let i = 0; i < count; i++) {
    for (const endpoint of network().endpoints) endpoint.silentUntil = 0
    await service.ctx.db
      .updateTable("cursors")
      .set({ run_at: new Date(0) })
      .execute()
    await verifyRound(service.ctx, network()).catch(() => thrown++)
  }
  return thrown
}

async function paywall(fields: object = {}) {
  const { id } = (
    await service.call("POST", "/api/console/paywalls", { name: "Film", price: 5, ...fields }, { as: "shop" })
  ).body
  return { id: id as string, payTo: (await service.call("GET", `/api/paywalls/${id}`)).body.payTo as string }
}

const submit = (shop: { id: string }, txHash: string, address: string = A) =>
  service.call("POST", `/api/paywalls/${shop.id}/pay`, { txHash, address })
const statusOf = async (shop: { id: string }, txHash: string, address: string = A) =>
  (await service.call("GET", `/api/paywalls/${shop.id}/payments/${txHash}?address=${address}`)).body
/** A filter for all logs to an address. */
const range = (to: string) => ({
  address: paperNetwork.token.address,
  fromBlock: "0x0",
  toBlock: `0x${chain.head.number.toString(16)}`,
  topics: ["", null, [`0x${to.slice(2).toLowerCase().padStart(64, "0")}`]],
})
const hasAccess = async (shop: { id: string }, address: string = A): Promise<boolean> =>
  (await service.call("GET", `/api/paywalls/${shop.id}/verify?address=${address}`)).body.hasAccess
const cursor = async (): Promise<number> =>
  Number((await service.ctx.db.selectFrom("cursors").select("block_number").executeTakeFirstOrThrow()).block_number)
/** Returns what `/readyz` says about endpoints; it reads the database once a second. */
async function alarms(): Promise<string[]> {
  service.advance(2_000)
  const { body } = await service.call("GET", "/readyz")
  return body.alarms.filter((words: string) => words.includes("RPC endpoint"))
}
const grantCount = async () => (await service.ctx.db.selectFrom("grants").select("id").execute()).length

/** A paywall that A has paid and submitted, deep enough. */
async function paid(value = usd(5), from = A) {
  const shop = await paywall()
  const { hash, number } = chain.pay([{ from, to: shop.payTo, value }])
  await submit(shop, hash, from)
  return { shop, hash, number }
}

describe("no answer is no evidence", () => {
  const faults: [string, Partial<Pick<ScriptedNode, "hook" | "broken">>][] = [
    ["a 502", { broken: 502 }],
    ["a connection that breaks", { broken: "hang up" }],
    ["null receipts", { hook: method => (method === "eth_getTransactionReceipt" ? null : undefined) }],
    ["null for every block", { hook: method => (method === "eth_getBlockByNumber" ? null : undefined) }],
    ["errors for logs", { hook: method => (method === "eth_getLogs" ? failed("try later") : undefined) }],
    ["empty logs", { hook: method => (method === "eth_getLogs" ? [] : undefined) }],
    ["a batch that drops the logs", { hook: method => (method === "eth_getLogs" ? DROPPED : undefined) }],
    [
      "a batch that drops the receipts",
      { hook: method => (method === "eth_getTransactionReceipt" ? DROPPED : undefined) },
    ],
    ["another chain id", { hook: method => (method === "eth_chainId" ? "0x1" : undefined) }],
    [
      "a head that lags",
      {
        hook: (method, [tag], blocks) =>
          method === "eth_getBlockByNumber" && tag === "latest" ? blockJson(blocks[150]) : undefined,
      },
    ],
    [
      "logs without the newest blocks",
      {
        hook: (method, params, blocks) =>
          method === "eth_getLogs" ? logsJson(params, blocks.slice(0, 190)) : undefined,
      },
    ],
    [
      "receipts that lost their logs",
      {
        hook: (method, [hash], blocks) => {
          const block = blocks.find(each => each.transactions.some(transaction => transaction.hash === hash))
          if (method === "eth_getLogs") return []
          if (method !== "eth_getTransactionReceipt" || !block) return undefined
          const at = { blockNumber: `0x${block.number.toString(16)}`, blockHash: block.hash }
          return { status: "0x1", transactionHash: hash, ...at, logs: [], logsBloom: `0x${"f".repeat(512)}` }
        },
      },
    ],
  ]

  it.each(faults)("%s: nothing fails, nothing is reversed, and all is granted once it ends", async (_what, fault) => {
    const before = await paid()
    chain.mine(3)
    await rounds()
    expect(await hasAccess(before.shop)).toBe(true)
    const during = await paid(usd(5), B)
    chain.mine(3)
    Object.assign(only(), fault)
    for (let i = 0; i < 4; i++) {
      await rounds(1)
      service.advance(31_000)
      chain.mine(1)
    }
    expect(await statusOf(during.shop, during.hash, B)).toMatchObject({ reason: null })
    expect(await hasAccess(before.shop)).toBe(true)
    only().hook = () => undefined
    only().broken = undefined
    service.advance(10 * MINUTE)
    await rounds(4)
    expect([await hasAccess(before.shop), await hasAccess(during.shop, B)]).toEqual([true, true])
    expect(await grantCount()).toBe(2)
  })

  it("finalized going backwards: its endpoint has no vote until it has caught up", async () => {
    chain.finalized = 150
    await rounds(1)
    const { shop } = await paid()
    chain.mine(3)
    chain.finalized = 140
    expect(await rounds(2)).toBe(2)
    expect(await hasAccess(shop)).toBe(false)
    chain.finalized = 151
    await rounds()
    expect(await hasAccess(shop)).toBe(true)
  })

  it("an unreadable receipt keeps nobody else", async () => {
    const shop = await paywall()
    const bad = newHash()
    await submit(shop, bad, B)
    const { hash } = chain.pay([{ from: A, to: shop.payTo, value: usd(5) }])
    await submit(shop, hash)
    chain.mine(3)
    only().hook = (method, [asked]) =>
      method === "eth_getTransactionReceipt" && asked === bad
        ? { transactionHash: bad, blockHash: null, blockNumber: null, logs: [] }
        : undefined
    expect(await rounds()).toBe(0)
    expect(await hasAccess(shop)).toBe(true)
    expect(await statusOf(shop, bad, B)).toMatchObject({ status: "verifying" })
  })

  it("a hash is given up only after more than one look, however old: the service may have been down", async () => {
    const shop = await paywall()
    const { hash } = chain.pay([{ from: A, to: shop.payTo, value: usd(1) }])
    await submit(shop, newHash(), B)
    const unknown = (await service.ctx.db.selectFrom("submissions").selectAll().executeTakeFirstOrThrow()).tx_hash
    service.advance(25 * 60 * MINUTE)
    await rounds(1)
    expect(await statusOf(shop, unknown, B)).toMatchObject({ status: "verifying" })
    for (let i = 0; i < 3; i++) {
      service.advance(60 * MINUTE)
      await rounds(1)
    }
    expect(await statusOf(shop, unknown, B)).toMatchObject({ status: "failed", reason: "not_found" })
    // A transaction that is found late opens it again.
    chain.pay([{ from: B, to: shop.payTo, value: usd(5) }], unknown)
    chain.mine(3)
    await rounds(3)
    expect(await statusOf(shop, unknown, B)).toMatchObject({ status: "granted" })
    expect(hash).not.toBe(unknown)
  })
})

describe("the scan", () => {
  it("learns how many blocks of logs a node takes, and catches up after downtime", async () => {
    const limit = 400
    only().hook = (method, [filter]) => {
      const { fromBlock, toBlock } = (filter ?? {}) as { fromBlock: string; toBlock: string }
      return method === "eth_getLogs" && Number(toBlock) - Number(fromBlock) >= limit
        ? failed("query exceeds max block range 400")
        : undefined
    }
    const shop = await paywall()
    chain.mine(2_500)
    const { hash } = chain.pay([{ from: A, to: shop.payTo, value: usd(5) }])
    chain.mine(2_500)
    // The chain's clock went on with its blocks.
    service.advance(3 * 60 * MINUTE)
    await rounds(20)
    expect(await statusOf(shop, hash)).toMatchObject({ status: "granted" })
    expect(await hasAccess(shop)).toBe(true)
  })

  it("finds what a node that lagged unnoticed did not report", async () => {
    const shop = await paywall()
    await rounds(1)
    chain.pay([{ from: A, to: shop.payTo, value: usd(5) }])
    chain.mine(29)
    only().hook = (method, params, blocks) =>
      method === "eth_getLogs" ? logsJson(params, blocks.slice(0, -30)) : undefined
    await rounds(1)
    only().hook = () => undefined
    chain.mine(1)
    await rounds(1)
    expect(await hasAccess(shop)).toBe(false)
    service.advance(20 * MINUTE)
    await rounds()
    expect(await hasAccess(shop)).toBe(true)
  })

  it("asks little when little happens: whatever the number of payments among up to 1,000 addresses", async () => {
    for (let i = 0; i < 30; i++) await paywall()
    await rounds(2)
    only().calls = 0
    await rounds(1)
    expect(only().calls).toBeLessThanOrEqual(10)
  })
})

it("a buyer who submits is granted before a flood of dust at the same paywall is settled", async () => {
  const shop = await paywall()
  // More senders than a round settles, and all before the buyer by their addresses.
  const dust = Array.from({ length: 510 }, (_, i) => `0x${i.toString(16).padStart(40, "0")}` as Address)
  chain.pay(dust.map(from => ({ from, to: shop.payTo, value: 1n })))
  const { hash } = chain.pay([{ from: A, to: shop.payTo, value: usd(5) }])
  await submit(shop, hash)
  chain.mine(3)
  service.advance(11 * MINUTE)
  await rounds(1)
  await rounds(1)
  expect(await hasAccess(shop)).toBe(true)
})

describe("a reorg that is reported badly", () => {
  it("logs of the old fork with the head of the new: not granted", async () => {
    const shop = await paywall()
    await rounds(1)
    const { hash, number } = chain.pay([{ from: A, to: shop.payTo, value: usd(5) }])
    await submit(shop, hash)
    const old = chain.reorg(number)
    chain.mine(3)
    only().hook = (method, params) => (method === "eth_getLogs" ? logsJson(params, old) : undefined)
    await rounds(3)
    expect(await hasAccess(shop)).toBe(false)
  })

  it("a deep one whose checkpoint was answered from the old fork: noticed before anything is final", async () => {
    const { shop, number } = await paid()
    chain.mine(30)
    await rounds(2)
    expect(await hasAccess(shop)).toBe(true)
    const { block_number } = await service.ctx.db.selectFrom("cursors").select("block_number").executeTakeFirstOrThrow()
    const old = chain.reorg(number)
    chain.mine(2)
    let asked = 0
    only().hook = (method, [tag]) =>
      method === "eth_getBlockByNumber" && Number(tag) === Number(block_number) && asked++ === 0
        ? blockJson(old[Number(block_number)])
        : undefined
    await rounds(1)
    only().hook = () => undefined
    for (let i = 0; i < 3; i++) {
      chain.mine(2)
      chain.finalized = chain.head.number - 1
      service.advance(31_000)
      await rounds(1)
    }
    expect(await hasAccess(shop)).toBe(false)
    expect(await service.ctx.db.selectFrom("transfers").select("state").execute()).toEqual([{ state: "gone" }])
  })

  it("without a finalized block: what was mined into deep blocks is still found", async () => {
    const shop = await paywall()
    chain.mine(40)
    await rounds(1)
    const fork = chain.head.number - 35
    chain.reorg(fork)
    const hash = newHash()
    chain.blocks[fork + 2]?.transactions.push({ hash, transfers: [{ from: A, to: shop.payTo, value: usd(5) }] })
    chain.mine(2)
    only().hook = (method, [tag]) =>
      method === "eth_getBlockByNumber" && tag === "finalized" ? failed("not here") : undefined
    await rounds(3)
    expect(await statusOf(shop, hash)).toMatchObject({ status: "verifying" })
  })

  it("a transfer in doubt is not granted, nor forgotten", async () => {
    const shop = await paywall()
    const { hash, number } = chain.pay([{ from: A, to: shop.payTo, value: usd(5) }])
    chain.mine(3)
    await rounds()
    const old = chain.reorg(number)
    chain.mine(2)
    await rounds(1)
    await submit(shop, hash)
    await rounds(1)
    expect(await hasAccess(shop)).toBe(false)
    chain.blocks = old
    chain.mine(4)
    service.advance(MINUTE)
    await rounds(3)
    expect(await hasAccess(shop)).toBe(true)
  })

  it.each([
    ["A then B", A, B],
    ["B then A", B, A],
  ])("a transaction that is mined again from another sender: %s", async (_order, first, second) => {
    const { shop, hash, number } = await paid(usd(5), first)
    chain.mine(3)
    await rounds()
    expect(await hasAccess(shop, first)).toBe(true)
    chain.reorg(number)
    chain.pay([{ from: second, to: shop.payTo, value: usd(5) }], hash)
    chain.mine(3)
    await rounds()
    service.advance(15 * MINUTE)
    await rounds(3)
    expect([await hasAccess(shop, first), await hasAccess(shop, second)]).toEqual([false, true])
    expect((await statusOf(shop, hash, first)).status).not.toBe("granted")
  })

  it("a submission whose transfer came from another when it was mined again ends", async () => {
    const { shop, hash, number } = await paid()
    await rounds(1)
    chain.reorg(number)
    chain.pay([{ from: B, to: shop.payTo, value: usd(5) }], hash)
    chain.mine(5)
    for (let i = 0; i < 3; i++) {
      await rounds(1)
      service.advance(6_000)
    }
    expect(await statusOf(shop, hash)).toMatchObject({ status: "failed", reason: "wrong_sender" })
  })

  it("costs few calls where little is displaced, and compares all before it goes on", async () => {
    const shop = await paywall()
    for (let i = 0; i < 120; i++) chain.pay([{ from: A, to: shop.payTo, value: usd(1) }])
    chain.mine(3)
    await rounds(2)
    const { number } = chain.mine(1)
    await rounds(1)
    chain.reorg(number)
    chain.mine(1)
    only().calls = 0
    await rounds(1)
    expect(only().calls).toBeLessThan(80)
    expect(
      await service.ctx.db.selectFrom("transfers").select("id").where("suspect_at", "is not", null).execute(),
    ).toEqual([])
  })
})

describe("several endpoints", () => {
  it.each([
    ["down", { broken: 502 }],
    ["on another chain", { hook: method => (method === "eth_chainId" ? "0x1" : undefined) }],
    [
      "far behind",
      {
        hook: (method, [tag], blocks) =>
          method === "eth_getBlockByNumber" && tag === "latest" ? blockJson(blocks[100]) : undefined,
      },
    ],
  ] as [string, Partial<ScriptedNode>][])("one of three that is %s does not matter", async (_what, fault) => {
    await serve(3)
    Object.assign(nodes[0] as ScriptedNode, fault)
    const { shop } = await paid(usd(500))
    chain.mine(3)
    await rounds(3)
    expect(await hasAccess(shop)).toBe(true)
  })

  it("a large payment needs two that have it, a small one does not", async () => {
    await serve(2)
    ;(nodes[1] as ScriptedNode).broken = 502
    const large = await paid(usd(500), A)
    const small = await paid(usd(5), B)
    chain.mine(3)
    await rounds(3)
    expect([await hasAccess(large.shop, A), await hasAccess(small.shop, B)]).toEqual([false, true])
    service.advance(31_000)
    await rounds(1)
    expect(await alarms()).toEqual(["base-sepolia: RPC endpoint 2 of 2 does not answer: HTTP 502"])
    ;(nodes[1] as ScriptedNode).broken = undefined
    await rounds(3)
    expect(await hasAccess(large.shop, A)).toBe(true)
    expect(await alarms()).toEqual([])
  })

  it("a transfer that one node makes up, in a block that the others don't have, never counts", async () => {
    await serve(3)
    const shop = await paywall()
    await rounds(1)
    const fork = new ScriptedChain(service.ctx.now(), 0)
    fork.blocks = chain.blocks.slice(0, -3)
    const { hash } = fork.pay([{ from: A, to: shop.payTo, value: usd(5) }])
    fork.mine(3)
    chain.mine(1)
    const liar = nodes[0] as ScriptedNode
    liar.hook = (method, params) => {
      if (method === "eth_getLogs") return logsJson(params, fork.blocks)
      if (method !== "eth_getBlockByNumber") return undefined
      const [tag] = params as unknown as [string]
      return blockJson(tag === "latest" ? fork.head : fork.blocks[Number(tag)])
    }
    await submit(shop, hash)
    await rounds(4)
    service.advance(MINUTE)
    await rounds(2)
    expect(await hasAccess(shop)).toBe(false)
  })

  it("two that see a payment gone reverse it at once; while one still has it, nothing is reversed", async () => {
    await serve(2)
    const { shop, number } = await paid()
    chain.mine(3)
    await rounds(2)
    expect(await hasAccess(shop)).toBe(true)
    const old = chain.reorg(number)
    chain.mine(1)
    const stubborn = nodes[1] as ScriptedNode
    stubborn.hook = (method, params) => {
      const [tag] = params as unknown as [string]
      if (method === "eth_getLogs") return logsJson(params, old)
      return method === "eth_getBlockByNumber" && tag.startsWith("0x") ? blockJson(old[Number(tag)]) : undefined
    }
    await rounds(1)
    service.advance(MINUTE)
    await rounds(2)
    expect(await hasAccess(shop)).toBe(true)
    stubborn.hook = () => undefined
    await rounds(1)
    expect(await hasAccess(shop)).toBe(false)
  })

  it.each([
    [6, 7],
    [8, 4],
  ])("two that are both behind the block of a payment, by %i and %i, reverse nothing", async (first, second) => {
    await serve(2)
    const lagBy = (node: ScriptedNode | undefined, blocks: number) => {
      const known = () => chain.blocks.slice(0, chain.blocks.length - blocks)
      if (node)
        node.hook = (method, params) => {
          if (method === "eth_getLogs") return logsJson(params, known())
          const [asked] = params as unknown as [string]
          if (method === "eth_getTransactionReceipt")
            return known().some(block => block.transactions.some(({ hash }) => hash === asked)) ? undefined : null
          if (method !== "eth_getBlockByNumber" || asked === "finalized") return undefined
          return blockJson(asked === "latest" ? known().at(-1) : known()[Number(asked)])
        }
    }
    // The payment counts on the report of the other alone.
    lagBy(nodes[1], second)
    const { shop } = await paid()
    chain.mine(3)
    await rounds(3)
    expect(await hasAccess(shop)).toBe(true)
    lagBy(nodes[0], first)
    await rounds(2)
    expect(await hasAccess(shop)).toBe(true)
    for (const node of nodes) node.hook = () => undefined
    chain.mine(3)
    await rounds(3)
    expect(await service.ctx.db.selectFrom("payments").select("status").execute()).toEqual([{ status: "granted" }])
    const reversals = service.ctx.db.selectFrom("events").select("id").where("type", "like", "%reversed")
    expect(await reversals.execute()).toEqual([])
  })

  describe.each([2, 3])("of %i the last lies", count => {
    type Log = ReturnType<typeof logsJson>[number]
    const lie = (change: (logs: Log[]) => Log[]) => {
      const liar = nodes[count - 1] as ScriptedNode
      liar.hook = (method, params, blocks) => (method === "eth_getLogs" ? change(logsJson(params, blocks)) : undefined)
    }
    const rows = () => service.ctx.db.selectFrom("transfers").select(["value", "from_address"]).execute()

    it("a payment of 0.01 is not counted as one of 10,000", async () => {
      await serve(count)
      const shop = await paywall({ price: 5_000 })
      lie(logs => logs.map(log => ({ ...log, data: `0x${usd(10_000).toString(16).padStart(64, "0")}` })))
      const { hash } = chain.pay([{ from: A, to: shop.payTo, value: usd(0.01) }])
      await submit(shop, hash)
      chain.mine(5)
      await rounds(3)
      expect(await hasAccess(shop)).toBe(false)
      expect(await rows()).toEqual([{ value: usd(0.01), from_address: A }])
      // Its receipt was right, so it is clear which of the two contradicts.
      expect(await alarms()).toEqual([`base-sepolia: RPC endpoint ${count} of ${count} contradicts the others`])
    })

    it("what A paid is not B's", async () => {
      await serve(count)
      const { shop } = await paid(usd(500))
      lie(logs =>
        logs.map(log => ({
          ...log,
          topics: [log.topics[0], `0x${B.slice(2).padStart(64, "0")}`, log.topics[2]] as never,
        })),
      )
      chain.mine(5)
      await rounds(3)
      expect([await hasAccess(shop, A), await hasAccess(shop, B)]).toEqual([true, false])
      expect(await rows()).toEqual([{ value: usd(500), from_address: A }])
    })

    it("a payment in time is not dated before it was made", async () => {
      await serve(count)
      const shop = await paywall({ price: 5_000 })
      const { hash, number } = chain.pay([{ from: A, to: shop.payTo, value: usd(5_000) }])
      const made = chain.blocks[number]?.time ?? 0
      const early = `0x${(made - 86_400).toString(16)}`
      ;(nodes[count - 1] as ScriptedNode).hook = (method, params, blocks) => {
        if (method === "eth_getLogs") return logsJson(params, blocks).map(log => ({ ...log, blockTimestamp: early }))
        const [tag] = params as unknown as [string]
        return method === "eth_getBlockByNumber" && Number(tag) === number
          ? { ...blockJson(blocks[number]), timestamp: early }
          : undefined
      }
      await submit(shop, hash)
      chain.mine(5)
      await rounds(3)
      const stored = await service.ctx.db.selectFrom("transfers").select("block_time").execute()
      // With two endpoints neither is believed; with three the two that agree are.
      expect(stored.map(row => row.block_time.getTime())).toEqual(count === 2 ? [] : [made * 1_000])
    })
  })

  it("many small payments that one of two reports while the other is away are no large one", async () => {
    await serve(2)
    const shop = await paywall({ price: 1_000 })
    const small = await paywall({ price: 90 })
    const began = await cursor()
    ;(nodes[0] as ScriptedNode).broken = 502
    for (let i = 0; i < 11; i++) await submit(shop, chain.pay([{ from: A, to: shop.payTo, value: usd(99) }]).hash)
    for (let i = 0; i < 2; i++) await submit(small, chain.pay([{ from: B, to: small.payTo, value: usd(90) }]).hash, B)
    chain.mine(5)
    await rounds(3)
    expect([await hasAccess(shop), await grantCount()]).toEqual([false, 0])
    expect(await service.ctx.db.selectFrom("payments").select("id").execute()).toEqual([])
    expect(await cursor()).toBe(began)
    ;(nodes[0] as ScriptedNode).broken = undefined
    await rounds(2)
    expect([await hasAccess(shop), await grantCount()]).toEqual([true, 3])
  })

  it("what one of two alone reports is not paid out, of a shared address, before the other has it", async () => {
    await serve(2)
    const shop = await paywall({ price: 60 })
    const { hash } = chain.pay([{ from: A, to: shop.payTo, value: usd(60) }])
    await submit(shop, hash)
    chain.mine(4)
    await rounds(2)
    ;(nodes[0] as ScriptedNode).broken = 502
    await submit(shop, chain.pay([{ from: B, to: shop.payTo, value: usd(60) }]).hash, B)
    chain.mine(4)
    await rounds(2)
    const { db } = service.ctx
    const made = () => db.selectFrom("payouts").select(["kind", "amount", "state", "held_reason"]).execute()
    const first = { kind: "sweep", amount: usd(60), state: "queued", held_reason: null }
    expect([await hasAccess(shop, B), await made()]).toEqual([true, [first]])
    service.advance(25 * 60 * MINUTE)
    await sweepDue(service.ctx, network())
    expect(await made()).toEqual([first])
    ;(nodes[0] as ScriptedNode).broken = undefined
    await rounds(2)
    await sweepDue(service.ctx, network())
    expect(await made()).toEqual([first, first])
  })

  it("what one of two alone reported is final and swept once the other has its receipt, however long that took", async () => {
    await serve(2)
    const [first] = nodes as [ScriptedNode]
    const shop = await paywall()
    await rounds(1)
    // Its log index lacks the payment, and it returns no receipts.
    first.hook = method =>
      method === "eth_getLogs" ? [] : method === "eth_getTransactionReceipt" ? failed("no index") : undefined
    await submit(shop, chain.pay([{ from: A, to: shop.payTo, value: 5_000_001n }]).hash)
    chain.mine(4)
    await rounds(2)
    expect(await hasAccess(shop)).toBe(true)
    // Deeper than any rescan.
    chain.mine(1_000)
    service.advance(25 * 60 * MINUTE)
    await rounds(2)
    first.hook = () => undefined
    chain.finalized = chain.head.number
    await rounds(3)
    const { db } = service.ctx
    expect(await db.selectFrom("transfers").select(["state", "single_source"]).execute()).toEqual([
      { state: "final", single_source: false },
    ])
    await sweepDue(service.ctx, network())
    expect(await db.selectFrom("payouts").select(["kind", "amount"]).execute()).toEqual([
      { kind: "sweep", amount: 5_000_001n },
    ])
  })

  it("one of three that repeats its lie in the receipt keeps no payment from being counted", async () => {
    await serve(3)
    const shop = await paywall({ price: 5_000 })
    const { hash } = chain.pay([{ from: A, to: shop.payTo, value: usd(5_000) }])
    const value = `0x${usd(1).toString(16).padStart(64, "0")}`
    ;(nodes[2] as ScriptedNode).hook = (method, params, blocks) => {
      const [asked] = params as unknown as [string]
      if (method === "eth_getTransactionReceipt" && asked === hash) {
        const { number, hash: blockHash } = chain.blocks.find(each => each.transactions[0]?.hash === hash) ?? chain.head
        const logs = logsJson([range(shop.payTo)] as never[], blocks).map(log => ({ ...log, data: value }))
        const at = { blockNumber: `0x${number.toString(16)}`, blockHash }
        return { status: "0x1", transactionHash: hash, ...at, logs, logsBloom: "0x1" }
      }
      if (method !== "eth_getLogs") return undefined
      // A second one in a block that nobody has read yet: the receipt of the first is asked for.
      const [log] = logsJson(params, blocks).map(each => ({ ...each, data: value }))
      const ahead = `0x${(chain.head.number + 1).toString(16)}`
      return log ? [log, { ...log, logIndex: "0x9", blockNumber: ahead, blockHash: newHash() }] : []
    }
    chain.mine(5)
    await rounds(3)
    const stored = await service.ctx.db.selectFrom("transfers").select(["value", "state"]).execute()
    expect([stored, await cursor()]).toEqual([[{ value: usd(5_000), state: "confirmed" }], chain.head.number])
  })

  it("one of three that answers with logs that nobody asked for does not stop the scan", async () => {
    await serve(3)
    const shop = await paywall()
    ;(nodes[2] as ScriptedNode).hook = (method, params, blocks) => {
      if (method !== "eth_getLogs") return undefined
      const old = blocks[5]
      const [{ topics, address }] = params as unknown as [{ topics: [string, null, string[]]; address: string }]
      const made = topics[2].map(to => ({
        address,
        topics: [topics[0], `0x${A.slice(2).padStart(64, "0")}`, to],
        data: `0x${"1".padStart(64, "0")}`,
        transactionHash: newHash(),
        blockNumber: "0x5",
        blockHash: old?.hash,
        logIndex: "0x0",
      }))
      return [...logsJson(params, blocks), ...made]
    }
    const { hash } = chain.pay([{ from: A, to: shop.payTo, value: usd(5) }])
    await submit(shop, hash)
    await rounds(1)
    chain.mine(30)
    await rounds(2)
    expect([await hasAccess(shop), await cursor()]).toEqual([true, chain.head.number])
  })

  describe("of three one runs ahead on a chain of its own", () => {
    const follow =
      (fork: ScriptedChain): ScriptedNode["hook"] =>
      (method, params) => {
        const [tag] = params as unknown as [string]
        if (method === "eth_getTransactionReceipt") return null
        if (method === "eth_getLogs") return logsJson(params, fork.blocks)
        if (method !== "eth_getBlockByNumber") return undefined
        return blockJson(tag === "latest" ? fork.head : fork.blocks[tag === "finalized" ? fork.finalized : Number(tag)])
      }
    const forkAt = (height: number) => {
      const fork = new ScriptedChain(service.ctx.now(), 0)
      fork.blocks = chain.blocks.slice(0, height)
      return fork
    }

    it("no payment is made of what it reports, none is taken back, and the scan goes on", async () => {
      await serve(3)
      const { shop, number } = await paid(usd(500))
      chain.mine(4)
      await rounds(2)
      const other = await paywall()
      const fork = forkAt(number)
      fork.pay([{ from: B, to: other.payTo, value: usd(5) }])
      fork.mine(40_000)
      ;(nodes[2] as ScriptedNode).hook = follow(fork)
      await rounds(1)
      service.advance(11 * MINUTE)
      await rounds(2)
      expect([await hasAccess(shop), await hasAccess(other, B)]).toEqual([true, false])
      ;(nodes[2] as ScriptedNode).hook = () => undefined
      const later = chain.pay([{ from: B, to: other.payTo, value: usd(5) }])
      chain.mine(25)
      await rounds(3)
      expect(await cursor()).toBe(chain.head.number)
      expect(later.number).toBeLessThan(chain.head.number - 20)
      service.advance(11 * MINUTE)
      await rounds(1)
      expect(await hasAccess(other, B)).toBe(true)
    })
  })

  it("two endpoints list an address or clear it; one of three does neither and is named, and until two agree it is unknown", async () => {
    await serve(3)
    service.ctx.chain.networks.splice(0, 1, { ...network(), sanctionsOracle: `0x${"5".repeat(40)}` as Address })
    const says =
      (listed: boolean): ScriptedNode["hook"] =>
      (method, [call]) => {
        if (method !== "eth_call") return undefined
        const { args } = decodeFunctionData({ abi: multicall3Abi, data: (call as unknown as { data: Hex }).data })
        const results = args[0].map(() => ({
          success: true,
          returnData: `0x${(listed ? "1" : "0").padStart(64, "0")}` as Hex,
        }))
        return encodeFunctionResult({ abi: multicall3Abi, functionName: "aggregate3", result: results })
      }
    const [first, second, third] = nodes as [ScriptedNode, ScriptedNode, ScriptedNode]
    const screened = async (address: Address) => (await screen(service.ctx, [address], "test")).get(address)
    first.hook = says(false)
    second.hook = third.hook = () => undefined
    expect(await screened(A)).toBe("unknown")
    second.hook = says(true)
    expect(await screened(A)).toBe("unknown")
    third.hook = says(true)
    expect(await screened(A)).toBe("listed")
    // A contradiction that lasts is an alarm; until then it may be a node that lags.
    second.hook = says(false)
    expect(await screened(B)).toBe("clear")
    service.advance(61 * MINUTE)
    expect(await screened(B)).toBe("clear")
    expect(await troubleMessages(service.ctx)).toContainEqual(
      expect.stringContaining("RPC endpoint 3 of 3 contradicts"),
    )
  })
})
