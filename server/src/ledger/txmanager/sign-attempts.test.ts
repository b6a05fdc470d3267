// The second step of a payout, its signature, by a signer that is another machine: it may be slow, be down, die, answer differently each
// time, or not be what it should be. Whatever it does, each payout is paid once, nothing else is sent, and nobody waits without an alarm.
import { sql } from "kysely"
import { type Hex, keccak256, parseTransaction, toHex } from "viem"
import { mnemonicToAccount } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { until } from "../../../test/e2e/program.ts"
import { escrowsOn } from "../../../test/escrow.ts"
import { type Operator, openOperator } from "../../../test/operator.ts"
import { type PayoutRig, recipient, startPayoutRig } from "../../../test/payouts.ts"
import { type RemoteSigners, type SignerFault, startRemoteSigners } from "../../../test/remote-signers.ts"
import { waitingAlarms } from "../../operations/doctor/waiting-alarms.ts"
import type { Hash } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { type Signer, SignerError, unsignedHash } from "../../platform/chain/signer.ts"
import { remoteSigner } from "../../platform/chain/signers/remote-signer.ts"
import { readWalletState } from "../../platform/chain/wallet-state.ts"
import { openLog } from "../../platform/log.ts"
import { registry } from "../../platform/metrics.ts"
import { payoutLane } from "../payouts/payout-lane.ts"
import { reconcileRound } from "../reconciliation/reconcile.ts"
import { assignPayouts } from "./assign-nonces.ts"
import { checkWallet } from "./lock-wallet.ts"
import { alarmMessages } from "./report-alarms.ts"
import { signAttempts } from "./sign-attempts.ts"
import { transactionOf } from "./unsigned-attempt.ts"

/** The key of the payout wallet, or with 2 of the relay wallet. */
const keyOfRig = (addressIndex = 1): Hex => {
  const { privateKey } = mnemonicToAccount("test test test test test test test test test test test junk", {
    addressIndex,
  }).getHdKey()
  return toHex(privateKey ?? new Uint8Array())
}

let rig: PayoutRig
let operator: Operator
let signers: RemoteSigners
let lines: { level: string; msg: string; reason?: string }[]
/** Hashes of what any node was given. */
let sent: Set<Hex>
/** A signer as of a process that has just started: it knows no earlier failure. */
const fresh = (): Signer => remoteSigner(signers.keyOf("web3signer"), rig.signer.address, { timeoutMs: 5_000 })
const attempts = () =>
  rig.service.ctx.db.selectFrom("transaction_attempts").selectAll().orderBy("nonce").orderBy("n").execute()
const wallet = () => rig.service.ctx.db.selectFrom("wallets").selectAll().executeTakeFirstOrThrow()
const state = () => readWalletState(rig.network, rig.signer.address, rig.service.ctx.signal)
const errors = () => lines.filter(({ level }) => level === "error").map(({ msg }) => msg)
const mine = (blocks = 3) => rig.anvil.client.mine({ blocks })
const AT_ONCE = { resendMs: 0, replaceMs: 60_000 }

beforeAll(async () => {
  rig = await startPayoutRig()
  operator = openOperator(rig)
  signers = await startRemoteSigners(keyOfRig())
  const { ctx } = rig.service
  Object.assign(ctx.settings, { payoutWallet: rig.signer.address, payoutSigner: rig.signer })
  ctx.log = openLog("info", { write: line => void lines.push(JSON.parse(line)) })
})
afterAll(async () => {
  await signers?.stop()
  await operator?.stop()
  await rig?.stop()
})
beforeEach(async () => {
  lines = []
  sent = new Set()
  signers.fault = () => undefined
  signers.asked.length = 0
  signers.heard.length = 0
  rig.proxy.spoil = (method, params, result) => {
    if (method === "eth_sendRawTransaction") sent.add(keccak256(params[0] as Hex))
    return result
  }
  // Removes what a test left in the pool after a gap in the nonces.
  await rig.anvil.client.dropAllTransactions()
  await rig.anvil.client.setAutomine(true)
  await mine()
  await rig.empty()
  registry.resetMetrics()
})

/** Two recipients' balances before and after. */
async function gains(work: () => Promise<unknown>): Promise<bigint[]> {
  const all = () => Promise.all([0, 1].map(n => rig.balanceOf(recipient(n))))
  const before = await all()
  await work()
  return (await all()).map((after, i) => after - (before[i] ?? 0n))
}

