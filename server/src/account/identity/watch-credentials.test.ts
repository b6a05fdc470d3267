// An answer that lasts ends with the credential that it was asked for with, in every process, and with nothing else.
import { once } from "node:events"
import { connect } from "node:net"
import { sql } from "kysely"
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from "vitest"
import { onPostgres } from "../../../test/database.ts"
import { startService, type TestService } from "../../../test/service.ts"
import { openApp } from "../../app.ts"
import type { Context } from "../../platform/context.ts"
import { type OpenDatabase, openPostgres } from "../../platform/db/open.ts"
import type { Watch } from "../../platform/http/authenticate.ts"
import type { Server } from "../../platform/http/server.ts"
import type { ChangeListener } from "../../platform/jobs/wake.ts"
import { openWakes } from "../../platform/jobs/wake.ts"
import { openLog } from "../../platform/log.ts"
import { lastingSessions } from "../sessions/queries.ts"
import { keptOf } from "./manage-api-keys.ts"
import { tokenIssuer } from "./tokens.ts"
import { openCredentialWatch } from "./watch-credentials.ts"

const ANN = `per_${"a".repeat(24)}`
const BOB = `per_${"b".repeat(24)}`
const IDLE = `ses_${"i".repeat(24)}`
const USED = `ses_${"u".repeat(24)}`

let service: TestService
let shop: string
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service.stop())
beforeEach(async () => {
  await service.empty()
  shop = await service.merchant("shop")
  const created_at = new Date()
  for (const [id, sub] of [
    [ANN, "ann"],
    [BOB, "bob"],
  ] as const) {
    await service.ctx.db.insertInto("persons").values({ id, iss: service.issuer.issuer, sub, created_at }).execute()
    await service.ctx.db
      .insertInto("members")
      .values({ merchant_id: shop, person_id: id, role: "admin", created_at })
      .execute()
  }
})
afterEach(() => {
  vi.useRealTimers()
})

const by = (as: string) => ({ as })
const changeRole = (id: string, role: string) => service.call("PUT", `/api/console/team/${id}`, { role }, by("shop"))
const remove = (id: string) => service.call("DELETE", `/api/console/team/${id}`, undefined, by("shop"))
const makeKey = async () =>
  (await service.call("POST", "/api/console/api-keys", { name: "A", scopes: ["console"] }, by("shop"))).body as {
    id: string
    key: string
  }
const openWatch = (ctx: Context = service.ctx) => openCredentialWatch(ctx, ids => lastingSessions(ctx, ids))
const member = (personId: string) => ({
  apiKey: undefined,
  sessionId: undefined,
  member: { merchantId: shop, personId, role: "admin" as const },
})
const keyed = (id: string) => ({
  sessionId: undefined,
  apiKey: { id, merchantId: shop, scopes: ["console" as const], allowedIps: null },
  member: undefined,
})
const aborted = (signal: AbortSignal) => expect.poll(() => signal.aborted, { timeout: 30_000, interval: 10 }).toBe(true)

describe("a watch", () => {
  it.each([
    ["a removal", () => remove(ANN)],
    ["a role with less", () => changeRole(ANN, "viewer")],
    ["a role with more", () => changeRole(ANN, "owner")],
  ])("of a member ends with %s, and another's does not", async (_what, change) => {
    const watch = openWatch()
    const [ann, bob] = [ANN, BOB].map(id => watch(member(id)))
    expect((await change()).status).toBe(200)
    await aborted(ann?.signal as AbortSignal)
    expect(bob?.signal.aborted).toBe(false)
    bob?.close()
  })

  it("of a key ends with the secret that it was asked for with: by a roll, or at the end of its time, also one set later", async () => {
    // So no regular check sees it.
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] })
    const watch = openWatch()
    const { id, key } = await makeKey()
    const old = keyed(id)
    const held = watch({ ...old, apiKey: { ...old.apiKey, hash: keptOf(key).hash } })
    const rolled = await service.call("POST", `/api/console/api-keys/${id}/roll`, { graceSeconds: 0 }, by("shop"))
    await aborted(held.signal)
    const next = watch({ ...old, apiKey: { ...old.apiKey, hash: keptOf(rolled.body.key).hash } })
    const change = { expiresAt: new Date(service.ctx.now().getTime() + 3_000).toISOString() }
    expect((await service.call("PUT", `/api/console/api-keys/${id}`, change, by("shop"))).status).toBe(200)
    expect(next.signal.aborted).toBe(false)
    await aborted(next.signal)
    held.close()
    next.close()
  })

  it("of a key ends with its revocation, and another's does not", async () => {
    const watch = openWatch()
    const revoked = await makeKey()
    const ended = watch(keyed(revoked.id))
    const other = watch(keyed((await makeKey()).id))
    await service.call("DELETE", `/api/console/api-keys/${revoked.id}`, undefined, by("shop"))
    await aborted(ended.signal)
    expect(other.signal.aborted).toBe(false)
    other.close()
  })

  it("of what ended before it began ends at once", async () => {
    await remove(ANN)
    await aborted(openWatch()(member(ANN)).signal)
  })

  it("of a session ends an hour after its last use, however long its answer lasts, and not while it is used", async () => {
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] })
    const watch = openWatch()
    const now = new Date()
    const own = { iss: service.issuer.issuer, sub: "ann", way: "wallet", address: null, user_agent: null } as const
    const times = { created_at: now, last_seen_at: now, expires_at: new Date(now.getTime() + 43_200_000) }
    const held = new Map<string, Watch>()
    for (const id of [IDLE, USED]) {
      await service.ctx.db
        .insertInto("sessions")
        .values({ ...own, ...times, id, hash: id })
        .execute()
      held.set(id, watch({ apiKey: undefined, member: undefined, sessionId: id }))
    }
    const age = (id: string, ms: number) =>
      service.ctx.db
        .updateTable("sessions")
        .set({ last_seen_at: new Date(now.getTime() - ms) })
        .where("id", "=", id)
        .execute()
    await age(USED, 3_500_000)
    await age(IDLE, 3_600_000)
    vi.advanceTimersByTime(15_000)
    await aborted(held.get(IDLE)?.signal as AbortSignal)
    expect(held.get(USED)?.signal.aborted).toBe(false)
    for (const { close } of held.values()) close()
  })

  it("ends without a notification too, after a while, and after notifications may have been missed", async () => {
    let listener: ChangeListener | undefined
    const wakes = { ...service.ctx.wakes, onChange: (_topic: string, given: ChangeListener) => (listener = given) }
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] })
    const watch = openWatch({ ...service.ctx, wakes: wakes as never })
    const [ann, bob] = [ANN, BOB].map(id => watch(member(id)))
    await remove(ANN)
    vi.advanceTimersByTime(15_000)
    await aborted(ann?.signal as AbortSignal)
    await remove(BOB)
    listener?.missed()
    await aborted(bob?.signal as AbortSignal)
    ann?.close()
    bob?.close()
    expect(vi.getTimerCount()).toBe(0)
  })
})

