// One endpoint of two or three gives generated answers of any kind. `LYING_RUNS=500 npx vitest run lying-endpoint`
// tries more.
import fc from "fast-check"
import { afterAll, beforeAll, expect, it } from "vitest"
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
import { blockAgreed, reachedBy, receiptAgreed, standingOf, type Voter } from "../../platform/chain/agreement.ts"
import { newEndpoint } from "../../platform/chain/endpoints.ts"
import { type Address, type Hash, ZERO_ADDRESS } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { Block, Receipt } from "../../platform/chain/transfers.ts"
import { verifyRound } from "../settlement/verify-payments.ts"
import { ensureCursor } from "./scan-round.ts"

const RUNS = Number(process.env.LYING_RUNS ?? 8)
const MINUTE = 60_000
const usd = (dollars: number) => BigInt(Math.round(dollars * 100)) * 10_000n
const THRESHOLD = usd(100)
const payers = ["a", "b", "c"].map(letter => `0x${letter.repeat(40)}` as Address)
const prices = [5, 900]

let service: TestService
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service.stop())

type Json = Record<string, unknown>
type Lie = (method: string, params: unknown[], truth: () => unknown, chain: ScriptedChain) => unknown
const hex = (n: number | bigint) => `0x${n.toString(16)}`
const word = (n: bigint) => `0x${n.toString(16).padStart(64, "0")}`
const topic = (address: string) => `0x${address.slice(2).toLowerCase().padStart(64, "0")}`

/** Changes the logs of an answer, in a list of logs and in a receipt alike. */
const inLogs =
  (change: (log: Json) => Json[]): Lie =>
  (method, _params, truth) => {
    const answer = truth()
    if (method === "eth_getLogs") return (answer as Json[]).flatMap(change)
    if (method !== "eth_getTransactionReceipt" || answer === null) return undefined
    return { ...(answer as Json), logs: ((answer as Json).logs as Json[]).flatMap(change) }
  }
const onBlocks =
  (change: (block: Json, tag: string, chain: ScriptedChain) => unknown): Lie =>
  (method, [tag], truth, chain) => {
    const block = method === "eth_getBlockByNumber" ? truth() : null
    return block === null ? undefined : change(block as Json, String(tag), chain)
  }
const always =
  (answer: unknown): Lie =>
  () =>
    answer

