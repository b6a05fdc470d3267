import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { A, B, err, hashOf, usd, world } from "./fake.ts"

let w: Awaited<ReturnType<typeof world>>
beforeAll(async () => {
  w = await world()
})
afterAll(async () => w.stop())
beforeEach(async () => {
  w.fake.mineMany(200)
  await w.reset()
})
let n = 1000
const next = () => hashOf(++n)

for (const [name, first, second] of [
  ["A then B", A, B],
  ["B then A", B, A],
] as const)
  for (const submitted of [true, false])
    it(`sender changes when mined again: ${name}, second submitted ${submitted}`, async () => {
      const shop = await w.paywall()
      const tx = next()
      const at = w.fake.mine({ hash: tx, logs: [{ from: first, to: shop.payTo, value: usd(5) }] })
      w.fake.mineMany(3)
      await w.submit(shop.id, tx, first)
      await w.round()
      expect((await w.access(shop.id, first)).hasAccess).toBe(true)
      w.fake.reorg(at.number)
      w.fake.mine({ hash: tx, logs: [{ from: second, to: shop.payTo, value: usd(5) }] })
      w.fake.mineMany(3)
      if (submitted) await w.submit(shop.id, tx, second)
      await w.round()
      w.service.advance(31_000)
      await w.round()
      w.service.advance(15 * 60_000)
      await w.round()
      w.service.advance(6000)
      await w.round()
      console.log(
        name,
        submitted,
        "first",
        await w.access(shop.id, first),
        "second",
        await w.access(shop.id, second),
        (await w.rows("payments")).map(p => [p.payer, p.status]),
        (await w.rows("grants")).map(p => [p.address, p.revoked_by]),
        (await w.rows("transfers")).map(t => [t.from_address, t.state, t.run_at]),
      )
      expect.soft((await w.access(shop.id, first)).hasAccess).toBe(false)
      expect.soft((await w.access(shop.id, second)).hasAccess).toBe(true)
    })

it("submission whose seen transfer changes sender is stuck", async () => {
  const shop = await w.paywall()
  const tx = next()
  const at = w.fake.mine({ hash: tx, logs: [{ from: A, to: shop.payTo, value: usd(5) }] })
  await w.submit(shop.id, tx, A)
  await w.round()
  w.fake.reorg(at.number)
  w.fake.mine({ hash: tx, logs: [{ from: B, to: shop.payTo, value: usd(5) }] })
  w.fake.mineMany(5)
  await w.round()
  for (let i = 0; i < 5; i++) {
    w.service.advance(15 * 3600_000)
    w.fake.mineMany(1)
    await w.round()
  }
  console.log(
    await w.status(shop.id, tx, A),
    (await w.rows("submissions")).map(s => [s.status, s.run_at]),
  )
  expect((await w.status(shop.id, tx, A)).status).toBe("failed")
})

it("part older than 7 days: its submission is stuck", async () => {
  const shop = await w.paywall()
  const t1 = next(),
    t2 = next()
  w.fake.mine({ hash: t1, logs: [{ from: A, to: shop.payTo, value: usd(4) }] })
  w.fake.mineMany(3)
  await w.round()
  w.fake.head.time += 8 * 86400
  w.fake.mine({ hash: t2, logs: [{ from: A, to: shop.payTo, value: usd(1) }] })
  w.fake.mineMany(3)
  w.service.advance(8 * 86400_000 + 3600_000)
  await w.round()
  await w.submit(shop.id, t1, A)
  await w.round()
  w.service.advance(3 * 86400_000)
  await w.round()
  expect((await w.status(shop.id, t1, A)).status).toBe("failed")
})

it("granted while suspected", async () => {
  const shop = await w.paywall()
  const tx = next()
  const at = w.fake.mine({ hash: tx, logs: [{ from: A, to: shop.payTo, value: usd(5) }] })
  w.fake.mineMany(3)
  await w.round()
  w.fake.reorg(at.number)
  w.fake.mineMany(2)
  await w.round()
  console.log((await w.rows("transfers")).map(t => [t.state, t.suspect_at]))
  await w.submit(shop.id, tx, A)
  await w.round()
  expect((await w.access(shop.id, A)).hasAccess).toBe(false)
})