const laneOf = (signer: Signer) => payoutLane(rig.network, signer)

/** Pays a payment with two shares in, and gives them nonces. */
async function assigned(): Promise<void> {
  await rig.paid(await rig.sell([50, 50]), 1_000_000n)
  const { ctx } = rig.service
  const done = await assignPayouts(ctx, laneOf(rig.signer), await wallet(), await state())
  expect(done.assigned.length).toBe(2)
}

/** Every payout is final, each share was paid once, and only stored transactions were sent. */
async function expectPaid(got: readonly bigint[], n = 1n): Promise<void> {
  expect(got).toEqual([500_000n * n, 500_000n * n])
  expect(new Set(await rig.states())).toEqual(new Set(["final"]))
  const stored = new Set((await attempts()).map(({ hash }) => hash))
  expect([...sent].filter(hash => !stored.has(hash as Hash))).toEqual([])
  const { next_nonce, status } = await wallet()
  const count = await rig.anvil.client.getTransactionCount({ address: rig.signer.address })
  expect([status, next_nonce]).toEqual(["active", BigInt(count)])
}

const settle = async (signer: Signer) => {
  await rig.round(signer, AT_ONCE)
  await mine()
  await rig.round(signer, AT_ONCE)
}

it("a payout has its nonce and all its fields in the database before its signer is asked", async () => {
  const seen: unknown[] = []
  let looked: Promise<unknown> | undefined
  const look = async () => seen.push(...(await attempts()), (await wallet()).next_nonce)
  signers.fault = async () => {
    looked ??= look()
    await looked
    return undefined
  }
  const { next_nonce: first } = await wallet()
  const got = await gains(async () => {
    await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    await settle(fresh())
  })
  const unsigned = { raw: null, hash: null, signed_at: null, unsigned_hash: expect.stringMatching(/^0x/), sends: 0 }
  expect(seen).toMatchObject([{ ...unsigned, nonce: first }, { ...unsigned, nonce: first + 1n }, first + 2n])
  expect(signers.asked.sort()).toEqual((await attempts()).map(each => each.unsigned_hash).sort())
  await expectPaid(got)
})

