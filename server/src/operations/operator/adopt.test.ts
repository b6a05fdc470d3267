// A database that knows less than the chain: an old backup, a lost attempt, a key that somebody else used. The wallet
// is halted, the operator adopts what happened, and nobody is paid twice.
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { backUp } from "../../../test/database.ts"
import { type Escrows, escrowsOn } from "../../../test/escrow.ts"
import { failed } from "../../../test/node.ts"
import { type Operator, openOperator } from "../../../test/operator.ts"
import { type PayoutRig, recipient, startPayoutRig } from "../../../test/payouts.ts"
import { startProxy } from "../../../test/proxy.ts"
import { bodyOf, relaysOn } from "../../../test/relays.ts"
import { reservesOn } from "../../../test/reserve.ts"
import { putAway } from "../../ledger/deposits/put-away.ts"
import { makePayouts, sweepDue } from "../../ledger/payouts/make-payouts.ts"
import { payoutLane } from "../../ledger/payouts/payout-lane.ts"
import { checkConsistency } from "../../ledger/reconciliation/check-consistency.ts"
import { reconcileRound } from "../../ledger/reconciliation/reconcile.ts"
import { relayLane } from "../../ledger/relays/relay-lane.ts"
import { ensureCursor } from "../../ledger/scanner/scan-round.ts"
import { verifyRound } from "../../ledger/settlement/verify-payments.ts"
import { checkWallet } from "../../ledger/txmanager/lock-wallet.ts"
import { newEndpoint } from "../../platform/chain/endpoints.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"

const DAY_MS = 86_400_000
let rig: PayoutRig
let operator: Operator
beforeAll(async () => {
  rig = await startPayoutRig()
  operator = openOperator(rig)
})
afterAll(async () => {
  await operator.stop()
  await rig.stop()
})
beforeEach(async () => {
  const { client } = rig.anvil
  rig.proxy.spoil = (_method, _params, result) => result
  await client.dropAllTransactions()
  await client.setAutomine(true)
  await client.mine({ blocks: 3 })
  await rig.empty()
})

const mine = (blocks = 3) => rig.anvil.client.mine({ blocks })
const gains = async (work: () => Promise<unknown>): Promise<bigint[]> => {
  const all = () => Promise.all([0, 1].map(n => rig.balanceOf(recipient(n))))
  const before = await all()
  await work()
  return (await all()).map((after, i) => after - (before[i] ?? 0n))
}
const adopt = (hash: string | undefined, more: object = {}) => operator.ask("/adopt", { hash, ...more })
const resume = (more: object = {}) => operator.ask("/resume", { wallet: "payout", reason: "mended", ...more })
const expectRefused = async (asked: Promise<{ status: number; body: { message: string } }>, words: RegExp) => {
  const before = await operator.actions()
  const { status, body } = await asked
  expect([status, body.message]).toEqual([409, expect.stringMatching(words)])
  expect(await operator.actions()).toEqual(before)
}
const count = async () => BigInt(await rig.anvil.client.getTransactionCount({ address: rig.signer.address }))

/** What an explorer shows of the wallet from a nonce on, in order. */
async function inExplorer(from: bigint): Promise<Hash[]> {
  const { client } = rig.anvil
  const found: { nonce: number; hash: Hash }[] = []
  const head = await client.getBlockNumber()
  for (let number = head; number > 0n && number > head - 50n; number--) {
    const { transactions } = await client.getBlock({ blockNumber: number, includeTransactions: true })
    for (const { from: sender, nonce, hash } of transactions)
      if (sender === rig.signer.address && BigInt(nonce) >= from) found.push({ nonce, hash: hash as Hash })
  }
  return found.sort((a, b) => a.nonce - b.nonce).map(({ hash }) => hash)
}

/** One round of the scan and of the settlement, after some blocks. */
async function verifyNow(): Promise<void> {
  await mine()
  await rig.service.ctx.db.updateTable("cursors").set({ run_at: rig.service.ctx.now() }).execute()
  await verifyRound(rig.service.ctx, rig.network)
}

/** Sweeps what is due to the merchant, and waits until it is final. */
async function sweep(): Promise<void> {
  rig.service.advance(2 * DAY_MS)
  await sweepDue(rig.service.ctx, rig.network)
  await rig.round()
  await mine()
  await rig.round()
}

/** Pays everything that is due, and waits until it is final. */
async function payAll(): Promise<void> {
  for (let i = 0; i < 3; i++) {
    rig.service.advance(DAY_MS)
    // A transaction that the pool lost is sent again at once.
    await rig.round(rig.signer, { resendMs: 0, replaceMs: 60_000 })
    await mine()
    await rig.round()
  }
}