it("logs of the old fork, head of the new: granted in the same round", async () => {
  const shop = await w.paywall()
  const tx = next()
  await w.round()
  const at = w.fake.mine({ hash: tx, logs: [{ from: A, to: shop.payTo, value: usd(5) }] })
  await w.submit(shop.id, tx, A)
  const old = w.fake.reorg(at.number)
  w.fake.mineMany(3)
  w.fake.hook = (m, p) => (m === "eth_getLogs" ? w.fake.logs(p, old) : undefined)
  await w.round()
  expect.soft((await w.access(shop.id, A)).hasAccess).toBe(false)
  console.log((await w.rows("transfers")).map(t => [t.state]))
})

it("head of the new fork, checkpoint of the old: a deep reorg is never noticed and the displaced transfer finalized", async () => {
  const shop = await w.paywall()
  const tx = next()
  const at = w.fake.mine({ hash: tx, logs: [{ from: A, to: shop.payTo, value: usd(5) }] })
  await w.submit(shop.id, tx, A)
  w.fake.mineMany(30)
  await w.round()
  expect((await w.access(shop.id, A)).hasAccess).toBe(true)
  const old = w.fake.reorg(at.number)
  w.fake.mineMany(2)
  // Entries of one batch that were answered at different moments.
  const cursor = (await w.rows("cursors"))[0].block_number
  w.fake.hook = (m, p, i) =>
    m === "eth_getBlockByNumber" && i === 2 && Number(p[0]) === Number(cursor)
      ? w.fake.blockJson(old[Number(cursor)])
      : undefined
  await w.round()
  w.fake.hook = () => undefined
  for (let i = 0; i < 4; i++) {
    w.fake.mineMany(2)
    w.service.advance(31_000)
    await w.round()
  }
  w.fake.finalized = w.fake.head.number
  w.fake.mineMany(2)
  await w.round()
  console.log((await w.rows("transfers")).map(t => [t.state, t.suspect_at]))
  w.fake.finalized = 0
  expect((await w.access(shop.id, A)).hasAccess).toBe(false)
})

it("getLogs from a node 30 blocks behind: the cursor skips what was not read", async () => {
  const shop = await w.paywall()
  const tx = next()
  await w.round()
  w.fake.mine({ hash: tx, logs: [{ from: A, to: shop.payTo, value: usd(5) }] })
  w.fake.mineMany(29)
  w.fake.hook = (m, p) => (m === "eth_getLogs" ? w.fake.logs(p, w.fake.blocks.slice(0, -30)) : undefined)
  await w.round()
  w.fake.hook = () => undefined
  w.fake.mineMany(1)
  await w.round()
  w.service.advance(1200_000)
  await w.round()
  expect((await w.access(shop.id, A)).hasAccess).toBe(true)
})

it("range limit: after downtime no round ever succeeds", async () => {
  const shop = await w.paywall()
  w.fake.hook = (m, p) =>
    m === "eth_getLogs" && w.fake.head.number - Number(p[0].fromBlock) > 2000
      ? err("query exceeds max block range 2000")
      : undefined
  await w.round()
  w.fake.mineMany(2500)
  const tx = next()
  w.fake.mine({ hash: tx, logs: [{ from: A, to: shop.payTo, value: usd(5) }] })
  w.fake.mineMany(3)
  await w.submit(shop.id, tx, A)
  const errors = []
  for (let i = 0; i < 3; i++) await w.round().catch(e => errors.push(e.message))
  console.log(errors)
  expect((await w.access(shop.id, A)).hasAccess).toBe(true)
})