describe("a signer that is down", () => {
  it("lets payouts wait: nothing else gets a nonce, nothing is skipped, and all continue by themselves", async () => {
    signers.fault = () => "down"
    const shop = await rig.sell([50, 50])
    const dead = fresh()
    const got = await gains(async () => {
      // Both are paid before the first round, because the signer is asked again after a second.
      const later = await rig.paid(shop, 1_000_000n)
      const due = (at: Date) =>
        rig.service.ctx.db.updateTable("payouts").set({ run_at: at }).where("payment_id", "=", later).execute()
      await due(new Date(rig.service.ctx.now().getTime() + 60_000))
      await rig.paid(shop, 1_000_000n)
      await rig.round(dead)
      await due(rig.service.ctx.now())
      await rig.round(dead)
      expect((await rig.states()).sort()).toEqual(["assigned", "assigned", "queued", "queued"])
      expect((await attempts()).map(each => each.raw)).toEqual([null, null])
      expect(sent.size).toBe(0)
      // It was asked for both signatures, and not again at once.
      expect(signers.asked.length).toBe(2)
      expect(errors()).toEqual(Array(2).fill(expect.stringContaining("the payout wallet's signer answered HTTP 503")))
      signers.fault = nth => (nth < 3 ? "down" : undefined)
      await until("it is asked again, for one at a time, and signs", async () => {
        await rig.round(dead)
        return (await rig.states()).every(each => each === "mined" || each === "final")
      })
      // Then once more, which fails; then for one, which it signs; then for the rest.
      expect(signers.asked.length).toBe(2 + 1 + 1 + 1 + 2)
      await settle(dead)
    })
    await expectPaid(got, 2n)
  })

  it("is an alarm once something has waited for it for a minute, which ends by itself", async () => {
    signers.fault = () => "refuse"
    await assigned()
    const dead = fresh()
    await rig.round(dead)
    expect((await wallet()).alarms).toEqual([])
    await sql`update transaction_attempts set created_at = created_at - interval '61 seconds'`.execute(
      rig.service.ctx.db,
    )
    await rig.round(dead)
    expect((await wallet()).alarms).toEqual(["signer"])
    expect(lines.filter(({ reason }) => reason === "signer").length).toBe(1)
    expect(await alarmMessages(rig.service.ctx, waitingAlarms)).toEqual([
      expect.stringContaining("has waited for a signature"),
    ])
    signers.fault = () => undefined
    await settle(fresh())
    expect((await wallet()).alarms).toEqual([])
    expect(errors().filter(line => line.includes("payout"))).toEqual(
      expect.arrayContaining([expect.stringContaining("not authorized")]),
    )
  })

  it("does not halt the books' comparison, nor does what is unsigned look like an altered row", async () => {
    signers.fault = () => "down"
    await assigned()
    await rig.round(fresh())
    await reconcileRound(rig.service.ctx, rig.network, rig.signer.address)
    await rig.compareLogs()
    expect((await wallet()).status).toBe("active")
    const shown = (await operator.ask("/wallets")).body
    expect(JSON.stringify(shown)).toContain('"hash":null')
  })

  it("while a payout is to be replaced: what it had signed before is sent again, and the replacement is signed later", async () => {
    const { client } = rig.anvil
    const got = await gains(async () => {
      await rig.paid(await rig.sell([50, 50]), 1_000_000n)
      await client.setAutomine(false)
      await rig.round(fresh())
      const [first] = await attempts()
      signers.fault = () => "down"
      const dead = fresh()
      await rig.round(dead, { resendMs: 0, replaceMs: 0 })
      await rig.round(dead, { resendMs: 0, replaceMs: 0 })
      const [before, raised] = await attempts()
      expect([before, raised]).toMatchObject([
        { n: 0, hash: first?.hash },
        { n: 1, raw: null, nonce: first?.nonce },
      ])
      expect(before?.sends).toBeGreaterThan(first?.sends ?? 0)
      expect((await attempts()).length).toBe(3)
      signers.fault = () => undefined
      await rig.round(fresh(), AT_ONCE)
      const again = (await attempts())[1]
      expect(again?.max_fee).toBeGreaterThan(first?.max_fee ?? 0n)
      expect(sent.has(again?.hash as Hex)).toBe(true)
      await client.setAutomine(true)
      await settle(fresh())
    })
    await expectPaid(got)
  })

  it("while a replacement waits for it: what a reorg removes of the first attempt is sent again, and paid once", async () => {
    const { client } = rig.anvil
    const dead = fresh()
    const got = await gains(async () => {
      await rig.paid(await rig.sell([50, 50]), 1_000_000n)
      await mine(1)
      await client.setAutomine(false)
      await rig.round(fresh())
      const firsts = (await attempts()).map(({ hash }) => hash)
      signers.fault = () => "down"
      await rig.round(dead, { resendMs: 0, replaceMs: 0 })
      expect((await attempts()).map(({ n, raw }) => [n, raw !== null])).toEqual([
        [0, true],
        [1, false],
        [0, true],
      ])
      await mine(1)
      await rig.round(dead, AT_ONCE)
      expect(await rig.states()).toEqual(["mined", "mined"])
      await client.reorg(1)
      sent.clear()
      await rig.round(dead, AT_ONCE)
      expect((await rig.states()).sort()).toEqual(["assigned", "assigned"])
      // No signer is needed for what is signed.
      await rig.round(dead, AT_ONCE)
      expect([...sent].sort()).toEqual(firsts.toSorted())
      signers.fault = () => undefined
      await rig.round(fresh(), AT_ONCE)
      expect((await attempts()).map(({ raw }) => raw !== null)).toEqual([true, true, true])
      await client.setAutomine(true)
      await settle(fresh())
    })
    await expectPaid(got)
  })

  it("for one network is asked at once by another one that has the same key", async () => {
    const got = await gains(async () => {
      await assigned()
      const { ctx } = rig.service
      const shared = fresh()
      const signFor = async (name: Network["name"]) =>
        await signAttempts(ctx, payoutLane({ ...rig.network, name }, shared), await wallet(), await state())
      signers.fault = () => "refuse"
      expect([await signFor("base"), await signFor("base"), signers.asked.length]).toEqual([0, 0, 2])
      signers.fault = () => undefined
      expect([await signFor("worldchain"), signers.asked.length]).toEqual([2, 4])
      await settle(fresh())
    })
    await expectPaid(got)
  })

  it("while PAYOUT_MAX_FEE is lowered: its payouts are signed within it, and nothing was altered by hand", async () => {
    const { settings } = rig.service.ctx
    const cap = settings.payoutMaxFee
    try {
      const got = await gains(async () => {
        await assigned()
        const [first] = await attempts()
        settings.payoutMaxFee = (first?.max_fee ?? 0n) - 1n
        await rig.round(fresh(), AT_ONCE)
        await settle(fresh())
      })
      expect(errors()).toEqual([])
      const fees = (await attempts()).map(({ n, raw, max_fee }) => [n, raw !== null, max_fee <= settings.payoutMaxFee])
      expect(fees).toEqual([
        [0, false, false],
        [1, true, true],
        [0, false, false],
        [1, true, true],
      ])
      await expectPaid(got)
    } finally {
      settings.payoutMaxFee = cap
    }
  })

  it("is not blamed where the process ends", async () => {
    await assigned()
    const ending = new AbortController()
    // Both requests are there before it ends: one that came later would be counted in the next test.
    let waiting = 0
    signers.fault = () => {
      if (++waiting === 2) ending.abort()
      return "hang"
    }
    const { ctx } = rig.service
    await signAttempts({ ...ctx, signal: ending.signal }, laneOf(fresh()), await wallet(), await state())
    expect([errors(), (await attempts()).map(each => each.raw)]).toEqual([[], [null, null]])
  })
})