describe("an old backup", () => {
  it("halts at the start; it continues after each transaction is adopted, and nobody is paid twice", async () => {
    const { ctx } = rig.service
    const shop = await rig.sell([50, 50])
    const first = (await operator.wallet()).next_nonce
    const got = await gains(async () => {
      await rig.paid(shop, 1_000_000n)
      await rig.paid(shop, 600_000n)
      const restore = await backUp(ctx)
      await rig.round()
      await mine()
      await rig.round()
      expect(new Set(await rig.states())).toEqual(new Set(["final"]))
      const hashes = await inExplorer(first)
      await restore()
      // The service starts on the restored database.
      await checkWallet(ctx, payoutLane(rig.network, rig.signer))
      expect(await operator.wallet()).toMatchObject({ status: "halted", next_nonce: first })
      await rig.round()
      expect(new Set(await rig.states())).toEqual(new Set(["queued"]))
      await expectRefused(resume(), new RegExp(`adopt HASH.* nonce ${first}, ${first + 1n}, `))
      // In reverse order: any order works.
      for (const hash of hashes.toReversed()) {
        await expectRefused(resume(), /adopt HASH/)
        const { status, body } = await adopt(hash)
        expect([status, body.said]).toEqual([200, expect.stringContaining("pays the payout")])
      }
      expect((await operator.wallet()).next_nonce).toBe(first + 4n)
      expect((await operator.actions()).map(row => row.action)).toEqual(["adopt", "adopt", "adopt", "adopt"])
      await expectRefused(adopt(hashes[0]), /is already known/)
      // On a restored database merchants continue to sell.
      await rig.paid(shop, 1_000_000n)
      expect((await resume()).status).toBe(200)
      await expectRefused(resume(), /is not halted/)
      await payAll()
    })
    expect(got).toEqual([1_300_000n, 1_300_000n])
    expect(new Set(await rig.states())).toEqual(new Set(["final"]))
    expect(await operator.wallet()).toMatchObject({ status: "active", next_nonce: await count() })
    expect(await rig.balanceOf(shop.deposit.address)).toBe(0n)
  })

  it("halts the relay wallet too; a relay is adopted as it was, and no book counts it", async () => {
    const { ctx } = rig.service
    const on = relaysOn(rig)
    await on.begin()
    const session = await on.start()
    expect((await on.submit(session, await on.sign(await on.buyer(), session))).status).toBe(200)
    const restore = await backUp(ctx)
    await on.round()
    await mine()
    await on.round()
    const [{ tx_hash: hash = null } = {}] = await on.relays()
    await restore()
    await checkWallet(ctx, relayLane(rig.network, rig.relayer))
    const refused = await on.submit(session, await on.sign(await on.buyer(), session))
    expect(refused.status).toBe(409)
    const { status, body } = await adopt(hash ?? "")
    expect([status, body.said]).toEqual([200, expect.stringContaining("pays the payout")])
    expect(await on.relays()).toMatchObject([{ state: "assigned", reserved: false }])
    const resumed = await operator.ask("/resume", { wallet: "relay", reason: "mended" })
    expect([resumed.status, JSON.stringify(resumed.body)]).toEqual([200, expect.anything()])
    await on.round()
    await on.look()
    expect((await on.relays()).map(row => row.state)).toEqual(["final"])
    expect((await on.status(session.id)).status).toBe("confirmed")
    expect(await on.received(session.payTo)).toEqual([5_000_000n])
    const books = await ctx.db.selectFrom("deposit_books").select("shortfall").execute()
    expect(books.map(book => book.shortfall)).toEqual([0n])
  })

  it("that was compared with the chain at once: what is adopted after that, in any order, is in the books once", async () => {
    const { ctx } = rig.service
    const reconcile = async () => {
      await ctx.db.deleteFrom("reconciliations").execute()
      await reconcileRound(ctx, rig.network, rig.signer.address)
    }
    const shop = await rig.sell([50, 50])
    const first = (await operator.wallet()).next_nonce
    await rig.paid(shop, 1_000_000n)
    const restore = await backUp(ctx)
    await rig.round()
    await mine()
    await rig.round()
    const hashes = await inExplorer(first)
    expect(hashes.length).toBe(2)
    await restore()
    await ctx.db.updateTable("transfers").set({ state: "final" }).execute()
    await checkWallet(ctx, payoutLane(rig.network, rig.signer))
    await reconcile()
    const outflows = () => ctx.db.selectFrom("outflows").select(["reason", "amount"]).execute()
    expect((await outflows()).map(({ reason }) => reason)).toEqual(["unknown", "unknown"])
    await reconcile()
    for (const hash of hashes.toReversed()) {
      expect((await adopt(hash)).status).toBe(200)
      expect(await checkConsistency(ctx, rig.network.chainId)).toEqual([])
    }
    expect(await outflows()).toEqual([])
    expect((await resume()).status).toBe(200)
    await rig.round()
    await reconcile()
    expect(new Set(await rig.states())).toEqual(new Set(["final"]))
    expect(await operator.wallet()).toMatchObject({ status: "active" })
    const { balanced_number } = await ctx.db.selectFrom("deposits").select("balanced_number").executeTakeFirstOrThrow()
    const { number } = await rig.anvil.client.getBlock({ blockTag: "finalized" })
    expect(balanced_number).toBe(number)
  })

  it.each([
    ["left the scan", false],
    ["been put away", true],
  ])("from when its address had %s: what came and was paid out since is found by the payout", async (_when, isAway) => {
    const { ctx } = rig.service
    await ensureCursor(ctx, rig.network)
    const { body: session } = await rig.service.call("POST", "/api/console/checkouts", { amount: 5 }, { as: "shop" })
    const { id } = session
    await verifyNow()
    const long = new Date(ctx.now().getTime() - 60 * DAY_MS)
    await sql`update checkout_sessions set status = 'expired', expires_at = ${long}, run_at = null`.execute(ctx.db)
    await sql`update deposits set watched = false, watched_until = ${long}, dormant_since = ${long}, check_at = ${long},
      watched_number = (select block_number from cursors)`.execute(ctx.db)
    const ids = (await ctx.db.selectFrom("deposits").select("id").execute()).map(row => row.id)
    if (isAway) expect(await putAway(ctx, ids, { links: [], merchants: [] })).toBe(1)
    const restore = await backUp(ctx)
    const first = (await operator.wallet()).next_nonce
    await rig.mint(session.payTo, 5_000_000n)
    await rig.service.call("GET", `/pay/${id}`)
    for (let i = 0; i < 3; i++) await verifyNow()
    const [{ id: paymentId = "" } = {}] = await ctx.db.selectFrom("payments").select("id").execute()
    const accept = `/api/console/payments/${paymentId}/accept`
    expect((await rig.service.call("POST", accept, {}, { as: "shop" })).status).toBe(200)
    await sweep()
    expect(await rig.balanceOf(session.payTo)).toBe(0n)
    const [hash] = await inExplorer(first)
    await restore()
    await checkWallet(ctx, payoutLane(rig.network, rig.signer))
    await expectRefused(adopt(hash), /does not pay any waiting payout/)
    for (let i = 0; i < 3; i++) await verifyNow()
    const found = await ctx.db.selectFrom("payments").select(["status", "exception", "amount"]).execute()
    expect(found).toEqual([{ status: "open", exception: "late", amount: 5_000_000n }])
  })

  it.each([
    ["after the approval, restored before any comparison", true, false],
    ["after the approval, compared with the chain first", true, true],
    ["before the approval, compared with the chain first", false, true],
  ])("made %s: what the wallet approved went back once", async (_when, isApproved, isCompared) => {
    const { ctx } = rig.service
    const as = { as: "shop" }
    expect((await rig.service.call("PUT", "/api/console/settings", { approver: "wallet" }, as)).status).toBe(200)
    const shop = await rig.sell()
    const id = await rig.paid(shop, 200_000n)
    const first = (await operator.wallet()).next_nonce
    const giveBack = (more: object = {}) =>
      rig.service.call("POST", `/api/console/payments/${id}/return`, { address: recipient(0), ...more }, as)
    let restore = await backUp(ctx)
    const [gained] = await gains(async () => {
      const { types, ...asked } = (await giveBack()).body.details[0].typedData
      const { EIP712Domain: _, ...own } = types
      const signature = await rig.anvil.accounts[9].signTypedData({ ...asked, types: own })
      const approval = { deadline: Number.parseInt(asked.message.deadline, 10), signature }
      expect((await giveBack({ approval })).status).toBe(200)
      if (isApproved) restore = await backUp(ctx)
      await rig.round()
      await mine()
      await rig.round()
      const [hash] = await inExplorer(first)
      await restore()
      if (isCompared) {
        await ctx.db.updateTable("wallets").set({ checked_number: 0n }).execute()
        await rig.compareLogs()
        expect(await rig.payouts()).toMatchObject([{ state: "final", nonce: null, tx_hash: hash }])
      }
      await checkWallet(ctx, payoutLane(rig.network, rig.signer))
      expect(await operator.wallet()).toMatchObject({ status: "halted", next_nonce: first })
      if (isApproved) expect((await adopt(hash)).body.said).toContain("pays the payout")
      else expect((await adopt(hash, { foreign: true, reason: "a return" })).body.said).toContain("is explained")
      expect((await resume()).status).toBe(200)
      await payAll()
    })
    expect(gained).toBe(200_000n)
    expect(await rig.payouts()).toMatchObject([{ kind: "return", state: "final", nonce: isApproved ? first : null }])
    expect(await operator.wallet()).toMatchObject({ status: "active", next_nonce: await count() })
    const { body } = await rig.service.call("GET", `/api/console/books?deposit=${shop.deposit.address}`, undefined, as)
    expect(body.data.map((row: { reason: string }) => row.reason)).toEqual(["return", "payment"])
    expect(await checkConsistency(ctx, rig.network.chainId)).toEqual([])
    await rig.compareLogs()
    expect(await operator.wallet()).toMatchObject({ status: "active" })
  })

  it("is adopted by one command, including what was planned again since: several shares that pay the same", async () => {
    const { ctx } = rig.service
    const shop = await rig.sell([50, 50])
    const got = await gains(async () => {
      const payments = [await rig.paid(shop, 1_000_000n), await rig.paid(shop, 1_000_000n)]
      const restore = await backUp(ctx)
      await rig.round()
      await mine()
      await rig.round()
      await restore()
      // The backup was made before the plan, which is created again with other ids.
      await ctx.db.deleteFrom("payouts").execute()
      await sql`update deposit_books set committed = 0`.execute(ctx.db)
      await checkWallet(ctx, payoutLane(rig.network, rig.signer))
      const adoptAll = async () => (await operator.ask("/adopt-all", { wallet: "payout" })).body.said
      expect(await adoptAll()).toMatch(
        /^0 transactions were adopted[\s\S]*does not pay any waiting payout[\s\S]*run this command again/,
      )
      for (const id of payments) await makePayouts(ctx, id)
      expect(await adoptAll()).toMatch(/^4 transactions were adopted[\s\S]*sluice wallet resume/)
      expect((await resume()).status).toBe(200)
      await payAll()
    })
    expect(got).toEqual([1_000_000n, 1_000_000n])
    expect(new Set(await rig.states())).toEqual(new Set(["final"]))
    await expectRefused(operator.ask("/adopt-all", { wallet: "payout" }), /while their wallet is halted/)
  })

  it("is adopted in parts where nodes have only logs: what was sent first may be planned again last", async () => {
    const { ctx } = rig.service
    const shop = await rig.sell([50, 50])
    const got = await gains(async () => {
      const first = await rig.paid(shop, 1_000_000n)
      const second = await rig.paid(shop, 2_000_000n)
      const restore = await backUp(ctx)
      const setDue = (id: string, run_at: Date) =>
        ctx.db.updateTable("payouts").set({ run_at }).where("payment_id", "=", id).execute()
      await setDue(second, new Date(ctx.now().getTime() + DAY_MS))
      await rig.round()
      await mine()
      await setDue(second, ctx.now())
      await rig.round()
      await mine()
      await rig.round()
      await restore()
      await ctx.db.deleteFrom("payouts").execute()
      await sql`update deposit_books set committed = 0`.execute(ctx.db)
      await checkWallet(ctx, payoutLane(rig.network, rig.signer))
      const finalized = (await rig.anvil.client.getBlock({ blockTag: "finalized" })).number
      rig.proxy.spoil = (method, [, block], result) =>
        method === "eth_getTransactionCount" && String(block).startsWith("0x") && BigInt(String(block)) < finalized
          ? failed("missing trie node")
          : result
      const adoptAll = async () => (await operator.ask("/adopt-all", { wallet: "payout" })).body.said
      await makePayouts(ctx, second)
      expect(await adoptAll()).toMatch(/^2 transactions were adopted/)
      // The engine finds the blocks of what was adopted.
      await rig.round()
      await makePayouts(ctx, first)
      expect(await adoptAll()).toMatch(/^2 transactions were adopted[\s\S]*sluice wallet resume/)
      expect((await resume()).status).toBe(200)
      await payAll()
    })
    expect(got).toEqual([1_500_000n, 1_500_000n])
    expect(new Set(await rig.states())).toEqual(new Set(["final"]))
  })

  it("of some seconds ago: what was sent since waits in the pool, and nothing is signed in its place", async () => {
    const { ctx } = rig.service
    const shop = await rig.sell([50, 50])
    const first = (await operator.wallet()).next_nonce
    const got = await gains(async () => {
      await rig.paid(shop, 1_000_000n)
      await rig.anvil.client.setAutomine(false)
      const restore = await backUp(ctx)
      await rig.round()
      expect(await rig.states()).toEqual(["assigned", "assigned"])
      await restore()
      // The first payout is now second: at the other's nonce it would be paid again.
      await ctx.db
        .updateTable("payouts")
        .set({ run_at: new Date(ctx.now().getTime() + 5_000), created_at: new Date(ctx.now().getTime() + 5_000) })
        .where("share", "=", 0)
        .execute()
      await rig.round()
      expect(await rig.states()).toEqual(["queued", "queued"])
      expect(await operator.attempts()).toEqual([])
      expect((await operator.ask("/halt", { wallet: "payout", reason: "look" })).status).toBe(200)
      await expectRefused(resume(), /Including transactions that wait to be mined, the wallet has/)
      await mine()
      for (const hash of await inExplorer(first)) expect((await adopt(hash)).status).toBe(200)
      expect((await resume()).status).toBe(200)
      await rig.anvil.client.setAutomine(true)
      await payAll()
    })
    expect(got).toEqual([500_000n, 500_000n])
    expect(new Set(await rig.states())).toEqual(new Set(["final"]))
  })

  it("from before the payouts were planned: they are found by what they pay, and named where several pay the same", async () => {
    const { ctx } = rig.service
    const shop = await rig.sell([50, 50])
    const first = (await operator.wallet()).next_nonce
    const got = await gains(async () => {
      const payments = [await rig.paid(shop, 1_000_000n), await rig.paid(shop, 1_000_000n)]
      const restore = await backUp(ctx)
      await rig.round()
      await mine()
      await rig.round()
      const hashes = await inExplorer(first)
      await restore()
      // The plan is made again, with other ids.
      await ctx.db.deleteFrom("payouts").execute()
      await sql`update deposit_books set committed = 0`.execute(ctx.db)
      for (const id of payments) await makePayouts(ctx, id)
      await checkWallet(ctx, payoutLane(rig.network, rig.signer))
      await expectRefused(adopt(hashes[0]), /matches several payouts .*--payout/)
      await expectRefused(adopt(hashes[0], { foreign: true, reason: "unknown" }), /not foreign: .* paid twice/)
      // The recipients are paid in this order.
      for (const [i, hash] of hashes.entries()) {
        const waiting = (await rig.payouts()).filter(row => row.state === "queued")
        const wrong = waiting.find(row => row.recipient !== recipient(i % 2))
        if (wrong) await expectRefused(adopt(hash, { payout: wrong.id }), /does not make the payment of the payout/)
        const right = waiting.find(row => row.recipient === recipient(i % 2))
        expect((await adopt(hash, { payout: right?.id })).status).toBe(200)
      }
      expect((await resume()).status).toBe(200)
      await payAll()
    })
    expect(got).toEqual([1_000_000n, 1_000_000n])
    expect(new Set(await rig.states())).toEqual(new Set(["final"]))
  })

  it("from before the wallet's first payout: it continues only when an operator confirms that the rest paid nothing here", async () => {
    const { ctx } = rig.service
    const shop = await rig.sell([50, 50])
    const first = (await operator.wallet()).next_nonce
    const got = await gains(async () => {
      await rig.paid(shop, 1_000_000n)
      const restore = await backUp(ctx)
      await rig.round()
      await mine()
      const hashes = await inExplorer(first)
      await restore()
      await ctx.db.deleteFrom("wallets").execute()
      await checkWallet(ctx, payoutLane(rig.network, rig.signer))
      expect((await operator.wallet()).halted_reason).toContain("backup")
      await expectRefused(resume(), /before this database knew the wallet.*--nothing-paid/)
      for (const hash of hashes) expect((await adopt(hash)).status).toBe(200)
      // What the wallet sent before that is not known either, and no program can find it out.
      await expectRefused(resume(), /--nothing-paid/)
      expect((await resume({ nothingPaid: true })).status).toBe(200)
      await payAll()
    })
    expect(got).toEqual([500_000n, 500_000n])
    expect((await operator.wallet()).next_nonce).toBe(await count())
    expect((await operator.actions()).at(-1)?.after).toMatchObject({ nothing_paid: true })
  })

  it("that lacks the attempt which was mined: it is adopted as one more of the same nonce", async () => {
    const { ctx } = rig.service
    const { client } = rig.anvil
    const shop = await rig.sell([50, 50])
    const first = (await operator.wallet()).next_nonce
    const got = await gains(async () => {
      await rig.paid(shop, 1_000_000n)
      await client.setAutomine(false)
      await rig.round()
      const restore = await backUp(ctx)
      await rig.round(rig.signer, { resendMs: 0, replaceMs: 0 })
      expect((await operator.attempts()).map(each => each.n)).toEqual([0, 0, 1])
      await client.mine({ blocks: 1 })
      await client.setAutomine(true)
      await mine()
      const [hash] = await inExplorer(first)
      await restore()
      await rig.round()
      rig.service.advance(31_000)
      await rig.round()
      expect((await operator.wallet()).status).toBe("halted")
      await expectRefused(
        resume(),
        /The nonce \d+ of the payout .* was used by a transaction that this database does not/,
      )
      await expectRefused(adopt(hash, { foreign: true, reason: "unknown" }), /not foreign/)
      expect((await adopt(hash)).status).toBe(200)
      expect((await operator.attempts()).map(each => [each.n, each.empty])).toContainEqual([1, false])
      expect((await resume()).status).toBe(200)
      await payAll()
    })
    expect(got).toEqual([500_000n, 500_000n])
    expect(await rig.states()).toEqual(["final", "final"])
  })
})