const lies: Record<string, Lie> = {
  "another value": inLogs(log => [{ ...log, data: word(BigInt(String(log.data)) * 1_000n) }]),
  "another sender": inLogs(log => [
    { ...log, topics: [(log.topics as string[])[0], topic(payers[2] as string), (log.topics as string[])[2]] },
  ]),
  "another block": inLogs(log => [{ ...log, blockHash: newHash() }]),
  "another time": inLogs(log => [{ ...log, blockTimestamp: "0x1" }]),
  "no logs": inLogs(() => []),
  "each log and one more": inLogs(log => [log, { ...log, logIndex: hex(99), data: word(usd(2_000)) }]),
  "each log after one more": inLogs(log => [
    { ...log, logIndex: hex(0), data: word(usd(2_000)) },
    { ...log, logIndex: hex(7) },
  ]),
  "a payment that nobody made": (method, params, _truth, chain) => {
    if (method !== "eth_getLogs") return undefined
    const [{ topics }] = params as [{ topics: [string, null, string[]] }]
    const block = chain.blocks.at(-4)
    return topics[2].map((to, i) => ({
      address: paperNetwork.token.address,
      topics: [topics[0], topic(payers[0] as string), to],
      data: word(usd(99)),
      transactionHash: `0x${"f".repeat(63)}${i % 10}`,
      blockNumber: hex(block?.number ?? 0),
      blockHash: block?.hash,
      logIndex: hex(i),
      blockTimestamp: hex(block?.time ?? 0),
    }))
  },
  "a head far ahead": onBlocks((block, tag, chain) =>
    tag === "latest" ? { ...block, number: hex(chain.head.number + 40_000), hash: newHash() } : undefined,
  ),
  "a head a little ahead, whose blocks it makes up": (method, [tag], _truth, chain) => {
    const ahead = chain.head.number + 8
    const number = tag === "latest" ? ahead : Number(tag)
    if (method !== "eth_getBlockByNumber" || !(number > chain.head.number)) return undefined
    return blockJson({
      number,
      hash: word(BigInt(number) + (1n << 200n)) as Hash,
      time: chain.head.time,
      transactions: [],
    })
  },
  "an old head": onBlocks((_block, tag, chain) => (tag === "latest" ? blockJson(chain.blocks[100]) : undefined)),
  "all final": onBlocks((_block, tag, chain) => (tag === "finalized" ? blockJson(chain.head) : undefined)),
  "nothing final": onBlocks((_block, tag, chain) => (tag === "finalized" ? blockJson(chain.blocks[0]) : undefined)),
  "other blocks": onBlocks((block, tag) => (tag.startsWith("0x") ? { ...block, hash: newHash() } : undefined)),
  "other times of blocks": onBlocks(block => ({ ...block, timestamp: "0x1" })),
  "transactions that failed": (method, _params, truth) => {
    const receipt = method === "eth_getTransactionReceipt" ? truth() : null
    return receipt === null ? undefined : { ...(receipt as Json), status: "0x0", logs: [], logsBloom: "0x0" }
  },
  "null for all": always(null),
  "errors for all": always(failed("no")),
  "nothing for all": always(DROPPED),
  "another chain": method => (method === "eth_chainId" ? "0x1" : undefined),
  truth: () => undefined,
}

type Step =
  | { kind: "pay"; payer: number; shop: number; dollars: number }
  | { kind: "mine"; blocks: number }
  | { kind: "lie"; lies: string[] }
  | { kind: "away"; isAway: boolean }

const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.oneof(
    fc.record({
      kind: fc.constant("pay" as const),
      payer: fc.nat(1),
      shop: fc.nat(1),
      dollars: fc.constantFrom(0.01, 3, 5, 60, 900),
    }),
    fc.record({ kind: fc.constant("mine" as const), blocks: fc.integer({ min: 1, max: 30 }) }),
    fc.record({
      kind: fc.constant("lie" as const),
      lies: fc.array(fc.constantFrom(...Object.keys(lies)), { minLength: 1, maxLength: 3 }),
    }),
    fc.record({ kind: fc.constant("away" as const), isAway: fc.boolean() }),
  ),
  { minLength: 4, maxLength: 10 },
)

/** Lies that earlier versions believed. */
const plain: Step[][] = [
  [
    { kind: "lie", lies: ["another value"] },
    { kind: "pay", payer: 0, shop: 1, dollars: 0.01 },
    { kind: "mine", blocks: 5 },
    { kind: "mine", blocks: 30 },
  ],
  [
    { kind: "pay", payer: 0, shop: 1, dollars: 900 },
    { kind: "mine", blocks: 5 },
    { kind: "lie", lies: ["a head a little ahead, whose blocks it makes up"] },
    { kind: "mine", blocks: 30 },
  ],
]