describe("a signer that answers twice", () => {
  it("has one answer stored and sent, though two processes ask at once and each gets another", async () => {
    const got = await gains(async () => {
      await assigned()
      const { ctx } = rig.service
      // All four requests are there before any is answered.
      let free = () => {}
      const held = new Promise<void>(resolve => {
        free = resolve
      })
      let waiting = 0
      signers.fault = async () => {
        if (++waiting === 4) free()
        await held
        return undefined
      }
      const row = await wallet()
      const seen = await state()
      const signed = await Promise.all([1, 2].map(() => signAttempts(ctx, laneOf(fresh()), row, seen)))
      expect(signed.reduce((sum, n) => sum + n, 0)).toBe(2)
      expect(signers.asked.length).toBe(4)
      await settle(fresh())
    })
    expect(sent.size).toBe(2)
    await expectPaid(got)
  })

  it("has nothing sent of an answer that a process took with it when it ended", async () => {
    const lost: Hex[] = []
    const got = await gains(async () => {
      await assigned()
      const { ctx } = rig.service
      const asking = fresh()
      // It ends between the answer and the database.
      const dying: Signer = {
        ...asking,
        sign: async (bytes, signal) => {
          const { r } = await asking.sign(bytes, signal)
          lost.push(toHex(r))
          throw new Error("ended")
        },
      }
      await signAttempts(ctx, laneOf(dying), await wallet(), await state())
      expect((await attempts()).map(each => each.raw)).toEqual([null, null])
      await settle(fresh())
    })
    const used = (await attempts()).map(({ raw }) => parseTransaction(raw as `0x02${string}`).r)
    expect([lost.length, lost.filter(r => used.includes(r))]).toEqual([2, []])
    await expectPaid(got)
  })
})