describe("a foreign transaction", () => {
  it("at a payout's nonce is recorded as foreign; the payout is created again, and paid once", async () => {
    const { client } = rig.anvil
    const shop = await rig.sell([50, 50])
    const first = (await operator.wallet()).next_nonce
    const got = await gains(async () => {
      await rig.paid(shop, 1_000_000n)
      rig.proxy.spoil = (method, _params, result) => (method === "eth_sendRawTransaction" ? null : result)
      await client.setAutomine(false)
      await rig.round()
      await client.dropAllTransactions()
      await client.setAutomine(true)
      rig.proxy.spoil = (_method, _params, result) => result
      const hash = await operator.sendElsewhere(first)
      await expectRefused(adopt(hash), /which is not final/)
      await mine()
      await expectRefused(adopt(hash), /while its wallet is halted/)
      await rig.round()
      rig.service.advance(31_000)
      await rig.round()
      expect((await operator.wallet()).status).toBe("halted")
      await expectRefused(resume(), /was used by a transaction that this database does not know/)
      await expectRefused(adopt(hash), /does not pay any waiting payout/)
      const { body } = await adopt(hash, { foreign: true })
      expect(body).toMatchObject({ error: "VALIDATION_ERROR", details: [{ path: "reason" }] })
      expect((await adopt(hash, { foreign: true, reason: "tried the key by hand" })).status).toBe(200)
      await expectRefused(adopt(hash, { foreign: true, reason: "again" }), /already explained/)
      expect((await resume()).status).toBe(200)
      await payAll()
      const reverted = (await rig.payouts()).filter(row => row.state === "reverted")
      expect(reverted).toMatchObject([{ nonce: first, tx_hash: hash, succeeded: false }])
    })
    expect(got).toEqual([500_000n, 500_000n])
    expect((await rig.states()).sort()).toEqual(["final", "final", "reverted"])
    expect(await operator.wallet()).toMatchObject({ status: "active", next_nonce: await count() })
  })

  it("above all that was signed is skipped, and leaves no gap", async () => {
    const shop = await rig.sell([50, 50])
    const first = (await operator.wallet()).next_nonce
    const hash = await operator.sendElsewhere(first)
    await mine()
    await checkWallet(rig.service.ctx, payoutLane(rig.network, rig.signer))
    expect((await adopt(hash, { foreign: true, reason: "gas sent back" })).body.said).toContain(`${first + 1n}`)
    expect((await resume()).status).toBe(200)
    expect(
      await gains(async () => {
        await rig.paid(shop, 1_000_000n)
        await payAll()
      }),
    ).toEqual([500_000n, 500_000n])
    expect(await operator.actions()).toMatchObject([{ action: "adopt foreign", reason: "gas sent back" }, {}])
  })

  it("that pays a waiting payout, at another payout's nonce, is refused until the paid one is cancelled", async () => {
    const { ctx } = rig.service
    const { client } = rig.anvil
    const shop = await rig.sell([50, 50])
    const first = (await operator.wallet()).next_nonce
    const got = await gains(async () => {
      // Two services on copies of one database: the other one paid, with the nonce that this one gave to another
      // payout.
      await rig.paid(shop, 1_000_000n)
      rig.proxy.spoil = (method, _params, result) => (method === "eth_sendRawTransaction" ? null : result)
      await client.setAutomine(false)
      await rig.round()
      await client.dropAllTransactions()
      await client.setAutomine(true)
      rig.proxy.spoil = (_method, _params, result) => result
      await rig.paid(shop, 600_000n)
      const paidElsewhere = (await rig.payouts()).find(row => row.state === "queued" && row.recipient === recipient(0))
      const call = { to: paidElsewhere?.to_address ?? "0x", data: paidElsewhere?.data ?? "0x" } as const
      const hash = await operator.sendElsewhere(first, call)
      await mine()
      await operator.ask("/halt", { wallet: "payout", reason: "two services" })
      await expectRefused(adopt(hash), /The nonce \d+ belongs to the payout .*cancel/)
      await expectRefused(adopt(hash, { foreign: true, reason: "two services" }), /paid twice.*cancel/)
      await operator.ask("/cancel", { payout: paidElsewhere?.id, reason: "paid by the other service" })
      expect((await adopt(hash, { foreign: true, reason: "two services" })).status).toBe(200)
      expect((await resume({ booksCompared: true })).status).toBe(200)
      await payAll()
    })
    expect(got).toEqual([800_000n, 800_000n])
    expect((await operator.wallet()).checked_number).not.toBeNull()
    expect((await rig.states()).sort()).toEqual(["cancelled", "final", "final", "final", "reverted"])
    expect(ctx.settings.payoutWallet).toBe(rig.signer.address)
  })
})

