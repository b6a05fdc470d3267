// Each alarm reaches the operator once when it begins and once when it ends, by metrics, log and /readyz; and payouts
// continue by themselves when the reason is gone.
import { readdirSync, readFileSync } from "node:fs"
import { sql } from "kysely"
import { type Hex, keccak256 } from "viem"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { type PayoutRig, recipient, startPayoutRig } from "../../../test/payouts.ts"
import { waitingAlarms } from "../../operations/doctor/waiting-alarms.ts"
import { openLog } from "../../platform/log.ts"
import { endpointAlarmReasons, payoutAlarmReasons, registry } from "../../platform/metrics.ts"
import { sweepDue } from "../payouts/make-payouts.ts"
import { inFlight } from "./count-in-flight.ts"
import { alarmMessages, reportWaiting } from "./report-alarms.ts"

const GAS_PRICE_ORACLE = "0x420000000000000000000000000000000000000F"
const ETHER = 10n ** 18n
const RICH = 100n * ETHER
let rig: PayoutRig
let lines: { level: number; msg: string; reason?: string }[]
beforeAll(async () => {
  rig = await startPayoutRig()
  const { ctx } = rig.service
  ctx.settings.payoutWallet = rig.signer.address
  ctx.log = openLog("info", { write: line => void lines.push(JSON.parse(line)) })
})
afterAll(() => rig.stop())
beforeEach(async () => {
  const { client } = rig.anvil
  rig.proxy.spoil = (_method, _params, result) => result
  await client.setBalance({ address: rig.signer.address, value: RICH })
  await client.setCode({ address: GAS_PRICE_ORACLE, bytecode: "0x" })
  await client.mine({ blocks: 3 })
  await rig.empty()
  rig.service.ctx.settings.payoutMaxFee = 20_000_000_000n
  registry.resetMetrics()
  lines = []
  const { db, now } = rig.service.ctx
  // As if verification had just run: these tests are about the alarms of payouts.
  await db
    .insertInto("cursors")
    .values({
      chain_id: 84532,
      block_number: 1n,
      block_hash: keccak256("0x") as never,
      finalized_number: 0n,
      looked_at: new Date(now().getTime() + 86_400_000),
      run_at: now(),
    })
    .execute()
})

const setBalance = (value: bigint) => rig.anvil.client.setBalance({ address: rig.signer.address, value })
const alarms = async () =>
  (await rig.service.ctx.db.selectFrom("wallets").select("alarms").executeTakeFirstOrThrow()).alarms
const gain = async (work: () => Promise<unknown>): Promise<bigint> => {
  const before = await rig.balanceOf(recipient(0))
  await work()
  return (await rig.balanceOf(recipient(0))) - before
}
async function metric(name: string, labels: Record<string, string> = {}): Promise<number | undefined> {
  const { values } = (await registry.getSingleMetric(name)?.get()) ?? { values: [] }
  return values.find(({ labels: has }) => Object.entries(labels).every(([key, value]) => (has as never)[key] === value))
    ?.value
}
const total = (reason: string) => metric("sluice_payout_alarms_total", { reason })
const standing = (reason: string) => metric("sluice_payout_alarm", { wallet: "payout", reason })
async function ready(): Promise<{ status: number; alarms: string[]; text: string }> {
  rig.service.advance(1_000)
  const { status, body } = await rig.service.call("GET", "/readyz")
  return { status, alarms: body.alarms, text: JSON.stringify(body) }
}
const reported = (reason: string) => lines.filter(line => line.reason === reason && line.msg.includes("wallet"))
const usualPrice = async (): Promise<bigint> => {
  const { baseFeePerGas } = await rig.anvil.client.getBlock()
  return 118_000n * ((baseFeePerGas ?? 0n) + (await rig.anvil.client.estimateMaxPriorityFeePerGas()))
}