describe("a signer that is not what it should be", () => {
  it.each<[SignerFault, RegExp]>([
    ["garbage", /answered with something that is not a signature$/],
    ["empty", /answered with something that is not a signature$/],
    ["other key", /not a signature of the wallet 0x/],
    ["other hash", /not a signature of the wallet 0x/],
  ])("and answers %s is not believed, and alarms at once", async (fault, words) => {
    const got = await gains(async () => {
      await assigned()
      signers.fault = () => fault
      await rig.round(fresh())
      expect((await attempts()).map(({ raw, hash, sends }) => [raw, hash, sends])).toEqual(
        Array(2).fill([null, null, 0]),
      )
      expect(sent.size).toBe(0)
      expect(errors()).toEqual(Array(2).fill(expect.stringMatching(words)))
      const metric = await registry.getSingleMetricAsString("sluice_payout_alarms_total")
      expect(metric).toMatch(/wallet="payout",reason="signature"\} 2/)
      signers.fault = () => undefined
      await settle(fresh())
    })
    await expectPaid(got)
  })

  it("of one of two payouts holds up that one, and what follows it on the chain", async () => {
    const got = await gains(async () => {
      await assigned()
      const [, second] = await attempts()
      // Chosen by its hash, because the order of the requests is random.
      const asking = fresh()
      const partly: Signer = {
        ...asking,
        sign: async (bytes, signal) => {
          if (keccak256(bytes) === second?.unsigned_hash) throw new SignerError("did not answer")
          return await asking.sign(bytes, signal)
        },
      }
      await rig.round(partly)
      expect((await rig.states()).sort()).toEqual(["assigned", "mined"])
      await settle(fresh())
    })
    await expectPaid(got)
  })

  it("is never shown a transaction that somebody altered after it got its nonce", async () => {
    const { db } = rig.service.ctx
    await assigned()
    const [first, second] = await attempts()
    if (!first || !second) throw new Error("no attempts")
    const [payout] = await db.selectFrom("payouts").selectAll().where("id", "=", second.payout_id).execute()
    if (!payout) throw new Error("no payout")
    // The whole row, and the hash with it: what it pays is no longer what its deposit is for.
    const data = payout.data.replace(payout.recipient.slice(2), "ee".repeat(20)) as Hex
    const forged = unsignedHash(transactionOf(second, { ...payout, data }))
    await sql`alter table payouts disable trigger payouts_keep_promises`.execute(db)
    await sql`alter table transaction_attempts disable trigger transaction_attempts_keep`.execute(db)
    await sql`update transaction_attempts set gas = gas + 1 where id = ${first.id}`.execute(db)
    await sql`update payouts set data = ${data} where id = ${second.payout_id}`.execute(db)
    await sql`update transaction_attempts set unsigned_hash = ${forged} where id = ${second.id}`.execute(db)
    await sql`alter table payouts enable trigger payouts_keep_promises`.execute(db)
    await sql`alter table transaction_attempts enable trigger transaction_attempts_keep`.execute(db)
    await rig.round(fresh())
    expect([signers.asked, sent.size]).toEqual([[], 0])
    expect(errors()).toEqual(Array(2).fill("a payout was altered by hand; it is not signed"))
    // An empty transfer of its nonce moves nothing, and lets the others go on.
    await operator.ask("/unstick", { wallet: "payout", nonce: `${first.nonce}`, reason: "altered" })
    expect((await operator.attempts()).map(({ nonce, n, empty }) => [nonce, n, empty])).toEqual([
      [first.nonce, 1, true],
    ])
  })

  // Somebody who can write to the database and disable its triggers writes a row that is consistent in itself.
  it.each<[string, (attempt: bigint, payout: string) => ReturnType<typeof sql>]>([
    [
      "ether with a release",
      (_attempt, payout) => sql`update payouts set value = 1000000000000000000 where id = ${payout}`,
    ],
    [
      "a call of another kind",
      (
        _attempt,
        payout,
      ) => sql`update payouts set kind = 'authorize', lane = 'relay', reserved = false, payment_id = null, share = null,
        percent_e4 = null, payer = ${rig.relayer.address}, auth_nonce = ${`0x${"ab".repeat(32)}`}, relay_by = now() + interval '1 day',
        auth_digest = ${`0x${"cd".repeat(32)}`} where id = ${payout}`,
    ],
    [
      "a call of another contract",
      (_attempt, payout) => sql`update payouts set to_address = ${rig.relayer.address} where id = ${payout}`,
    ],
    [
      "more gas than a release takes",
      attempt => sql`update transaction_attempts set gas = 300001 where id = ${attempt}`,
    ],
    [
      "a fee above the cap",
      attempt => sql`update transaction_attempts set max_fee = 20000000001 where id = ${attempt}`,
    ],
    [
      "an empty transfer at a fee that no operator allowed",
      attempt =>
        sql`update transaction_attempts set empty = true, gas = 21000, max_fee = 20000000001 where id = ${attempt}`,
    ],
  ])("is never shown %s", async (_what, change) => {
    const { ctx } = rig.service
    expect(ctx.settings.payoutMaxFee).toBe(20_000_000_000n)
    await assigned()
    const [first] = await attempts()
    if (!first) throw new Error("no attempt")
    for (const table of ["payouts", "transaction_attempts"])
      await sql`alter table ${sql.table(table)} disable trigger user`.execute(ctx.db)
    await change(first.id, first.payout_id).execute(ctx.db)
    const [attempt] = await attempts()
    const payout = await ctx.db
      .selectFrom("payouts")
      .selectAll()
      .where("id", "=", first.payout_id)
      .executeTakeFirstOrThrow()
    const forged = unsignedHash(transactionOf(attempt ?? first, payout))
    await sql`update transaction_attempts set unsigned_hash = ${forged} where id = ${first.id}`.execute(ctx.db)
    for (const table of ["payouts", "transaction_attempts"])
      await sql`alter table ${sql.table(table)} enable trigger user`.execute(ctx.db)
    await rig.round(fresh())
    expect(signers.asked).not.toContain(forged)
    expect((await attempts())[0]).toMatchObject({ id: first.id, raw: null })
  })

  it("is never shown an empty transfer above the cap, though a row says that an operator allowed it: it gets one within the cap", async () => {
    const { db, settings } = rig.service.ctx
    const got = await gains(async () => {
      await assigned()
      const [first] = await attempts()
      if (!first) throw new Error("no attempt")
      const { id: _, created_at: _created, ...rest } = first
      const all = (await rig.anvil.client.getBalance({ address: rig.signer.address })) / 21_000n - 1n
      const forged = { ...rest, n: 1, empty: true, gas: 21_000n, max_fee: all, tip: all }
      const call = { to_address: first.wallet, data: "0x" as const, value: 0n }
      const unsigned_hash = unsignedHash(transactionOf(forged, call))
      // Two INSERTs: no trigger is switched off, and nothing is altered.
      await sql`insert into operator_actions (at, action, by_user, chain_id, wallet, payout_id, reason, before, after)
        values (now(), 'unstick', 'ops', ${first.chain_id}, ${first.wallet}, ${first.payout_id}, 'r', '{}',
          ${JSON.stringify({ max_fee: `${all}` })}::jsonb)`.execute(db)
      await db
        .insertInto("transaction_attempts")
        .values({ ...forged, unsigned_hash })
        .execute()
      await rig.round(fresh(), AT_ONCE)
      await rig.round(fresh(), AT_ONCE)
      expect(signers.asked).not.toContain(unsigned_hash)
      expect((await operator.attempts()).every(({ max_fee }) => max_fee <= settings.payoutMaxFee)).toBe(true)
      await mine()
      await rig.round(fresh(), AT_ONCE)
    })
    expect([(await rig.states()).sort(), got.toSorted()]).toEqual([
      ["final", "held", "reverted"],
      [0n, 500_000n],
    ])
  })

  it("is never shown a payout that can't be compared with its deposit any more", async () => {
    const { db } = rig.service.ctx
    await assigned()
    await sql`alter table deposits disable trigger user`.execute(db)
    await sql`update deposits set older_factory = true, factory = ${rig.relayer.address}`.execute(db)
    await sql`alter table deposits enable trigger user`.execute(db)
    await rig.round(fresh())
    expect([signers.asked, sent.size]).toEqual([[], 0])
    expect(errors()).toEqual(Array(2).fill("a payout was altered by hand; it is not signed"))
  })
})