describe("a payout wallet whose key somebody else uses", () => {
  const post = async (url: string, body: object, options: object) => {
    const { status, headers, body: reported } = await rig.service.call("POST", url, body, options)
    return [status, reported.error, headers["retry-after"], reported.message] as const
  }
  const rows = async () => {
    const { rows: counted } =
      await sql`select (select count(*) from deposits) as deposits, (select count(*) from checkout_sessions)
      as sessions, (select count(*) from paywalls) as paywalls, (select count(*) from payouts) as payouts`.execute(
        rig.service.ctx.db,
      )
    return counted[0]
  }

  it("sells nothing and shows no address until it is resumed; money that arrives anyway is counted", async () => {
    const { service } = rig
    const on = relaysOn(rig)
    await on.begin()
    const merchant = { as: "shop" }
    const { key } = (await service.call("POST", "/api/console/api-keys", { name: "server" }, merchant)).body
    const byKey = { headers: { "x-api-key": key } }
    const link = { slug: "spring-sale", title: "Spring sale", amount: 5 }
    expect((await service.call("POST", "/api/console/payment-links", link, merchant)).status).toBe(201)
    const shop = await rig.sell()
    const queued = await on.start()
    const session = await on.start()
    expect((await on.submit(queued, await on.sign(await on.buyer(), queued))).status).toBe(200)
    const paywall = () => service.call("GET", `/api/paywalls/${shop.id}`)
    const offered = [(await paywall()).body.payTo, (await on.status(session.id)).payTo]

    const hash = await operator.sendElsewhere(await count())
    await mine()
    await rig.paid(shop, 600_000n)
    await rig.round()
    const before = await rows()
    const forMerchant = [503, "PAYMENTS_PAUSED", "60", expect.stringContaining("Ask the operator")]
    const forPublic = [503, "PAYMENTS_PAUSED", "60", expect.stringContaining("Payments on this network are paused")]
    expect(await post("/api/console/checkouts", { amount: 5 }, merchant)).toEqual(forMerchant)
    expect(await post("/api/checkouts", { amount: 5 }, byKey)).toEqual(forMerchant)
    expect(await post("/api/checkouts", { slug: link.slug }, byKey)).toEqual(forMerchant)
    expect(await post("/api/console/paywalls", { name: "a", price: 1 }, merchant)).toEqual(forMerchant)
    expect(await post("/api/pay/sessions", { slug: link.slug }, {})).toEqual(forPublic)
    const signed = bodyOf(session.id, await on.sign(await on.buyer(), session))
    expect(await post("/api/pay/authorize", signed, {})).toEqual(forPublic)
    expect(await rows()).toEqual(before)

    // A relay that was accepted before is not carried out.
    await on.round()
    expect(await on.relays()).toMatchObject([
      { state: "cancelled", held_detail: "Payments on this network are paused." },
    ])
    const shown = [(await paywall()).body, await on.status(session.id)]
    expect(shown).toMatchObject([
      { paused: true, active: true },
      { paused: true, status: "pending" },
    ])
    expect(shown.map(each => each.payTo)).toEqual([undefined, undefined])
    expect(shown[1].message).toContain("Payments on this network are paused")

    // Money sent to an address that was shown before is found and counts.
    await rig.mint(session.payTo, 5_000_000n)
    await mine()
    await on.look()
    expect(await on.status(session.id)).toMatchObject({ status: "confirmed", paused: true })
    expect((await service.call("GET", "/readyz")).body.alarms).toContainEqual(
      expect.stringContaining("nothing can be sold on this network"),
    )

    expect((await adopt(hash, { foreign: true, reason: "tried the key by hand" })).status).toBe(200)
    expect((await resume()).status).toBe(200)
    expect((await post("/api/pay/sessions", { slug: link.slug }, {}))[0]).toBe(201)
    const resumed = [(await paywall()).body, await on.status(session.id)]
    expect(resumed.map(each => [each.paused, each.payTo])).toEqual(offered.map(payTo => [false, payTo]))
  })

  it("pauses only the addresses of its own factory where another wallet has taken over", async () => {
    const { ctx } = rig.service
    const shop = await rig.sell()
    const old = { ...rig.signer, address: recipient(8) }
    await checkWallet(ctx, payoutLane(rig.network, old))
    await sql`update wallets set status = 'halted', halted_reason = 'stolen' where address = ${old.address}`.execute(
      ctx.db,
    )
    ctx.settings.serviceWallets = [rig.signer.address, rig.relayer.address]
    const paused = async () => (await rig.service.call("GET", `/api/paywalls/${shop.id}`)).body.paused
    expect(await paused()).toBe(false)
    await sql`update deposits set factory = ${recipient(9)}`.execute(ctx.db)
    expect(await paused()).toBe(true)
    ctx.settings.serviceWallets = []
  })
})