it("a payout without its transfer is reported once, and is an alarm for as long as it lasts", async () => {
  await rig.paid(await rig.sell([50, 50]), 1_000_000n)
  rig.proxy.spoil = (method, _params, result) => {
    if (method !== "eth_getTransactionReceipt" || result === null) return result
    const { logs, ...receipt } = result as { logs: object[] }
    return { ...receipt, logs: logs.map(log => ({ ...log, data: `0x${"1".repeat(64)}` })) }
  }
  for (let i = 0; i < 4; i++) await rig.round()
  const words = "the payout wallet has a payout that was mined without its transfer: a person must investigate"
  expect(lines.filter(line => line.msg === "a payout was mined without its transfer").length).toBe(2)
  expect(reported("transfer").map(line => line.msg)).toEqual([words])
  expect([await total("transfer"), await standing("transfer")]).toEqual([1, 1])
  expect(await ready()).toMatchObject({ status: 200, alarms: [`base-sepolia: ${words}`] })
  rig.proxy.spoil = (_method, _params, result) => result
  for (let i = 0; i < 2; i++) await rig.round()
  expect([await alarms(), await total("transfer"), await standing("transfer")]).toEqual([[], 1, 0])
})

describe("a wallet without gas", () => {
  it("is an alarm, once; and when it is topped up, its payouts go on and the alarm ends", async () => {
    await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    await setBalance(1n)
    for (let i = 0; i < 3; i++) {
      expect(await gain(() => rig.round())).toBe(0n)
      rig.service.advance(31_000)
    }
    expect((await rig.payouts()).map(row => row.held_reason)).toEqual(["low_gas", "low_gas"])
    expect(await alarms()).toEqual(["low_gas"])
    expect(reported("low_gas").map(line => line.level)).toEqual(["error"])
    expect(lines.filter(line => line.msg === "a payout is held").length).toBe(2)
    expect([await total("low_gas"), await standing("low_gas")]).toEqual([1, 1])
    expect(await metric("sluice_payouts_held", { reason: "low_gas" })).toBe(2)
    const words = [
      "base-sepolia: the payout wallet has too little ether for gas, so payouts wait",
      "base-sepolia: payouts held: 2 (2 low_gas)",
    ]
    expect(await ready()).toMatchObject({ status: 200, alarms: words })

    await setBalance(RICH)
    rig.service.advance(31_000)
    expect(await gain(() => rig.round())).toBe(500_000n)
    await rig.round()
    expect(await alarms()).toEqual([])
    expect(reported("low_gas").map(line => line.level)).toEqual(["error", "info"])
    expect([await total("low_gas"), await standing("low_gas")]).toEqual([1, 0])
    expect(await metric("sluice_payouts_held", { reason: "low_gas" })).toBe(0)
    expect(await ready()).toMatchObject({ status: 200, alarms: [] })
  })

  it("is an alarm before anything waits, which ends within a minute after it is topped up", async () => {
    await setBalance(1n)
    await rig.round()
    expect(await alarms()).toEqual(["low_gas"])
    await setBalance(RICH)
    rig.service.advance(61_000)
    await rig.round()
    expect(await alarms()).toEqual([])
  })

  it("is reported before it is too late", async () => {
    await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    await setBalance((await usualPrice()) * 60n)
    expect(await gain(() => rig.round())).toBe(500_000n)
    expect(await alarms()).toEqual(["gas_warning"])
    expect(await metric("sluice_payout_wallet_payouts", { wallet: "payout" })).toBeGreaterThan(50)
    expect(await metric("sluice_payout_wallet_payouts", { wallet: "payout" })).toBeLessThan(100)
    expect((await ready()).alarms).toEqual(["base-sepolia: the payout wallet has gas for fewer than 100 payouts"])
    await setBalance((await usualPrice()) * 300n)
    await rig.anvil.client.mine({ blocks: 3 })
    await rig.round()
    expect(await alarms()).toEqual([])
  })

  it("has none left either for what a rollup takes for the data", async () => {
    const fee = ETHER.toString(16).padStart(64, "0")
    const answers: Hex = `0x7f${fee}60005260206000f3`
    await rig.anvil.client.setCode({ address: GAS_PRICE_ORACLE, bytecode: answers })
    await setBalance(3n * ETHER)
    await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    // The most that each may cost is twice the fee, so the gas is enough for one.
    expect(await gain(() => rig.round())).toBe(500_000n)
    expect((await rig.payouts()).map(row => row.held_reason)).toEqual([null, "low_gas"])
    expect(await metric("sluice_payout_wallet_payouts", { wallet: "payout" })).toBe(1)
  })
})