/** Starts a chain, nodes of which one lies, and two paywalls, one with a small and one with a large price. */
async function scene(count: number, place: number) {
  await service.empty()
  await service.merchant("shop")
  const chain = new ScriptedChain(service.ctx.now())
  const nodes = await Promise.all(Array.from({ length: count }, () => startNode(chain)))
  const network: Network = { ...paperNetwork, endpoints: nodes.map(node => newEndpoint("base-sepolia", node.url)) }
  service.ctx.chain.networks.splice(0, 1, network)
  await service.ctx.db.deleteFrom("cursors").execute()
  await ensureCursor(service.ctx, network)
  const shops: { id: string; payTo: string; price: number }[] = []
  for (const price of prices) {
    const { id } = (await service.call("POST", "/api/console/paywalls", { name: "x", price }, { as: "shop" })).body
    shops.push({ id, payTo: (await service.call("GET", `/api/paywalls/${id}`)).body.payTo, price })
  }
  const round = async () => {
    for (const endpoint of network.endpoints) endpoint.silentUntil = 0
    await service.ctx.db
      .updateTable("cursors")
      .set({ run_at: new Date(0) })
      .execute()
    await verifyRound(service.ctx, network).catch(error => {
      if (!/no endpoint may vote/.test(error.message)) throw error
    })
  }
  return {
    chain,
    nodes,
    network,
    shops,
    round,
    liar: nodes[place % count] as ScriptedNode,
    honest: nodes[(place + 1) % count] as ScriptedNode,
  }
}

/** Changes each answer of the node by the next of these lies that applies to it. */
function liesOf(
  names: string[],
  chain: ScriptedChain,
  truthOf: (method: string, params: unknown[]) => unknown,
): ScriptedNode["hook"] {
  let n = 0
  return (method, params) => {
    const lie = lies[names[n++ % names.length] as string] as Lie
    return lie(method, params, () => truthOf(method, params), chain)
  }
}

function truthOf(chain: ScriptedChain) {
  return (method: string, params: unknown[]): unknown => {
    if (method === "eth_getLogs") return logsJson(params as never[], chain.blocks)
    if (method === "eth_getBlockByNumber") {
      const tag = String(params[0])
      return blockJson(
        tag === "latest" ? chain.head : chain.blocks[tag === "finalized" ? chain.finalized : Number(tag)],
      )
    }
    const block = chain.blocks.find(each => each.transactions.some(({ hash }) => hash === params[0]))
    if (method !== "eth_getTransactionReceipt" || !block) return null
    const to = block.transactions.flatMap(({ transfers }) => transfers.map(transfer => topic(transfer.to)))
    const filter = {
      address: paperNetwork.token.address,
      fromBlock: "0x0",
      toBlock: hex(chain.head.number),
      topics: ["", null, to],
    }
    const logs = logsJson([filter] as never[], [block]).filter(log => log.transactionHash === params[0])
    const at = { transactionHash: params[0], blockNumber: hex(block.number), blockHash: block.hash }
    return { status: "0x1", ...at, logs, logsBloom: `0x${"0".repeat(511)}1` }
  }
}

/** What the honest chain has, by transaction. */
const realOf = (chain: ScriptedChain) =>
  new Map(
    chain.blocks.flatMap(block =>
      block.transactions.map(({ hash, transfers }) => [hash, { block, transfer: transfers[0] }] as const),
    ),
  )