describe("what is adopted", () => {
  it("must be signed by a wallet of ours, and be on the chain according to two endpoints", async () => {
    const first = (await operator.wallet()).next_nonce
    await operator.ask("/halt", { wallet: rig.signer.address, reason: "a look" })
    const { transactions } = await rig.anvil.client.getBlock({ blockNumber: 1n })
    await expectRefused(
      adopt(transactions[0], { foreign: true, reason: "x" }),
      /signed by .* not a wallet of this service/,
    )
    await expectRefused(adopt(`0x${"5".repeat(64)}`), /No endpoint of these networks knows/)
    const hash = await operator.sendElsewhere(first)
    await mine()
    // The answer is another transaction, or was changed in transit.
    for (const lie of [(reported: object) => ({ ...reported, nonce: "0x1" }), () => null, () => "0x"]) {
      rig.proxy.spoil = (method, _params, result) =>
        method === "eth_getTransactionByHash" ? lie(result as object) : result
      await expectRefused(adopt(hash, { foreign: true, reason: "x" }), /No endpoint of these networks knows/)
    }
    rig.proxy.spoil = (_method, _params, result) => result
    const lagging = await startProxy(rig.anvil.rpcUrl)
    lagging.spoil = (method, _params, result) => (method === "eth_getTransactionReceipt" ? null : result)
    const { endpoints } = rig.network
    Object.assign(rig.network, { endpoints: [...endpoints, newEndpoint(rig.network.name, lagging.url)] })
    try {
      await expectRefused(
        adopt(hash, { foreign: true, reason: "x" }),
        /endpoints do not agree that the transaction is in a block/,
      )
    } finally {
      Object.assign(rig.network, { endpoints })
      await lagging.stop()
    }
    expect((await adopt(hash, { foreign: true, reason: "x" })).status).toBe(200)
  })
})