describe("other alarms", () => {
  it("fees above the cap are one, once, while they last", async () => {
    const { settings } = rig.service.ctx
    await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    settings.payoutMaxFee = 1n
    for (let i = 0; i < 3; i++) await rig.round()
    expect([await total("fee_cap"), await standing("fee_cap"), reported("fee_cap").length]).toEqual([1, 1, 1])
    expect(await metric("sluice_payouts_open", { state: "queued" })).toBe(2)
    rig.service.advance(90_000)
    await rig.round()
    expect(await metric("sluice_payouts_oldest_queued_seconds")).toBeGreaterThanOrEqual(90)
    expect((await ready()).alarms).toEqual([
      expect.stringMatching(/^base-sepolia: the payout wallet can't pay the network's fee/),
    ])
    settings.payoutMaxFee = 20_000_000_000n
    expect(await gain(() => rig.round())).toBe(500_000n)
    expect([await standing("fee_cap"), (await ready()).alarms]).toEqual([0, []])
    expect(await metric("sluice_payouts_oldest_queued_seconds")).toBe(0)
  })

  it("a node that does not report what a wallet has is one, and what was known of its gas stays", async () => {
    await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    await setBalance(1n)
    await rig.round()
    rig.proxy.spoil = (method, _params, result) => (method === "eth_getBalance" ? null : result)
    rig.service.advance(31_000)
    await rig.round()
    await rig.round()
    expect(await alarms()).toEqual(["low_gas", "rpc_unavailable"])
    expect([await total("rpc_unavailable"), await total("low_gas")]).toEqual([1, 1])
  })

  it("a payment that no sweep can take is one a day after it was due, until it is swept", async () => {
    const { ctx } = rig.service
    const id = await rig.paid(await rig.sell(), 5_000_001n)
    // As one of two endpoints alone reports it.
    await ctx.db.updateTable("transfers").set({ single_source: true }).execute()
    for (const hours of [25, 22]) {
      rig.service.advance(hours * 3_600_000)
      await sweepDue(ctx, rig.network)
      await rig.round()
      expect([hours, await alarms()]).toEqual([hours, []])
    }
    rig.service.advance(2 * 3_600_000)
    await sweepDue(ctx, rig.network)
    await rig.round()
    expect([await alarms(), await standing("unswept")]).toEqual([["unswept"], 1])
    expect(reported("unswept")).toMatchObject([{ payments: [id] }])
    expect(await alarmMessages(ctx, waitingAlarms)).toEqual([expect.stringContaining("can't sweep payments")])
    await ctx.db.updateTable("transfers").set({ single_source: false }).execute()
    rig.service.advance(3_700_000)
    await sweepDue(ctx, rig.network)
    for (let i = 0; i < 2; i++) await rig.round()
    expect([await rig.states(), await alarms()]).toEqual([["mined"], []])
  })

  it("a halted wallet is reported in words that name no address and no reason", async () => {
    const reason = `the transfer ${keccak256("0x")} left a deposit`
    await rig.service.ctx.db.updateTable("wallets").set({ status: "halted", halted_reason: reason }).execute()
    await rig.round()
    expect(await metric("sluice_payout_wallet_halted", { wallet: "payout" })).toBe(1)
    const { status, alarms, text } = await ready()
    expect([status, alarms]).toEqual([
      200,
      [
        "base-sepolia: the payout wallet is halted: payouts wait, and nothing can be sold on this network, until you run `sluice wallet resume`",
      ],
    ])
    expect(text).not.toContain("0x")
  })

  it("payouts that wait without a payout key are one, and so is a payout that is in no block", async () => {
    const { ctx } = rig.service
    await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    ctx.settings.payoutWallet = undefined
    const words =
      "base-sepolia: the service has no payout key, so no money can leave its deposits: set PAYOUT_PRIVATE_KEY, PAYOUT_KEYSTORE or PAYOUT_SIGNER, and restart the service"
    // As if verification kept running: the clock is advanced below.
    expect((await ready()).alarms).toContain(words)
    const { payoutSigner } = ctx.settings
    ctx.settings.payoutSigner = undefined
    await reportWaiting(ctx, waitingAlarms)
    await reportWaiting(ctx, waitingAlarms)
    expect([await total("no_key"), await standing("no_key"), reported("no_key").length]).toEqual([1, 1, 0])
    ctx.settings.payoutSigner = payoutSigner
    ctx.settings.payoutWallet = rig.signer.address
    expect((await ready()).alarms).not.toContain(words)

    rig.proxy.spoil = (method, _params, result) => (method === "eth_sendRawTransaction" ? null : result)
    await rig.anvil.client.setAutomine(false)
    await rig.round()
    rig.service.advance(16 * 60_000)
    await rig.round()
    expect(await alarms()).toContain("stuck")
    await rig.anvil.client.dropAllTransactions()
    await rig.anvil.client.setAutomine(true)
    rig.proxy.spoil = (_method, _params, result) => result
    await rig.round(rig.signer, { resendMs: 0, replaceMs: 60_000 })
    await rig.round()
    expect(await alarms()).not.toContain("stuck")
  })

  it("payouts to a factory that nothing serves are one after an hour, until a process serves it", async () => {
    const { ctx } = rig.service
    await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    ctx.chain.networks[0] = { ...rig.network, depositFactory: recipient(9) }
    try {
      expect(await alarmMessages(ctx, waitingAlarms)).toEqual([])
      rig.service.advance(3_700_000)
      expect(await alarmMessages(ctx, waitingAlarms)).toEqual([
        expect.stringContaining("of a deposit factory that no process serves"),
      ])
      await reportWaiting(ctx, waitingAlarms)
      await reportWaiting(ctx, waitingAlarms)
      expect([
        await total("unserved"),
        await standing("unserved"),
        lines.filter(line => line.reason === "unserved").length,
      ]).toEqual([1, 1, 1])
    } finally {
      ctx.chain.networks[0] = rig.network
    }
    await reportWaiting(ctx, waitingAlarms)
    expect([await alarmMessages(ctx, waitingAlarms), await standing("unserved")]).toEqual([[], 0])
  })

  it("begin and end once, though several processes see them", async () => {
    const { ctx } = rig.service
    const [wallet] = await ctx.db.selectFrom("wallets").selectAll().execute()
    if (!wallet) throw new Error("no wallet")
    expect(await inFlight(ctx, wallet)).toMatchObject({ n: 0, unsigned: 0, since: null, wei: 0n, parts: 0n })
    await setBalance(1n)
    await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    await Promise.all([rig.round(), rig.round(), rig.round()])
    expect([await total("low_gas"), reported("low_gas").length]).toEqual([1, 1])
  })

  it("are asked for once a second at most", async () => {
    await ready()
    const { db } = rig.service.ctx
    await sql`update wallets set alarms = '{fee_cap}'`.execute(db)
    expect((await rig.service.call("GET", "/readyz")).body.alarms).toEqual([])
    expect((await ready()).alarms.length).toBe(1)
  })
})

describe("docs/operators/alarms.md", () => {
  const table = readFileSync(new URL("../../../../docs/operators/alarms.md", import.meta.url), "utf8")
  // Before the scan come the checks of the installation, which have names of their own.
  const documented = [...table.slice(table.indexOf("## The scan")).matchAll(/^\| `(?!sluice_)([a-z_]+)` \|/gm)].map(
    match => match[1] ?? "",
  )

  it("has a row for each reason that the metrics know, and no other", () => {
    expect([...documented].sort()).toEqual([...payoutAlarmReasons, ...endpointAlarmReasons].sort())
  })

  it("knows every reason that is counted anywhere", () => {
    const source = new URL("../../", import.meta.url)
    const files = readdirSync(source, { recursive: true, encoding: "utf8" }).filter(path => path.endsWith(".ts"))
    const text = files.map(path => readFileSync(new URL(path, source), "utf8")).join("\n")
    const counted = [...text.matchAll(/payoutAlarms\.inc\(\{[^}]*reason: "(\w+)"/g)].map(match => match[1])
    expect(counted.length).toBeGreaterThan(2)
    expect(counted.filter(reason => !documented.includes(reason ?? ""))).toEqual([])
  })
})