it("one unreadable receipt stops everybody", async () => {
  const shop = await w.paywall()
  const bad = next(),
    tx = next()
  w.fake.mine({ hash: tx, logs: [{ from: A, to: shop.payTo, value: usd(5) }] })
  w.fake.mineMany(3)
  await w.submit(shop.id, bad, B)
  await w.submit(shop.id, tx, A)
  w.fake.hook = (m, p) =>
    m === "eth_getTransactionReceipt" && p[0] === bad
      ? { transactionHash: bad, blockHash: null, blockNumber: null, logs: [] }
      : undefined
  const errors = []
  for (let i = 0; i < 3; i++) await w.round().catch(e => errors.push(e.message))
  console.log(errors)
  expect((await w.access(shop.id, A)).hasAccess).toBe(true)
})

it("reorg while `finalized` is not answered: blocks deeper than 20 are not scanned again", async () => {
  const shop = await w.paywall()
  w.fake.mineMany(40)
  await w.round()
  const fork = w.fake.head.number - 35
  w.fake.reorg(fork)
  const tx = next()
  w.fake.blocks[fork + 2]!.txs.push({ hash: tx, logs: [{ from: A, to: shop.payTo, value: usd(5) }] })
  w.fake.mineMany(2)
  w.fake.hook = (m, p) => (m === "eth_getBlockByNumber" && p[0] === "finalized" ? err("x") : undefined)
  await w.round()
  w.fake.hook = () => undefined
  w.fake.mineMany(1)
  await w.round()
  w.service.advance(1200_000)
  await w.round()
  expect((await w.access(shop.id, A)).hasAccess).toBe(true)
})

it("paid before the first worker ever ran", async () => {
  await w.service.ctx.db.deleteFrom("cursors").execute()
  const shop = await w.paywall()
  const tx = next(),
    t2 = next()
  w.fake.mine({ hash: tx, logs: [{ from: A, to: shop.payTo, value: usd(5) }] })
  w.fake.mineMany(30)
  await w.submit(shop.id, t2, A)
  console.log(await w.status(shop.id, t2, A))
  const { ensureCursor } = await import("../../src/payments/verify-payments.ts")
  await ensureCursor(w.service.ctx, w.network)
  w.fake.mineMany(1)
  await w.round()
  w.service.advance(1200_000)
  await w.round()
  expect((await w.access(shop.id, A)).hasAccess).toBe(true)
})

it("one reversed payment of two transfers that come back as two payments", async () => {
  const shop = await w.paywall({ accessDuration: 1000000 })
  const t1 = next(),
    t2 = next()
  const at = w.fake.mine(
    { hash: t1, logs: [{ from: A, to: shop.payTo, value: usd(3) }] },
    { hash: t2, logs: [{ from: A, to: shop.payTo, value: usd(2) }] },
  )
  w.fake.mineMany(3)
  await w.submit(shop.id, t1, A)
  await w.submit(shop.id, t2, A)
  await w.round()
  expect((await w.access(shop.id, A)).hasAccess).toBe(true)
  w.fake.reorg(at.number)
  w.fake.mineMany(2)
  await w.round()
  w.service.advance(31_000)
  await w.round()
  expect((await w.access(shop.id, A)).hasAccess).toBe(false)
  await w.service.call("PUT", `/api/console/paywalls/${shop.id}`, { price: 2 }, { as: "shop" })
  w.fake.head.time = Math.floor(w.service.ctx.now().getTime() / 1000) + 10
  w.fake.mine(
    { hash: t1, logs: [{ from: A, to: shop.payTo, value: usd(3) }] },
    { hash: t2, logs: [{ from: A, to: shop.payTo, value: usd(2) }] },
  )
  w.fake.mineMany(3)
  await w.round()
  w.service.advance(60_000)
  await w.round()
  console.log(
    (await w.rows("payments")).map(p => [p.status, p.amount]),
    await w.rows("claims"),
    (await w.rows("grants")).length,
  )
  expect(await w.rows("grants")).toHaveLength(2)
})

it("SIGKILL in a round: idle for the lease", async () => {})
