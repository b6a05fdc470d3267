/**
 * A primary that is lost together with its last commits, which its asynchronous replica had not got yet. The service goes on with the
 * replica and is not started again: nothing is paid twice, what was paid in is found again on the chain, and an alarm names the rest.
 */
import pg from "pg"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { checkConsistency } from "../../src/ledger/reconciliation/check-consistency.ts"
import { openPostgres } from "../../src/platform/db/open.ts"
import { type Life, lifeOf } from "../life.ts"
import { type Operator, openOperator } from "../operator.ts"
import { type PayoutRig, recipient, startPayoutRig } from "../payouts.ts"
import { postgresBinaries, startPostgres, type TestPostgres } from "../postgres.ts"
import { until } from "./program.ts"

describe.runIf(postgresBinaries() || process.env.CI)("the last commits of a lost primary", () => {
  let primary: TestPostgres
  let standby: TestPostgres
  let rig: PayoutRig
  let life: Life
  let operator: Operator
  beforeAll(async () => {
    primary = await startPostgres({ durable: true })
    const onError = () => {}
    await (await openPostgres(primary.url, onError)).close()
    standby = await startPostgres({ durable: true, replicaOf: primary })
    const hosts = [primary, standby].map(({ url }) => new URL(url).host)
    const url = `postgres://sluice@${hosts.join(",")}/postgres?target_session_attrs=read-write`
    rig = await startPayoutRig({}, await openPostgres(url, onError))
    life = lifeOf(rig)
    operator = openOperator(rig)
    await life.begin()
  })
  afterAll(async () => {
    await operator?.stop()
    await rig?.stop()
    await standby?.stop()
    await primary?.stop()
  })

  const ask = async (server: TestPostgres, text: string) => {
    const client = new pg.Client({ connectionString: server.url })
    await client.connect()
    return (await client.query(text).finally(() => client.end())).rows
  }
  /** The replica has all there is, and gets nothing from now on. */
  const cutOff = async () => {
    const behind = "select from pg_stat_replication where replay_lsn < pg_current_wal_lsn()"
    await until("the replica has all", async () => (await ask(primary, behind)).length === 0)
    await ask(standby, "alter system set primary_conninfo = ''")
    await ask(standby, "select pg_reload_conf()")
    await until("it is cut off", async () => (await ask(primary, "select from pg_stat_replication")).length === 0)
  }
  const order = () => {
    const headers = { "idempotency-key": "order-1" }
    return rig.service.call("POST", "/api/console/checkouts", { amount: 5 }, { as: "shop", headers })
  }
  const received = () => Promise.all([0, 1].map(n => rig.balanceOf(recipient(n))))
  const alarms = async () => {
    rig.service.advance(1_000)
    return (await rig.service.call("GET", "/readyz")).body.alarms as string[]
  }
  const ids = async () => (await rig.payouts()).map(({ id }) => id)

  it("are found again from the chain, and nothing is paid twice", async () => {
    const { service, anvil } = rig
    const before = await rig.sell([50, 50])
    const meanwhile = await rig.sell([50, 50])
    await rig.paid(before, 1_000_000n)
    const planned = await ids()
    await cutOff()

    // The last moments: what was planned is paid out; a payment is found and paid out; a checkout is made and paid.
    await life.settle()
    const { transactionHash: txHash } = await life.send(meanwhile.deposit.address, 500_000n)
    const address = anvil.accounts[3].address
    const submitted = await service.call("POST", `/api/paywalls/${meanwhile.id}/pay`, { txHash, address })
    expect(submitted.status).toBeLessThan(300)
    await life.settle()
    const lost = (await order()).body
    await life.send(lost.payTo, 5_000_000n)
    await life.settle()
    expect((await service.call("GET", `/api/pay/status/${lost.id}`)).body.status).toBe("confirmed")
    const paidOut = await received()
    expect(paidOut).toEqual([750_000n, 750_000n])
    const { next_nonce: signed } = await operator.wallet()
    const hasAccess = async () =>
      (await service.call("GET", `/api/paywalls/${meanwhile.id}/verify?address=${address}`)).body.hasAccess
    expect(await hasAccess()).toBe(true)

    await primary.kill()
    await standby.promote()
    await until("the replica serves", () =>
      ids().then(
        () => true,
        () => false,
      ),
    )
    expect(await ids()).toEqual(planned)
    // No process keeps what the database does not know any more.
    expect(await hasAccess()).toBe(false)
    expect(await rig.states()).toEqual(["queued", "queued"])
    expect((await operator.wallet()).next_nonce).toBeLessThan(signed)

    // The next round halts the wallet, and says why; the payment that nobody submits again is found after ten minutes.
    await rig.round()
    expect(await operator.wallet()).toMatchObject({ status: "halted" })
    await life.verify()
    expect(await alarms()).toContainEqual(expect.stringMatching(/halted/))
    await life.advance(11 * 60_000)
    for (let i = 0; i < 3; i++) await life.verify()
    await rig.round()
    expect(await hasAccess()).toBe(true)
    expect(new Set(await rig.states())).toEqual(new Set(["queued"]))
    expect(await received()).toEqual(paidOut)

    // The operator takes in what was sent, and the books are the chain's.
    const { said } = (await operator.ask("/adopt-all", { wallet: "payout" })).body
    expect(said).toMatch(/^4 transactions were adopted[\s\S]*sluice wallet resume/)
    expect((await operator.ask("/resume", { wallet: "payout", reason: "adopted" })).status).toBe(200)
    await life.settle()
    expect(await received()).toEqual(paidOut)
    expect(await rig.states()).toEqual(Array(4).fill("final"))
    await rig.compareLogs()
    expect(await operator.wallet()).toMatchObject({ status: "active", next_nonce: signed })
    expect(await checkConsistency(service.ctx, rig.network.chainId)).toEqual([])

    // Of the checkout nothing is known, and its order makes another one, with another address.
    expect((await service.call("GET", `/api/pay/status/${lost.id}`)).status).toBe(404)
    const again = await order()
    expect([again.status, again.body.payTo === lost.payTo]).toEqual([201, false])
    expect(await rig.balanceOf(lost.payTo)).toBe(5_000_000n)
    // Its terms are on the lost primary's disk alone.
    const terms = `select salt from deposits where address = '${lost.payTo.toLowerCase()}'`
    expect(await ask(standby, terms)).toEqual([])
    await primary.start()
    expect(await ask(primary, terms)).toEqual([{ salt: expect.stringMatching(/^0x/) }])
  })
})