async function findings({ chain, nodes }: Awaited<ReturnType<typeof scene>>, count: number): Promise<string[]> {
  const { db } = service.ctx
  const real = realOf(chain)
  const wrong: string[] = []
  const rows = await db.selectFrom("transfers").selectAll().execute()
  for (const row of rows) {
    const { block, transfer } = real.get(row.tx_hash) ?? {}
    const isTrue =
      transfer?.value === row.value &&
      transfer.from === row.from_address &&
      row.k === 0 &&
      block?.hash === row.block_hash &&
      block.time * 1_000 === row.block_time.getTime()
    const isOver = nodes.length === 2 && row.state === "gone"
    if (!isTrue && !isOver && !(count === 2 && row.single_source)) wrong.push(`a row of ${row.value} in ${row.state}`)
    if (isTrue && row.state === "gone" && count === 3) wrong.push("a payment that is there is called gone")
    if (row.state === "final" && (row.single_source || row.block_number > BigInt(chain.finalized)))
      wrong.push("final too early")
  }
  const cursor = await db.selectFrom("cursors").selectAll().executeTakeFirstOrThrow()
  if (chain.blocks[Number(cursor.block_number)]?.hash !== cursor.block_hash)
    wrong.push(`a cursor at ${cursor.block_number}`)
  if (cursor.finalized_number > BigInt(chain.finalized)) wrong.push(`finalized at ${cursor.finalized_number}`)
  const payments = await db
    .selectFrom("payments as p")
    .innerJoin("claims as c", "c.payment_id", "p.id")
    .innerJoin("transfers as t", "t.id", "c.transfer_id")
    .select(["p.id", "p.amount", "p.payer", "p.status", "t.tx_hash", "t.value", "t.from_address"])
    .execute()
  for (const parts of Map.groupBy(payments, row => row.id).values()) {
    const [{ amount, payer, status }] = parts as [(typeof payments)[0]]
    const paid = parts.reduce((sum, part) => {
      const transfer = real.get(part.tx_hash)?.transfer
      return transfer && transfer.from === payer ? sum + transfer.value : sum
    }, 0n)
    const isLarge = count === 3 || amount > THRESHOLD
    if (["granted", "open"].includes(status) && paid !== amount && isLarge) wrong.push(`${amount} ${status} of ${paid}`)
    if (status === "reversed" && isLarge && paid === amount) wrong.push(`${amount} reversed`)
  }
  return wrong
}

it.each([3, 2])(
  "of %i endpoints one answers anything: nothing is wrong meanwhile, and all is settled when it stops",
  async count => {
    await fc.assert(
      fc.asyncProperty(fc.nat(2), steps, async (place, steps) => {
        const here = await scene(count, place)
        const { chain, liar, honest, shops, round } = here
        const owed = new Map<string, number>()
        try {
          for (const step of steps) {
            if (step.kind === "pay") {
              const shop = shops[step.shop]
              const from = payers[step.payer]
              if (!shop || !from) continue
              const { hash } = chain.pay([{ from, to: shop.payTo, value: usd(step.dollars) }])
              await service.call("POST", `/api/paywalls/${shop.id}/pay`, { txHash: hash, address: from })
              owed.set(`${shop.id} ${from}`, (owed.get(`${shop.id} ${from}`) ?? 0) + step.dollars)
            } else if (step.kind === "mine") {
              chain.mine(step.blocks)
              chain.finalized = Math.max(chain.finalized, chain.head.number - 20)
            } else if (step.kind === "lie") liar.hook = liesOf(step.lies, chain, truthOf(chain))
            // With three endpoints only two faults stop anything. This shows that nothing goes wrong then either.
            else honest.broken = step.isAway ? 502 : undefined
            await round()
            service.advance(7_000)
            expect(await findings(here, count)).toEqual([])
          }
          liar.hook = () => undefined
          honest.broken = undefined
          chain.mine(30)
          chain.finalized = chain.head.number - 1
          for (let i = 0; i < 3; i++) {
            service.advance(11 * MINUTE)
            await round()
          }
          expect(await findings(here, 3)).toEqual([])
          for (const shop of shops)
            for (const payer of payers) {
              const url = `/api/paywalls/${shop.id}/verify?address=${payer}`
              const due = (owed.get(`${shop.id} ${payer}`) ?? 0) >= shop.price
              expect([url, (await service.call("GET", url)).body.hasAccess]).toEqual([url, due])
            }
          const { block_number } = await service.ctx.db
            .selectFrom("cursors")
            .select("block_number")
            .executeTakeFirstOrThrow()
          expect(Number(block_number)).toBe(chain.head.number)
        } finally {
          for (const node of here.nodes) await node.stop()
        }
      }),
      { numRuns: RUNS, examples: plain.map(steps => [count - 1, steps]) },
    )
  },
  Math.max(300_000, RUNS * 10_000),
)

