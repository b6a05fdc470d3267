// One endpoint of two or three says anything at all about payouts, generated. `LYING_RUNS=500 npx vitest run
// payouts/lying-endpoint` tries more.
import fc from "fast-check"
import { parseAbiItem } from "viem"
import { afterAll, beforeAll, expect, it } from "vitest"
import { payoutLies, startLying, stopLying } from "../../../test/payout-lies.ts"
import { type PayoutRig, recipient, startPayoutRig } from "../../../test/payouts.ts"
import { type RpcProxy, startProxy } from "../../../test/proxy.ts"
import { newEndpoint } from "../../platform/chain/endpoints.ts"
import type { Address } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { troubleMessages } from "../../platform/chain/note-endpoint-troubles.ts"
import { RpcError } from "../../platform/chain/rpc.ts"
import { payoutLane } from "../payouts/payout-lane.ts"
import { ensureCursor } from "../scanner/scan-round.ts"
import { verifyRound } from "../settlement/verify-payments.ts"
import { payoutRound } from "./run-round.ts"

const RUNS = Number(process.env.LYING_RUNS ?? 6)
const HOUR_MS = 3_600_000
const WEEK_MS = 7 * 24 * HOUR_MS
const event = parseAbiItem("event Transfer(address indexed from, address indexed to, uint256 value)")

let rig: PayoutRig
let liar: RpcProxy
let other: RpcProxy
beforeAll(async () => {
  rig = await startPayoutRig()
  ;[liar, other] = [await startProxy(rig.anvil.rpcUrl), await startProxy(rig.anvil.rpcUrl)]
})
afterAll(async () => {
  await Promise.all([liar.stop(), other.stop()])
  await rig.stop()
})

type Shop = Awaited<ReturnType<PayoutRig["sell"]>>
type Scene = Awaited<ReturnType<typeof scene>>

/** An empty database, a network of so many endpoints, and a shop; the liar is at this place, `rig.proxy` at the next. */
async function scene(count: number, place: number) {
  const { client } = rig.anvil
  stopLying(liar)
  rig.proxy.broken = undefined
  await client.dropAllTransactions()
  await client.setAutomine(true)
  await client.mine({ blocks: 3 })
  await rig.empty()
  const began = await client.getBlockNumber()
  const proxies = [liar, rig.proxy, other].slice(0, count)
  const urls = Array.from({ length: count }, (_, i) => proxies[(i + count - (place % count)) % count]?.url ?? "")
  const network: Network = { ...rig.network, endpoints: urls.map(url => newEndpoint(rig.network.name, url)) }
  rig.service.ctx.chain.networks.splice(0, 1, network)
  const shop = await rig.sell([50, 30, 20])
  const before = await Promise.all([0, 1, 2].map(n => rig.balanceOf(recipient(n))))
  return { network, shop, began, before, place: place % count, paid: 0n }
}

/** Runs a round; with `isHasty` every sent transaction is replaced at a higher fee. */
async function round({ network }: Scene, isHasty = false): Promise<void> {
  for (const endpoint of network.endpoints) endpoint.silentUntil = 0
  const lane = payoutLane(network, rig.signer)
  await payoutRound(rig.service.ctx, lane, { resendMs: 0, replaceMs: isHasty ? 0 : WEEK_MS }).catch(error => {
    if (!(error instanceof RpcError)) throw error
  })
}

/** Pays, and mines no pending transaction afterwards: the steps mine the blocks. */
async function pay(here: Scene, amount: bigint): Promise<void> {
  await rig.anvil.client.setAutomine(true)
  await rig.paid(here.shop, amount)
  await rig.anvil.client.setAutomine(false)
  here.paid += amount
}

/** What the chain has that the rows must not contradict. */
async function findings({ began, shop }: Scene): Promise<string[]> {
  const { client } = rig.anvil
  const { db } = rig.service.ctx
  const from = (shop as Shop).deposit.address as Address
  const logs = await client.getLogs({ address: rig.token, event, args: { from }, fromBlock: began })
  const final = await client.getBlock({ blockTag: "finalized" })
  const attempts = await db.selectFrom("transaction_attempts").select(["hash", "payout_id"]).execute()
  const byPayout = Map.groupBy(logs, log => attempts.find(({ hash }) => hash === log.transactionHash)?.payout_id)
  const wrong: string[] = []
  for (const [id, sent] of byPayout)
    if (id === undefined || sent.length > 1) wrong.push(`${id} was sent ${sent.length} times`)
  for (const row of await rig.payouts()) {
    const [log] = byPayout.get(row.id) ?? []
    const isThere = log?.transactionHash === row.tx_hash && log.blockHash === row.block_hash
    if (["mined", "final"].includes(row.state) && !isThere) wrong.push(`${row.state}, and not on the chain`)
    if (row.state === "final" && !(log && log.blockNumber <= final.number)) wrong.push("final too early")
    if (["reverted", "cancelled"].includes(row.state)) wrong.push(`a payout is ${row.state}`)
  }
  const { status, halted_reason } = await db.selectFrom("wallets").selectAll().executeTakeFirstOrThrow()
  if (status !== "active") wrong.push(`${status}: ${halted_reason}`)
  return wrong
}

