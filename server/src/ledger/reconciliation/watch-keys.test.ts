// Theft with the payout key that leaves no event of its own, and what looks like it, on a real chain.
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from "vitest"
import { type PayoutRig, recipient, startPayoutRig } from "../../../test/payouts.ts"
import { type Endpoint, newEndpoint } from "../../platform/chain/endpoints.ts"
import { releaseData } from "../../platform/chain/release-call.ts"
import { payoutAlarms } from "../../platform/metrics.ts"
import { payeesOfSets } from "../deposits/make-deposits.ts"
import { ensureCursor } from "../scanner/scan-round.ts"
import { verifyRound } from "../settlement/verify-payments.ts"
import { watchOutflows } from "./watch-outflows.ts"

const EVERY_MS = 20_000
const PAYOUT_ID = "00000000-0000-4000-8000-000000000000"
let rig: PayoutRig
let endpoints: Endpoint[]
beforeAll(async () => {
  rig = await startPayoutRig()
  endpoints = rig.network.endpoints as Endpoint[]
})
afterAll(() => rig.stop())
beforeEach(async () => {
  await rig.empty()
  await ensureCursor(rig.service.ctx, rig.network)
  await look()
  await look()
})
afterEach(() => {
  endpoints.splice(1)
  rig.proxy.spoil = (_method, _params, result) => result
})

const wallet = () => rig.service.ctx.db.selectFrom("wallets").selectAll().executeTakeFirstOrThrow()
const watched = () => rig.service.ctx.db.selectFrom("outflow_watches").selectAll().executeTakeFirstOrThrow()
const count = async () => BigInt(await rig.anvil.client.getTransactionCount({ address: rig.signer.address }))
const another = () => newEndpoint(rig.network.name, rig.anvil.rpcUrl)
const isCountCall = (method: string, params: unknown[]) =>
  method === "eth_getTransactionCount" && params[1] === "latest"
const alarms = async () => {
  const { values } = await payoutAlarms.get()
  return values.find(({ labels }) => labels.reason === "books" && labels.wallet === "payout")?.value ?? 0
}
const watch = async () => {
  for (const endpoint of endpoints) endpoint.silentUntil = 0
  await watchOutflows(rig.service.ctx, rig.network, rig.signer.address)
}
/** A round of the scan, and then one of the watch. */
const look = async () => {
  rig.service.advance(EVERY_MS)
  await verifyRound(rig.service.ctx, rig.network)
  await watch()
}

/** Pays all of a deposit to the payee who is to get 40 % of it, with the operator's key, past the service. */
async function steal(): Promise<void> {
  const { service, anvil, token } = rig
  const { deposit } = await rig.sell([60, 40])
  await rig.mint(deposit.address, 50n)
  const set = deposit.recipient_set_id ?? 0n
  const payees = [...(await payeesOfSets(service.ctx, [set])).values()].flat()
  const data = releaseData(PAYOUT_ID, deposit, payees, { token, recipient: recipient(1), amount: 50n })
  const before = await rig.balanceOf(recipient(1))
  await anvil.client.sendTransactionSync({ to: deposit.factory, data, account: anvil.accounts[1], gas: 1_000_000n })
  expect(await rig.balanceOf(recipient(1))).toBe(before + 50n)
}

/** Replaces what is in flight with transactions of the thief, at higher fees. */
async function replaceInFlight(): Promise<void> {
  const { anvil } = rig
  const first = Number(await count())
  const next = Number((await wallet()).next_nonce)
  expect(next).toBeGreaterThan(first)
  const fees = { maxFeePerGas: 500_000_000_000n, maxPriorityFeePerGas: 400_000_000_000n }
  for (let nonce = first; nonce < next; nonce++)
    await anvil.client.sendTransaction({ to: recipient(7), account: anvil.accounts[1], gas: 50_000n, nonce, ...fees })
  await anvil.client.mine({ blocks: 1 })
  expect(await count()).toBe(BigInt(next))
}

