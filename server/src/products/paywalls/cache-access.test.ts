// The cache of access never returns revoked access, whichever process revoked it, and whatever the order of reads and
// changes.
import { connect, createServer, type Socket } from "node:net"
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { onPostgres } from "../../../test/database.ts"
import { until } from "../../../test/e2e/program.ts"
import { startService, type TestService } from "../../../test/service.ts"
import { newRecurring } from "../../../test/subscriptions.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import { type Context, inTransaction } from "../../platform/context.ts"
import { openPostgres } from "../../platform/db/open.ts"
import { type ChangeListener, openWakes } from "../../platform/jobs/wake.ts"
import { type Access, accessChanged, openKnownAccess, type ReadAccess } from "./cache-access.ts"
import { accessOf, foldAccess, lockAccess } from "./read-access.ts"

const address = `0x${"a".repeat(40)}` as Address
const other = `0x${"b".repeat(40)}` as Address
const HOUR = 3_600_000
const access = (ms = HOUR): Access => ({ expiresAt: new Date(Date.now() + ms), txHash: `0x${"1".repeat(64)}` as Hash })

/** A cache whose reads the test answers, and whose changes come when the test says so. */
function byHand() {
  let listener: ChangeListener | undefined
  let heard = true
  let now = Date.now()
  const reads: { answer(read: ReadAccess): void; fail(error: Error): void }[] = []
  const wakes = { onChange: (_: string, each: ChangeListener) => (listener = each), areChangesHeard: () => heard }
  const ctx = { wakes, now: () => new Date(now) } as unknown as Context
  const known = openKnownAccess(
    ctx,
    () => new Promise((resolve, reject) => reads.push({ answer: resolve, fail: reject })),
  )
  return {
    known,
    reads,
    changed: (what: string) => listener?.changed(what),
    missed: () => listener?.missed(),
    hear: (whether: boolean) => (heard = whether),
    advance: (ms: number) => (now += ms),
    /** Asks, and answers the read that this causes. */
    read: async (given: Access | undefined, isNotified = true) => {
      const asked = known("pw_1", address)
      reads.at(-1)?.answer({ access: given, isNotified })
      return await asked
    },
  }
}

describe("what is known of access", () => {
  it("is read once while it lasts, and again when it is over", async () => {
    const { known, reads, read, advance } = byHand()
    const given = access()
    expect(await read(given)).toEqual(given)
    for (let i = 0; i < 3; i++) expect(await known("pw_1", address)).toMatchObject(given)
    expect(reads).toHaveLength(1)
    advance(HOUR + 1)
    expect(await read(undefined)).toBeUndefined()
    expect(reads).toHaveLength(2)
  })

  it("is never that there is none, nor what no change is notified of, nor a failure", async () => {
    const { known, reads, read } = byHand()
    expect(await read(undefined)).toBeUndefined()
    expect(await read(access(), false)).toBeDefined()
    const failing = known("pw_1", address)
    reads.at(-1)?.fail(new Error("no database"))
    await expect(failing).rejects.toThrow("no database")
    expect(await read(access())).toBeDefined()
    expect(reads).toHaveLength(4)
  })

  it("ends with a change to it, to its paywall, or when changes may have been missed", async () => {
    const { reads, read, changed, missed, known } = byHand()
    for (const end of [() => changed(`pw_1 ${address}`), () => changed("pw_1"), missed]) {
      await read(access())
      const before = reads.length
      changed(`pw_1 ${other}`)
      changed(`pw_2 ${address}`)
      changed("pw_2")
      await known("pw_1", address)
      expect(reads).toHaveLength(before)
      end()
      expect(await read(undefined)).toBeUndefined()
    }
  })

  it("is not what a read found that was under way when a change came", async () => {
    for (const end of ["pw_1", `pw_1 ${address}`, undefined]) {
      const { known, reads, changed, missed, read } = byHand()
      const asked = known("pw_1", address)
      if (end === undefined) missed()
      else changed(end)
      // Asked after the change: it must be answered by its own read.
      const after = known("pw_1", address)
      expect(reads).toHaveLength(2)
      reads[0]?.answer({ access: access(), isNotified: true })
      await asked
      reads[1]?.answer({ access: undefined, isNotified: true })
      expect(await after).toBeUndefined()
      expect(await read(undefined)).toBeUndefined()
    }
  })

  it("counts for nothing while changes are not heard", async () => {
    const { known, reads, read, hear } = byHand()
    await read(access())
    hear(false)
    const asked = known("pw_1", address)
    expect(reads).toHaveLength(2)
    reads[1]?.answer({ access: undefined, isNotified: true })
    expect(await asked).toBeUndefined()
  })
})