describe("a nonce", () => {
  it("that the chain has used is not signed again: a database restored from a backup halts, and adopts what was sent", async () => {
    const { ctx } = rig.service
    const got = await gains(async () => {
      await assigned()
      const unsigned = await attempts()
      await rig.round(fresh(), AT_ONCE)
      const hashes = (await attempts()).map(({ hash }) => hash)
      await mine()
      // The backup was made between the nonces and the signatures.
      await sql`alter table transaction_attempts disable trigger transaction_attempts_keep`.execute(ctx.db)
      await sql`update transaction_attempts set raw = null, hash = null, signed_at = null, sent_at = null`.execute(
        ctx.db,
      )
      await sql`alter table transaction_attempts enable trigger transaction_attempts_keep`.execute(ctx.db)
      await sql`update payouts set state = 'assigned', tx_hash = null, block_number = null, block_hash = null, succeeded = null,
        gas_cost = null, gas_cost_at = null`.execute(ctx.db)
      signers.asked.length = 0
      await rig.round(fresh(), AT_ONCE)
      expect([signers.asked, (await attempts()).map(each => each.raw)]).toEqual([[], [null, null]])
      rig.service.advance(31_000)
      await rig.round(fresh(), AT_ONCE)
      expect((await wallet()).status).toBe("halted")
      for (const hash of hashes)
        expect((await operator.ask("/adopt", { hash })).body).toMatchObject({ said: expect.any(String) })
      expect((await operator.ask("/resume", { wallet: "payout", reason: "adopted" })).status).toBe(200)
      await settle(fresh())
      expect(unsigned.length).toBe(2)
    })
    await expectPaid(got)
    expect(signers.asked).toEqual([])
  })

  it("of a halted wallet is not signed, and of a resumed one is", async () => {
    const got = await gains(async () => {
      await assigned()
      await operator.ask("/halt", { wallet: "payout", reason: "a look" })
      await rig.round(fresh())
      expect(signers.asked).toEqual([])
      await operator.ask("/resume", { wallet: "payout", reason: "looked" })
      await settle(fresh())
    })
    await expectPaid(got)
  })

  it("of a payout of another factory is left to the process that serves it, which the log says, or emptied by an operator", async () => {
    const served = rig.network.depositFactory
    const elsewhere = () => lines.filter(({ msg }) => msg.includes("serves its deposit factory"))
    await assigned()
    const [first, second] = await attempts()
    await sql`update transaction_attempts set created_at = created_at - interval '61 seconds'`.execute(
      rig.service.ctx.db,
    )
    try {
      Object.assign(rig.network, { depositFactory: rig.relayer.address })
      await rig.round(fresh(), AT_ONCE)
      expect([signers.asked, elsewhere(), (await wallet()).alarms]).toEqual([[], [], ["signer"]])
      await rig.round(fresh(), AT_ONCE)
      expect(signers.asked).toEqual([])
      expect(elsewhere()).toMatchObject(
        [first, second].map(each => ({ payoutId: each?.payout_id, nonce: `${each?.nonce}`, factory: served })),
      )
      await rig.anvil.client.setAutomine(false)
      await operator.ask("/unstick", { wallet: "payout", nonce: `${first?.nonce}`, reason: "nothing serves it" })
      await rig.round(fresh(), AT_ONCE)
      // A replacement at a higher fee is signed by any process that finds it, too.
      await rig.round(fresh(), { resendMs: 0, replaceMs: 0 })
      expect((await operator.attempts()).map(({ nonce, n, empty }) => [nonce, n, empty])).toEqual([
        [first?.nonce, 1, true],
        [first?.nonce, 2, true],
      ])
      await rig.anvil.client.setAutomine(true)
      await rig.round(fresh(), AT_ONCE)
    } finally {
      Object.assign(rig.network, { depositFactory: served })
    }
    const got = await gains(() => settle(fresh()))
    expect(got.toSorted()).toEqual([0n, 500_000n])
  })

  it("whose signature comes after an operator emptied it is not stored, so the payment can't be sent any more", async () => {
    const got = await gains(async () => {
      await assigned()
      const [first] = await attempts()
      let free = () => {}
      const held = new Promise<void>(resolve => {
        free = resolve
      })
      signers.fault = async () => {
        await held
        return undefined
      }
      const late = signAttempts(rig.service.ctx, laneOf(fresh()), await wallet(), await state())
      await until("it was asked for both", () => signers.heard.filter(text => text.includes("/sign/")).length === 2)
      await operator.ask("/unstick", { wallet: "payout", nonce: `${first?.nonce}`, reason: "not to be paid" })
      free()
      // Only the other one's signature is stored.
      expect(await late).toBe(1)
      expect((await attempts()).map(({ n, empty, raw }) => [n, empty, raw !== null])).toEqual([
        [0, false, false],
        [1, true, true],
        [0, false, true],
      ])
      await settle(fresh())
    })
    expect(got.toSorted()).toEqual([0n, 500_000n])
  })

  it("of a wallet that is halted while its signer works is signed, and sent only when the wallet is resumed", async () => {
    const got = await gains(async () => {
      await assigned()
      let halting: Promise<unknown> | undefined
      signers.fault = async () => {
        halting ??= operator.ask("/halt", { wallet: "payout", reason: "a look" })
        await halting
        return undefined
      }
      await rig.round(fresh(), AT_ONCE)
      expect([(await attempts()).every(each => each.raw !== null), sent.size]).toEqual([true, 0])
      await operator.ask("/resume", { wallet: "payout", reason: "looked" })
      await settle(fresh())
    })
    await expectPaid(got)
  })

  it("is not signed by the signer of another wallet", async () => {
    await assigned()
    const { ctx } = rig.service
    const other: Signer = { ...fresh(), address: rig.relayer.address }
    await expect(signAttempts(ctx, laneOf(other), await wallet(), await state())).rejects.toThrow("can't sign for")
  })

  it("is found unsigned by the process that starts next", async () => {
    const got = await gains(async () => {
      await assigned()
      await checkWallet(rig.service.ctx, payoutLane(rig.network, fresh()))
      await settle(fresh())
    })
    await expectPaid(got)
  })
})