/** Runs with payouts in flight: nothing is mined until asked. */
async function withInFlight(run: () => Promise<void>): Promise<void> {
  await rig.paid(await rig.sell([50, 50]), 500_000n)
  await rig.anvil.client.setAutomine(false)
  try {
    await rig.round()
    expect(new Set(await rig.states())).toEqual(new Set(["assigned"]))
    await run()
  } finally {
    await rig.anvil.client.setAutomine(true)
  }
}

const lookTwice = async () => {
  await look()
  await look()
}

it("halts for a release that the service did not sign, within two rounds and long before its block is final", async () => {
  await rig.paid(await rig.sell([60, 40]), 500_000n)
  await rig.round()
  expect(await rig.states()).toEqual(["mined", "mined"])
  await lookTwice()
  expect(await wallet()).toMatchObject({ status: "active" })
  await steal()
  await look()
  // One reading of the only endpoint halts nothing.
  expect(await wallet()).toMatchObject({ status: "active" })
  // Nor do two that are close together: a wrong answer may come twice.
  rig.service.advance(5_000)
  await watch()
  expect(await wallet()).toMatchObject({ status: "active" })
  // A later look, whether or not the round is due or another process has it.
  rig.service.advance(15_000)
  await watch()
  const signed = (await wallet()).next_nonce
  expect((await wallet()).halted_reason).toBe(
    `the chain has ${signed + 1n} transactions of the wallet, and this database signed ${signed}: the database was restored from an old backup, or the key is used elsewhere`,
  )
})

it("halts the wallet of another process's factory, but none that nobody serves", async () => {
  const { db } = rig.service.ctx
  const { id: _id, ...row } = await wallet()
  const [, , , , other, unserved] = rig.anvil.accounts
  const of = ({ address }: { address: string }, run_at: Date) =>
    ({ ...row, address: address.toLowerCase() as typeof row.address, next_nonce: 0n, run_at }) as const
  await db
    .insertInto("wallets")
    .values([of(other, rig.service.ctx.now()), of(unserved, new Date(0))])
    .execute()
  for (const account of [other, unserved])
    await rig.anvil.client.sendTransactionSync({ to: recipient(7), value: 1n, account })
  await lookTwice()
  const rows = await db.selectFrom("wallets").select(["address", "status"]).where("status", "=", "halted").execute()
  expect(rows).toEqual([{ address: other.address.toLowerCase(), status: "halted" }])
})

it("does not halt for what another process gives a nonce, sends and has mined while the count is read", async () => {
  const before = await count()
  let isInside = false
  rig.proxy.spoil = async (method, params, result) => {
    if (isInside || !isCountCall(method, params)) return result
    isInside = true
    await rig.round()
    return `0x${(await count()).toString(16)}`
  }
  for (const n of [1, 2]) {
    await rig.paid(await rig.sell([50, 50]), 500_000n)
    rig.service.advance(EVERY_MS)
    isInside = false
    await watch()
    expect(await count()).toBe(before + BigInt(2 * n))
  }
  await lookTwice()
  expect(await wallet()).toMatchObject({ status: "active", halted_reason: null })
})

it("does not halt for one answer that is wrong, for a lagging endpoint, nor for a liar beside an honest one", async () => {
  const answer = (value: (honest: bigint) => bigint) => {
    rig.proxy.spoil = (method, params, result) =>
      isCountCall(method, params) ? `0x${value(BigInt(String(result))).toString(16)}` : result
  }
  answer(honest => honest + 9n)
  await look()
  answer(honest => honest)
  await lookTwice()
  answer(honest => honest + 9n)
  await look()
  answer(honest => honest)
  await watch()
  endpoints.push(another())
  answer(honest => honest - 1n)
  await lookTwice()
  answer(honest => honest + 9n)
  await lookTwice()
  expect(await wallet()).toMatchObject({ status: "active", halted_reason: null })
  // Nor does the endpoint that lags hide what two others report.
  endpoints.push(another())
  answer(honest => honest - 1n)
  await steal()
  await lookTwice()
  expect(await wallet()).toMatchObject({ status: "halted" })
})