describe("a file", () => {
  /** A second process on the same database, where there can be one. */
  let app: Server
  let other: OpenDatabase | undefined
  let lines: string
  const logged = {
    write: (line: string) => {
      lines += line
    },
  }
  beforeAll(async () => {
    const { ctx, issuer } = service
    if (onPostgres) {
      const { rows } = await sql<{ name: string }>`select current_database() as name`.execute(ctx.db)
      const url = Object.assign(new URL(process.env.DATABASE_URL ?? ""), { pathname: `/${rows[0]?.name}` })
      other = await openPostgres(url.href, () => {})
    }
    const own = other ? { db: other.db, wakes: await openWakes(other) } : {}
    const tokens = tokenIssuer(issuer.issuer, ctx.settings.oidcAudience)
    app = openApp({ ...ctx, ...own, log: openLog("info", logged) }, tokens)
    await app.listen({ host: "127.0.0.1", port: 0 })
  })
  afterAll(async () => {
    await app.close()
    await other?.close()
  })
  beforeEach(async () => {
    lines = ""
    // More than what lies in the buffers of a connection.
    await sql`insert into audit_entries (merchant_id, actor_kind, action, object_id, after)
      select ${shop}, 'service', 'paywall.created', 'pw', jsonb_build_object('name', repeat('x', 2000))
      from generate_series(1, 20000)`.execute(service.ctx.db)
  })

  /** Asks for a long file, and reads only its beginning. */
  async function begin(headers: Record<string, string>) {
    const { port } = app.server.address() as { port: number }
    const socket = connect(port, "127.0.0.1").on("error", () => {})
    // Noticed here, as it may come before anybody waits for it.
    const closed = new Promise(resolve => socket.once("close", resolve))
    const all = Object.entries({ host: "a", ...headers }).map(([name, value]) => `${name}: ${value}\r\n`)
    socket.write(`GET /api/console/audit.csv HTTP/1.1\r\n${all.join("")}\r\n`)
    const [head] = await once(socket, "data")
    expect(String(head)).toMatch(/^HTTP\/1\.1 200 /)
    socket.pause()
    return { socket, closed }
  }
  const cutOff = () =>
    expect.poll(() => lines, { timeout: 30_000, interval: 10 }).toContain("answer cut off because its credential ended")

  it("ends with the role of the person that asked for it, and the next request is refused", async () => {
    const headers = { authorization: `Bearer ${await service.issuer.token("ann")}` }
    const { socket, closed } = await begin(headers)
    expect((await remove(ANN)).status).toBe(200)
    await cutOff()
    socket.resume()
    await closed
    const next = await app.inject({ url: "/api/console/audit.csv", headers })
    expect(next.json()).toMatchObject({ error: "MERCHANT_REQUIRED" })
  })

  it("ends with the key that asked for it, and the next request is refused", async () => {
    const { id, key } = await makeKey()
    const headers = { "x-api-key": key }
    const { socket, closed } = await begin(headers)
    await service.call("DELETE", `/api/console/api-keys/${id}`, undefined, by("shop"))
    await cutOff()
    socket.resume()
    await closed
    expect((await app.inject({ url: "/api/console/audit.csv", headers })).statusCode).toBe(401)
  })
})