describe("calls of an escrow that an older copy of the database lost", () => {
  let on: Escrows
  let buys: ReturnType<typeof reservesOn>
  beforeAll(async () => {
    on = await escrowsOn(rig)
    buys = reservesOn(rig, on.escrow)
  })
  beforeEach(() => on.begin())

  const hashesOf = async () => {
    const sent = await rig.service.ctx.db.selectFrom("transaction_attempts").select("hash").orderBy("nonce").execute()
    return sent.flatMap(({ hash }) => hash ?? [])
  }
  /** The service starts on the copy. */
  const startOn = async (restore: () => Promise<void>) => {
    await mine()
    await restore()
    await checkWallet(rig.service.ctx, relayLane(rig.network, rig.relayer))
    await on.look()
  }
  const relayWallet = () =>
    rig.service.ctx.db.selectFrom("wallets").selectAll().where("lane", "=", "relay").executeTakeFirstOrThrow()
  /** After the adoption the wallet continues, and the comparison with the chain finds nothing. */
  const goesOn = async () => {
    const resumed = await operator.ask("/resume", { wallet: "relay", reason: "restored" })
    expect([resumed.status, resumed.body.message]).toEqual([200, undefined])
    await on.settle()
    await rig.service.ctx.db.deleteFrom("reconciliations").execute()
    await reconcileRound(rig.service.ctx, rig.network, rig.signer.address)
    expect(await relayWallet()).toMatchObject({ status: "active", halted_reason: null })
  }

  it("are written again: a reservation, a capture, its refund, and the void of the rest, each of them once", async () => {
    const id = await buys.start()
    const buyer = await buys.buyer()
    const payer = buyer.address.toLowerCase() as Address
    const signed = await buys.sign(buyer, id)
    const restore = await backUp(rig.service.ctx)
    expect((await buys.submit(id, signed)).status).toBe(200)
    await on.settle()
    expect((await buys.capture(id, "2.00")).status).toBe(200)
    await on.settle()
    await on.allow(500_000n)
    const refund = { sessionId: id, amount: "0.50" }
    expect((await rig.service.call("POST", "/api/console/payments/refund", refund, { as: "shop" })).status).toBe(201)
    await on.settle()
    expect((await buys.void(id)).status).toBe(200)
    await on.settle()
    const before = await buys.session(id)
    expect(before).toMatchObject({ escrow: { captured: "2.00", released: "3.00", refunded: "0.50" } })
    const hashes = await hashesOf()
    await startOn(restore)
    expect((await relayWallet()).status).toBe("halted")
    expect((await buys.status(id)).status).toBe("pending")
    for (const hash of hashes)
      await expectRefused(
        adopt(hash, { foreign: true, reason: "x" }),
        new RegExp(`of the checkout ${id}.*without --foreign`),
      )
    await expectRefused(adopt(hashes[1]), /First adopt the transaction that reserved its payment/)
    const { body } = await operator.ask("/adopt-all", { wallet: "relay" })
    expect(body.said).toContain("4 transactions were adopted")
    expect((await buys.status(id)).status).toBe("verifying")
    await goesOn()
    const { escrow, status } = await buys.session(id)
    expect({ escrow, status }).toEqual({ escrow: before.escrow, status: before.status })
    expect([await rig.balanceOf(on.merchant), await rig.balanceOf(payer), await on.held()]).toEqual([
      1_500_000n,
      3_500_000n,
      0n,
    ])
    expect((await buys.capture(id, "2.00")).body.message).toContain("None of the money reserved")
  })

  it("are written again beside what was planned since, and one that was cancelled since is not in the way", async () => {
    const id = await buys.start()
    const buyer = await buys.buyer()
    expect((await buys.submit(id, await buys.sign(buyer, id))).status).toBe(200)
    // The copy contains the reservation, not yet sent.
    const restore = await backUp(rig.service.ctx)
    await on.settle()
    expect((await buys.capture(id, "2.00")).status).toBe(200)
    await on.settle()
    const hashes = await hashesOf()
    await startOn(restore)
    // While the wallet was halted, the time in which it must be signed ended.
    await rig.service.ctx.db.updateTable("payouts").set({ state: "cancelled" }).where("kind", "=", "reserve").execute()
    await on.look()
    for (const hash of hashes) expect((await adopt(hash)).body.said).toContain("pays the payout")
    await goesOn()
    expect(await buys.session(id)).toMatchObject({
      status: "confirmed",
      escrow: { captured: "2.00", capturable: "3.00" },
    })
    expect((await buys.calls("reserve")).map(({ state }) => state)).toEqual(["cancelled", "final"])
    expect((await buys.capture(id)).status).toBe(200)
    const payout = (await buys.calls("capture")).at(-1)?.id
    const { body } = await operator.ask("/cancel", { payout, reason: "asked by the merchant" })
    expect(body.said).toContain("The reserved money stays in the escrow. The merchant can capture it again")
  })

  it("of a checkout that the copy does not have are foreign, and the operator gets what its payer needs", async () => {
    const restore = await backUp(rig.service.ctx)
    const { id, buyer } = await on.paid("5.00", "manual")
    const { authorization_expiry: expiry } = await buys.rowOf(id)
    const [hash] = await hashesOf()
    await startOn(restore)
    await expectRefused(adopt(hash), /a checkout that is not in this database.*--foreign/)
    const { body } = await adopt(hash, { foreign: true, reason: "restored" })
    const [, data] = body.said.match(/with the data (0x[0-9a-f]+)/) ?? []
    expect(body.said).toContain(expiry.toISOString())
    await goesOn()
    await on.advance(expiry.getTime() - rig.service.ctx.now().getTime() + 1_000)
    await on.sendAs(buyer, { to: on.escrow.address, data })
    expect(await rig.balanceOf(buyer)).toBe(5_000_000n)
  })
})