it("reports after a minute that too few endpoints report the count, and that blocks wait after downtime", async () => {
  endpoints.push(another())
  const since = (await watched()).read_at
  const had = await alarms()
  rig.proxy.spoil = (method, params, result) => (isCountCall(method, params) ? null : result)
  await lookTwice()
  expect(await watched()).toMatchObject({ read_at: since })
  expect(await alarms()).toBe(had)
  await look()
  expect(await alarms()).toBe(had + 1)
  rig.proxy.spoil = (_method, _params, result) => result
  await look()
  const { read_at: read } = await watched()
  expect(read.getTime()).toBeGreaterThan(since.getTime())
  // More blocks than two rounds of 20 ranges reach.
  await rig.anvil.client.mine({ blocks: 130 })
  rig.service.advance(EVERY_MS)
  await verifyRound(rig.service.ctx, rig.network)
  // The first is 40 s after the last read, and the second a minute.
  for (const n of [0, 1, 2]) {
    for (const endpoint of endpoints) endpoint.logRange = 3n
    rig.service.advance(EVERY_MS)
    await watch()
    expect((await watched()).read_at).toEqual(read)
    expect(await alarms()).toBe(had + 1 + n)
  }
  await look()
  expect((await watched()).read_at.getTime()).toBeGreaterThan(read.getTime())
  expect(await alarms()).toBe(had + 3)
})

it("halts for a transaction that replaces one of ours in flight, before its block is final", async () => {
  await withInFlight(async () => {
    const first = await count()
    await lookTwice()
    await replaceInFlight()
    await look()
    rig.service.advance(5_000)
    await watch()
    expect(await wallet()).toMatchObject({ status: "active" })
    rig.service.advance(15_000)
    await watch()
    expect(await wallet()).toMatchObject({
      status: "halted",
      halted_reason: `nonce ${first} was used by a transaction that this database does not know`,
    })
  })
})

it("does not halt for transactions of ours that no round has confirmed, nor while their receipts are late", async () => {
  let isLate = true
  await withInFlight(async () => {
    rig.proxy.spoil = (method, _params, result) => (isLate && method === "eth_getTransactionReceipt" ? null : result)
    await rig.anvil.client.mine({ blocks: 1 })
    await look()
    isLate = false
    await look()
    isLate = true
    await look()
    isLate = false
    await lookTwice()
    expect(new Set(await rig.states())).toEqual(new Set(["assigned"]))
    expect(await wallet()).toMatchObject({ status: "active", halted_reason: null })
  })
})

it("does not halt a wallet that was resumed for one answer that is wrong, whatever was suspected before", async () => {
  const { db } = rig.service.ctx
  let isWrong = true
  rig.proxy.spoil = (method, params, result) =>
    isWrong && isCountCall(method, params) ? `0x${(BigInt(String(result)) + 9n).toString(16)}` : result
  await look()
  isWrong = false
  await db.updateTable("wallets").set({ status: "halted", halted_reason: "by an operator" }).execute()
  // No question is asked where no wallet is watched: it would clear what is known of an endpoint.
  Object.assign(endpoints[0] as Endpoint, { failures: 3 })
  rig.service.advance(EVERY_MS)
  await watch()
  expect(endpoints[0]).toMatchObject({ failures: 3 })
  Object.assign(endpoints[0] as Endpoint, { failures: 0 })
  await db
    .updateTable("wallets")
    .set({ status: "active", halted_reason: null, run_at: rig.service.ctx.now() })
    .execute()
  isWrong = true
  rig.service.advance(EVERY_MS)
  await watch()
  expect(await wallet()).toMatchObject({ status: "active", halted_reason: null })
})