describe.runIf(onPostgres)("two processes on one database", () => {
  let service: TestService
  let line: Line
  let away: Awaited<ReturnType<typeof otherProcess>>
  let paywallId: string

  beforeAll(async () => {
    service = await startService()
    const { rows } = await sql<{ name: string }>`select current_database() as name`.execute(service.ctx.db)
    const url = new URL(process.env.DATABASE_URL ?? "")
    url.pathname = `/${rows[0]?.name}`
    // Without the query, as the line is a TCP connection.
    url.search = ""
    line = await openLine(url)
    away = await otherProcess(service, line.url)
  })
  afterAll(async () => {
    await away?.close()
    line?.close()
    await service?.stop()
  })
  beforeEach(async () => {
    await service.empty()
    await service.merchant("shop")
    const made = await service.call("POST", "/api/console/paywalls", { name: "Film", price: 5 }, { as: "shop" })
    paywallId = made.body.id
  })

  /** Commits access in this process: until then, with this many calls left. */
  const commit = (expiresAt: Date | null, callsLeft: number | null = null) =>
    inTransaction(service.ctx, async ctx => {
      await lockAccess(ctx, paywallId, address)
      await ctx.db
        .updateTable("access")
        .set({ since_at: ctx.now(), expires_at: expiresAt, calls_left: callsLeft, tx_hash: access().txHash })
        .where("paywall_id", "=", paywallId)
        .execute()
      accessChanged(ctx, paywallId, address)
    })
  const later = (ms = HOUR) => new Date(Date.now() + ms)
  const isOpen = async () => (await away.known(paywallId, address)) !== undefined
  const verify = async () =>
    (await service.call("GET", `/api/paywalls/${paywallId}/verify?address=${address}`)).body.hasAccess
  /** Waits until the other process answers from its cache. */
  const known = async () => {
    await until("it is known", async () => {
      await away.known(paywallId, address)
      const before = away.reads()
      await away.known(paywallId, address)
      return away.reads() === before
    })
  }

  it("each end of access ends what the other knows, and what this one knows at once", async () => {
    const ends: [string, () => Promise<unknown>][] = [
      ["revoked", () => commit(null)],
      ["the last call taken", () => commit(later(), 0)],
      ["a row deleted by hand", () => sql`delete from access where paywall_id = ${paywallId}`.execute(service.ctx.db)],
    ]
    for (const [name, end] of ends) {
      await commit(later(), name.includes("call") ? 1 : null)
      await known()
      expect([name, await isOpen(), await verify()]).toEqual([name, true, true])
      await end()
      if (!name.includes("hand")) expect([name, await verify()]).toEqual([name, false])
      await until("the other process knows", async () => !(await isOpen()))
    }
  })

  it("a fold of grants that are gone, as after a reorg, is answered at once here and soon there", async () => {
    await commit(later())
    await known()
    expect(await verify()).toBe(true)
    await inTransaction(service.ctx, async ctx => {
      await lockAccess(ctx, paywallId, address)
      await foldAccess(ctx, paywallId, address)
    })
    expect(await verify()).toBe(false)
    await until("the other process knows", async () => !(await isOpen()))
  })

  it("a product that opens the paywall from now on ends what is known of everybody's", async () => {
    await commit(later())
    await known()
    const product = await newRecurring(service, "shop")
    const before = away.reads()
    const body = { subscriptionProductId: product }
    expect((await service.call("PUT", `/api/console/paywalls/${paywallId}`, body, { as: "shop" })).status).toBe(200)
    await until("it reads again", async () => {
      await away.known(paywallId, address)
      return away.reads() > before
    })
  })

  it("one whose listening connection ends, or hears nothing and still gets answers, reads until it listens again", async () => {
    await commit(later())
    await known()
    await sql`select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'sluice-listen'
      and client_port = any(${line.ports()})`.execute(service.ctx.db)
    await until("it hears nothing", () => !away.isListening())
    const before = away.reads()
    await commit(null)
    expect(await isOpen()).toBe(false)
    expect(away.reads()).toBe(before + 1)
    await commit(later())
    await until("it listens again", () => away.isListening())
    await known()
    line.swallow()
    await until("it hears nothing", () => !away.isListening())
    expect(await isOpen()).toBe(true)
    await commit(null)
    expect(await isOpen()).toBe(false)
  })
})

/** A separate process, as the database sees it. */
async function otherProcess(service: TestService, url: string) {
  const database = await openPostgres(url, () => {})
  const wakes = await openWakes(database)
  const ctx: Context = { ...service.ctx, db: database.db, wakes }
  let reads = 0
  const known = openKnownAccess(ctx, async (id, who) => {
    reads++
    const paywall = await service.ctx.db
      .selectFrom("paywalls")
      .selectAll()
      .where("id", "=", id)
      .executeTakeFirstOrThrow()
    return { access: await accessOf(service.ctx, paywall, who), isNotified: true }
  })
  await until("it listens", database.isListening)
  return { known, reads: () => reads, isListening: database.isListening, close: database.close }
}

interface Line {
  url: string
  /** The local ports of its connections, as the database sees them. */
  ports(): number[]
  /** From now on notifications are dropped and answers pass, as with a pooler that shares sessions. */
  swallow(): void
  close(): void
}

/** The first byte of a notification in Postgres' protocol. */
const NOTIFICATION_RESPONSE = "A".charCodeAt(0)

/** A TCP line to a Postgres that can drop notifications. */
async function openLine(to: URL): Promise<Line> {
  const sockets: Socket[] = []
  let swallowing = false
  const server = createServer(near => {
    const far = connect(Number(to.port), to.hostname)
    sockets.push(near, far)
    near.pipe(far)
    // Notifications arrive on their own, as the listening connection sends no queries.
    far.on("data", data => void (swallowing && data[0] === NOTIFICATION_RESPONSE ? undefined : near.write(data)))
    far.on("end", () => near.end())
    for (const socket of [near, far]) socket.on("error", () => {})
  }).listen(0, "127.0.0.1")
  await until("the line is open", () => server.listening)
  const url = new URL(to)
  url.port = String((server.address() as { port: number }).port)
  return {
    url: url.href,
    ports: () => sockets.flatMap(({ localPort }) => localPort ?? []),
    swallow: () => {
      swallowing = true
    },
    close: () => {
      for (const socket of sockets) socket.destroy()
      server.close()
    },
  }
}