it("of three statements about a block, a receipt, a log or a number one decides nothing", () => {
  const hash = fc.constantFrom(...[1, 2, 3].map(n => word(BigInt(n)) as Hash))
  const height = fc.bigInt({ min: 1n, max: 3n })
  const log = fc.record({
    txHash: hash,
    token: fc.constant(paperNetwork.token.address),
    from: fc.constantFrom(...payers),
    to: fc.constantFrom(...payers),
    value: height,
    blockNumber: height,
    blockHash: hash,
    logIndex: fc.nat(1),
    k: fc.nat(1),
    blockTime: fc.constant(undefined),
  })
  const block = fc.record({ number: height, hash, time: fc.constantFrom(new Date(1_000), new Date(2_000)) })
  const receipt: fc.Arbitrary<Receipt> = fc.record({
    txHash: hash,
    succeeded: fc.boolean(),
    blockNumber: height,
    blockHash: hash,
    position: fc.constant(undefined),
    transfers: fc.array(log, { maxLength: 2 }),
    givenBack: fc.constant([]),
    uses: fc.array(
      fc.record({ token: fc.constant(paperNetwork.token.address), payer: fc.constantFrom(...payers), nonce: hash }),
      { maxLength: 2 },
    ),
    cost: fc.option(height, { nil: undefined }),
  })
  const voter = fc.record({
    position: fc.constant(0),
    head: block,
    finalized: fc.option(height, { nil: undefined }),
    blocks: fc.array(block, { maxLength: 3 }).map(blocks => new Map(blocks.map(each => [each.number, each]))),
    receipts: fc
      .array(fc.tuple(hash, fc.option(receipt, { nil: null })), { maxLength: 3 })
      .map(entries => new Map(entries.map(([txHash, each]) => [txHash, each && { ...each, txHash }]))),
    logs: fc.constant(new Map()),
    readings: fc.constant([{ from: 0n, to: 3n, addresses: new Set(payers) }]),
  }) as fc.Arbitrary<Voter>
  fc.assert(
    fc.property(voter, voter, fc.nat(2), hash, height, log, (honest, liar, place, hash, height, log) => {
      const two = [honest, { ...honest }]
      const three = two.toSpliced(place, 0, liar)
      expect(blockAgreed(three, height, 2)?.block).toEqual(blockAgreed(two, height, 2)?.block)
      // Only the cost may differ: it is the middle one of the reported costs.
      expect({ ...receiptAgreed(three, hash, 2), cost: 0n }).toEqual({ ...receiptAgreed(two, hash, 2), cost: 0n })
      expect(standingOf(three, log, 3)).toBe(standingOf(two, log, 3))
      expect(
        reachedBy(
          three.map(each => each.finalized),
          2,
        ),
      ).toBe(honest.finalized ?? undefined)
    }),
  )
})

it("of three receipts that differ in the authorizations that were used, two decide", () => {
  const [txHash, blockHash, nonce] = [1n, 2n, 3n].map(n => word(n) as Hash) as [Hash, Hash, Hash]
  const [payer = ZERO_ADDRESS] = payers
  const block: Block = { number: 1n, hash: blockHash, time: new Date(0) }
  const use = { token: paperNetwork.token.address, payer, nonce }
  const receipt: Receipt = {
    txHash,
    blockHash,
    position: 0,
    succeeded: true,
    blockNumber: 1n,
    transfers: [],
    givenBack: [],
    cost: 1n,
    uses: [use],
  }
  const voter = (uses: Receipt["uses"]): Voter => ({
    position: 0,
    head: block,
    finalized: 1n,
    logs: new Map(),
    readings: [],
    blocks: new Map([[1n, block]]),
    receipts: new Map([[txHash, { ...receipt, uses }]]),
  })
  for (const lie of [[], [use, use], [{ ...use, nonce: blockHash }]])
    for (const place of [0, 1, 2]) {
      const voters = [voter([use]), voter([use])].toSpliced(place, 0, voter(lie))
      expect(receiptAgreed(voters, txHash, 2)?.uses).toEqual([use])
    }
})