describe("calls of the escrow", () => {
  it("are signed by a remote signer of the relay wallet: a payment is reserved, captured, voided and refunded once each", async () => {
    const remote = await startRemoteSigners(keyOfRig(2))
    const relayer = remoteSigner(remote.keyOf("web3signer"), rig.relayer.address, { timeoutMs: 5_000 })
    const on = await escrowsOn({ ...rig, relayer })
    const { ctx } = rig.service
    const ask = async (path: string, body: object) => {
      const { status } = await rig.service.call("POST", `/api/console/payments/${path}`, body, { as: "shop" })
      expect([200, 201]).toContain(status)
    }
    try {
      await on.begin()
      const kept = await on.paid("5.00", "manual")
      const undone = await on.paid("3.00", "manual")
      expect(await on.held()).toBe(8_000_000n)
      remote.fault = () => "cut"
      await ask("capture", { sessionId: kept.id })
      await on.round()
      // It has a nonce and waits: the signer may have signed, but its answer is lost.
      const [capture] = await on.calls("capture")
      expect([capture?.state, (await on.attempts())[0]]).toMatchObject(["assigned", { raw: null, hash: null }])
      await ask("void", { sessionId: undone.id })
      remote.fault = () => undefined
      await until("the signer is asked again", async () => {
        await on.settle()
        return (await on.calls("void"))[0]?.state === "final"
      })
      expect(await on.held()).toBe(0n)
      expect(await rig.balanceOf(on.merchant)).toBe(5_000_000n)
      await on.allow(5_000_000n)
      await ask("refund", { sessionId: kept.id, amount: "1.50" })
      await on.settle()
      expect(await Promise.all([kept, undone].map(({ buyer }) => rig.balanceOf(buyer)))).toEqual([
        1_500_000n,
        3_000_000n,
      ])
      expect(await rig.balanceOf(on.merchant)).toBe(3_500_000n)
      const made = await ctx.db.selectFrom("payouts").select(["kind", "state", "succeeded"]).execute()
      expect(made.map(({ kind, state, succeeded }) => [kind, state, succeeded]).sort()).toEqual(
        ["capture", "refund", "reserve", "reserve", "void"].map(kind => [kind, "final", true]),
      )
      // The signer was asked only for what is stored.
      const signed = (await on.attempts()).map(({ unsigned_hash }) => unsigned_hash)
      expect(new Set(remote.asked)).toEqual(new Set(signed))
    } finally {
      rig.network.escrow = undefined
      await remote.stop()
    }
  })
})

it("the database refuses to change what is signed, and to half-sign", async () => {
  const { db } = rig.service.ctx
  await assigned()
  const change = (set: ReturnType<typeof sql>) => sql`update transaction_attempts set ${set}`.execute(db)
  const hash = `0x${"ab".repeat(32)}`
  await expect(change(sql`unsigned_hash = ${hash}`)).rejects.toThrow("what transaction attempt")
  await expect(change(sql`nonce = nonce + 10`)).rejects.toThrow("what transaction attempt")
  await expect(change(sql`raw = '0x02'`)).rejects.toThrow("transaction_attempts_signed")
  await expect(change(sql`hash = ${hash}`)).rejects.toThrow("transaction_attempts_signed")
  await settle(fresh())
  await expect(change(sql`raw = null, hash = null`)).rejects.toThrow("is signed and does not change")
})