/** Runs rounds until everything is paid or `days` are over. */
async function settle(here: Scene, days = 4): Promise<void> {
  for (let i = 0; i < days * 2; i++) {
    for (const isHasty of [false, true]) {
      await round(here, isHasty)
      await rig.anvil.client.mine({ blocks: 3 })
      await round(here)
    }
    if ((await rig.states()).every(state => state === "final")) return
    rig.service.advance(12 * HOUR_MS)
  }
}

type Step =
  | { kind: "pay"; amount: bigint }
  | { kind: "mine"; blocks: number }
  | { kind: "lie"; lies: string[]; swallows: boolean }
  | { kind: "away"; isAway: boolean }
  | { kind: "time"; ms: number }
  | { kind: "raise" | "forget" }

const lieStep = fc.record({
  kind: fc.constant("lie" as const),
  lies: fc.array(fc.constantFrom(...Object.keys(payoutLies)), { minLength: 1, maxLength: 3 }),
  swallows: fc.boolean(),
})
const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.oneof(
    { weight: 3, arbitrary: lieStep },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant("mine" as const), blocks: fc.integer({ min: 1, max: 4 }) }) },
    fc.record({ kind: fc.constant("pay" as const), amount: fc.constantFrom(500_000n, 7_000_000n) }),
    fc.record({ kind: fc.constant("away" as const), isAway: fc.boolean() }),
    fc.record({ kind: fc.constant("time" as const), ms: fc.constantFrom(31_000, HOUR_MS) }),
    fc.record({ kind: fc.constantFrom("raise" as const, "forget" as const) }),
  ),
  { minLength: 3, maxLength: 9 },
)

async function take(step: Step, here: Scene): Promise<void> {
  const { client } = rig.anvil
  if (step.kind === "pay") await pay(here, step.amount)
  else if (step.kind === "mine") await client.mine({ blocks: step.blocks })
  else if (step.kind === "lie") startLying(liar, rig, step.lies, step.swallows)
  // With three endpoints only two faults stop anything. This shows that nothing goes wrong then either.
  else if (step.kind === "away") rig.proxy.broken = step.isAway ? 502 : undefined
  else if (step.kind === "time") rig.service.advance(step.ms)
  else if (step.kind === "forget") await client.dropAllTransactions()
  await round(here, step.kind === "raise")
}

/** The most obvious lies: every sent transaction has failed, or has succeeded. */
const plain: Step[][] = ["each has failed", "each has succeeded"].map(lie => [
  { kind: "raise" },
  { kind: "away", isAway: lie === "each has failed" },
  { kind: "lie", lies: ["sixteen nonces more are used", lie], swallows: true },
  { kind: "mine", blocks: 4 },
  { kind: "time", ms: 31_000 },
])

it.each([3, 2])(
  "of %i endpoints one says anything: no payout is sent twice or called paid that is not, and all are when it stops",
  async count => {
    await fc.assert(
      fc.asyncProperty(fc.nat(2), steps, async (place, steps) => {
        const here = await scene(count, place)
        await pay(here, 1_000_000n)
        for (const step of steps) {
          await take(step, here)
          expect(await findings(here)).toEqual([])
        }
        stopLying(liar)
        rig.proxy.broken = undefined
        await settle(here)
        expect(await findings(here)).toEqual([])
        const after = await Promise.all([0, 1, 2].map(n => rig.balanceOf(recipient(n))))
        const got = after.map((balance, i) => (balance - (here.before[i] ?? 0n)) * 100n)
        expect([got, await rig.states()]).toEqual([
          [50n, 30n, 20n].map(percent => here.paid * percent),
          (await rig.states()).map(() => "final"),
        ])
      }),
      { numRuns: RUNS, examples: plain.flatMap(steps => [0, 2].map(place => [place, steps])), endOnFailure: true },
    )
  },
  Math.max(300_000, RUNS * 10_000),
)

/** The lies that delay a payout with two endpoints. The other lies change nothing, or the scan names the endpoint. */
const hindering = [
  "one nonce more is used",
  "many nonces more are used",
  "no receipts",
  "each has succeeded",
  "each has failed",
  "what is mined has failed",
  "what is mined has moved nothing",
  "what is mined is in a block that is not there",
  "no gas",
]

it.each([...(process.env.LYING_RUNS ? Object.keys(payoutLies) : hindering), "truth"])(
  "of two endpoints one says: %s. All is paid, or an alarm names it",
  async lie => {
    const here = await scene(2, 1)
    const { ctx } = rig.service
    await ctx.db.deleteFrom("cursors").execute()
    await ensureCursor(ctx, here.network)
    await pay(here, 1_000_000n)
    startLying(liar, rig, [lie], true)
    for (let i = 0; i < 3; i++) {
      await round(here, true)
      await rig.anvil.client.mine({ blocks: 3 })
      await round(here)
      await ctx.db
        .updateTable("cursors")
        .set({ run_at: new Date(0) })
        .execute()
      await verifyRound(ctx, here.network).catch(error => {
        if (!(error instanceof RpcError)) throw error
      })
      rig.service.advance(31_000)
    }
    const alarms = await troubleMessages(ctx)
    if (hindering.includes(lie)) expect(await rig.states()).not.toEqual(["final", "final", "final"])
    if (lie === "truth") expect(alarms).toEqual([])
    if ((await rig.states()).some(state => state !== "final")) expect(alarms.join()).toContain("RPC endpoint 2 of 2")
    expect(await findings(here)).toEqual([])
  },
)
