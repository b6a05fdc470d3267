// Relays through workers that are killed at each moment that matters, while the same authorizations are submitted again by
// many at once: each moves its money once.
import { type ChildProcess, spawn } from "node:child_process"
import { sql } from "kysely"
import { toHex } from "viem"
import { mnemonicToAccount, type PrivateKeyAccount } from "viem/accounts"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { openOwnPostgres } from "../database.ts"
import { plainEnv, root, until } from "../e2e/program.ts"
import { type PayoutRig, startPayoutRig } from "../payouts.ts"
import { postgresBinaries, startPostgres, type TestPostgres } from "../postgres.ts"
import { relaysOn, type Session } from "../relays.ts"
import type { KillPoint, WorkerOptions } from "./payout-worker.ts"

/** The key of the rig's relay wallet: anvil's third account. */
const relayKey = () => {
  const { privateKey } = mnemonicToAccount("test test test test test test test test test test test junk", {
    addressIndex: 2,
  }).getHdKey()
  if (!privateKey) throw new Error("no key")
  return toHex(privateKey)
}

// Where there is no Postgres, script/test says so and counts it.
describe.runIf(postgresBinaries())("relays through kills", () => {
  let postgres: TestPostgres
  let rig: PayoutRig
  let on: ReturnType<typeof relaysOn>
  let databaseUrl: string
  const workers = new Set<ChildProcess>()

  beforeAll(async () => {
    postgres = await startPostgres()
    rig = await startPayoutRig({}, await openOwnPostgres(postgres.url))
    on = relaysOn(rig)
    const { rows } = await sql<{ name: string }>`select current_database() as name`.execute(rig.service.ctx.db)
    const url = new URL(postgres.url)
    url.pathname = `/${rows[0]?.name}`
    databaseUrl = url.href
  })
  afterAll(async () => {
    for (const worker of workers) worker.kill("SIGKILL")
    await rig?.stop()
    await postgres?.stop()
  })

  /** A worker of the relay lane; answers how it ended. */
  function work(killAt?: { point: KillPoint; nth: number }) {
    const { name, chainId, token, depositFactory } = rig.network
    const network = { name, chainId, token: token.address, depositFactory, confirmations: 1 }
    const options: WorkerOptions = {
      databaseUrl,
      network: { ...network, rpcUrls: [rig.anvil.rpcUrl], sanctionsOracle: undefined },
      key: relayKey(),
      lane: "relay",
      killAt,
    }
    const worker = spawn(process.execPath, ["server/test/chaos/payout-worker.ts", JSON.stringify(options)], {
      cwd: root,
      env: plainEnv(),
      stdio: ["ignore", "ignore", "inherit"],
    })
    workers.add(worker)
    const ended = new Promise<NodeJS.Signals | null>(resolve =>
      worker.once("exit", (_, by) => {
        workers.delete(worker)
        resolve(by)
      }),
    )
    return { worker, ended }
  }

  it("each move their money once, and leave no gap", async () => {
    await on.begin()
    const sales: { session: Session; buyer: PrivateKeyAccount }[] = []
    for (let i = 0; i < 12; i++) sales.push({ session: await on.start(), buyer: await on.buyer() })
    const signed = await Promise.all(sales.map(({ session, buyer }) => on.sign(buyer, session)))
    const submitAll = () =>
      Promise.all(
        sales.flatMap(({ session }, i) =>
          Array.from({ length: 3 }, () => on.submit(session, signed[i] as (typeof signed)[0])),
        ),
      )
    const submitting = submitAll()
    // Nobody waits for a dead worker's lease.
    const release = () => rig.service.ctx.db.updateTable("wallets").set({ lease_until: null }).execute()
    for (const point of ["after signing", "before commit", "after commit", "before final"] as const) {
      const doomed = work({ point, nth: 1 })
      const blocks = meanwhile(doomed.ended, () => rig.anvil.client.mine({ blocks: 1 }))
      expect(await doomed.ended).toBe("SIGKILL")
      await blocks
      await release()
    }
    for (const { status, body } of await submitting) expect([status, body.status]).toEqual([200, "verifying"])
    const pair = [work(), work()]
    await until("all relays are final", async () => {
      await rig.anvil.client.mine({ blocks: 1 })
      return (await on.relays()).every(({ state }) => state === "final")
    })
    for (const { worker } of pair) worker.kill("SIGTERM")
    await Promise.all(pair.map(({ ended }) => ended))
    await submitAll()
    expect((await on.relays()).length).toBe(12)
    for (const { session } of sales) expect(await on.received(session.payTo)).toEqual([5_000_000n])
    const { next_nonce } = await rig.service.ctx.db
      .selectFrom("wallets")
      .select("next_nonce")
      .where("lane", "=", "relay")
      .executeTakeFirstOrThrow()
    expect(next_nonce).toBe(BigInt(await rig.anvil.client.getTransactionCount({ address: rig.relayer.address })))
    await on.look()
    for (const { session } of sales) expect((await on.status(session.id)).status).toBe("confirmed")
  })
})

/** Does it again and again until something has ended. */
async function meanwhile(ended: Promise<unknown>, work: () => Promise<unknown>): Promise<void> {
  let over = false
  ended.then(() => (over = true))
  await until("the worker has ended", async () => {
    if (!over) await work()
    return over
  })
}