describe("a halt by the books", () => {
  it("happens again after a resume, unless the operator has compared them", async () => {
    const { client } = rig.anvil
    const shop = await rig.sell([50, 50])
    await rig.paid(shop, 1_000_000n)
    await payAll()
    // The deposit's money is taken without the factory: the comparison sees a transfer without a payout.
    const first = (await operator.wallet()).next_nonce
    await rig.paid(shop, 1_000_000n)
    const [stolen] = (await rig.payouts()).filter(row => row.state === "queued")
    await operator.ask("/halt", { wallet: "payout", reason: "the key is used elsewhere" })
    const hash = await operator.sendElsewhere(first, { to: stolen?.to_address ?? "0x", data: stolen?.data ?? "0x" })
    await client.mine({ blocks: 3 })
    await operator.ask("/cancel", { payout: stolen?.id, reason: "paid by hand" })
    await adopt(hash, { foreign: true, reason: "paid by hand" })
    expect((await resume()).body.said).toContain("the wallet is halted again if they still don't match")
    await rig.compareLogs()
    expect(await operator.wallet()).toMatchObject({
      status: "halted",
      halted_reason: expect.stringContaining("left a deposit without a payout"),
    })
    expect((await resume({ booksCompared: true })).body.said).toMatch(/compared from block \d+ on/)
    await payAll()
    await rig.compareLogs()
    expect((await operator.wallet()).status).toBe("active")
    const [row] = (await operator.actions()).slice(-1)
    expect(row).toMatchObject({ action: "resume", before: { status: "halted" }, after: { status: "active" } })
  })
})
