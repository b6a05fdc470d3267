// What an entry says, what it must never say, who may read it, and that nothing is lost or invented.
import { readFileSync } from "node:fs"
import { sql } from "kysely"
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { until } from "../../../test/e2e/program.ts"
import { startReceiver } from "../../../test/receiver.ts"
import { PAYOUT_ADDRESS, startService, type TestService } from "../../../test/service.ts"
import { startSubscriptionRig } from "../../../test/subscription-rig.ts"
import { signInFields, signMessage } from "../../../test/wallet.ts"
import { actorStatement, withActor } from "../../platform/actor.ts"
import { type Context, inTransaction } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { runLoop } from "../../platform/jobs/run.ts"
import { applyPendingPayoutAddresses } from "../../products/settings/change-settings.ts"
import { actions } from "./schema.ts"

const PROXY = "10.0.0.1"

let service: TestService
beforeAll(async () => {
  service = await startService({ settings: { trustedProxies: [PROXY] } })
})
afterAll(() => service.stop())
beforeEach(async () => {
  await service.empty()
  await service.merchant("shop")
})

const db = () => service.ctx.db
const rows = () => db().selectFrom("audit_entries").selectAll().orderBy("n").execute()
const last = async (): Promise<Row<"audit_entries"> | undefined> => (await rows()).at(-1)
const list = async (query = "", as = "shop") =>
  (await service.call("GET", `/api/console/audit${query}`, undefined, { as })).body
type Options = Parameters<TestService["call"]>[3]
/** Creates something as the shop; returns its id. */
const made = async (path: string, body: object, options: Options = {}): Promise<string> => {
  const answer = await service.call("POST", `/api/console/${path}`, body, { as: "shop", ...options })
  expect(answer.status, JSON.stringify(answer.body)).toBe(201)
  return answer.body.id
}
const product = (options?: Options) => made("products", { name: "Report", price: "5.00" }, options)

describe("an entry", () => {
  it("has the fields that changed, before and after, in the forms of the API", async () => {
    const recipients = [
      { address: PAYOUT_ADDRESS, percent: 33.3333, label: "Author" },
      { address: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", percent: 66.6667 },
    ]
    const splitId = await made("splits", { name: "Two", recipients })
    const id = await made("paywalls", {
      name: "Film",
      price: "5.00",
      accessDuration: 3_600,
      pricingModel: "subscription",
    })
    const change = { price: "7.25", splitId, accessDuration: 7_200, name: "Film" }
    await service.call("PUT", `/api/console/paywalls/${id}`, change, { as: "shop" })
    const { data, total } = await list(`?object=${id}`)
    expect(total).toBe(2)
    expect(data[0]).toMatchObject({
      id: expect.stringMatching(/^aud_[0-9a-f]{32}$/),
      actor: { kind: "console", id: "shop", issuer: service.issuer.issuer },
      action: "paywall.changed",
      object: { type: "paywall", id },
      address: "127.0.0.1",
      route: "PUT /api/console/paywalls/:id",
    })
    expect(data[0].before).toEqual({ price: "5.00", splitId: null, accessDuration: 3_600 })
    expect(data[0].after).toEqual({ price: "7.25", splitId, accessDuration: 7_200 })
    expect(data[1]).toMatchObject({ action: "paywall.created", before: null })
    expect(data[1].after).toMatchObject({ name: "Film", price: "5.00", chain: "base-sepolia", active: true })
    const [split] = (await list(`?object=${splitId}`)).data
    expect(split.after.recipients).toEqual([
      { address: PAYOUT_ADDRESS, percent: 33.3333, label: "Author" },
      { address: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", percent: 66.6667, label: null },
    ])
    const [address] = (await list("?action=payout_address.created")).data
    expect(address).toMatchObject({ object: { id: "eip155:84532" }, after: { address: PAYOUT_ADDRESS } })
  })

  it("is not left by what changes nothing, nor by uses and counts", async () => {
    const id = await made("payment-links", { title: "Donate", slug: "donate" })
    const { key } = (await service.call("POST", "/api/console/api-keys", { name: "Server" }, { as: "shop" })).body
    const routes = [{ method: "GET", path: "/cities", price: "0.01" }]
    const bundle = await made("bundles", { name: "API", originUrl: "https://api.example", routes })
    const before = await rows()
    expect((await service.call("PUT", `/api/console/bundles/${bundle}`, { routes }, { as: "shop" })).status).toBe(200)
    await service.call("PUT", `/api/console/payment-links/${id}`, { title: "Donate" }, { as: "shop" })
    await db().updateTable("payment_links").set({ uses: 7 }).execute()
    const opened = await service.call("POST", "/api/pay/sessions", { slug: "donate", amount: "5.00" })
    expect(opened.status).toBeLessThan(300)
    const used = await service.call("GET", "/api/checkouts", undefined, { headers: { "x-api-key": key } })
    expect(used.status).toBe(200)
    expect(await rows()).toEqual(before)
  })

  it("is undone with its change, and a repeated request leaves no second one", async () => {
    const before = await rows()
    const body = { name: "Film", price: "5.00", slug: "film" }
    const headers = { "idempotency-key": "one" }
    for (let i = 0; i < 3; i++) await made("paywalls", body, { headers })
    expect((await rows()).length).toBe(before.length + 1)
    expect((await service.call("POST", "/api/console/paywalls", body, { as: "shop" })).status).toBe(409)
    const undone = inTransaction(service.ctx, async ({ db }) => {
      await db.updateTable("paywalls").set({ name: "Other" }).execute()
      throw new Error("no")
    })
    await expect(undone).rejects.toThrow("no")
    expect((await rows()).length).toBe(before.length + 1)
  })

  it("is never changed or deleted", async () => {
    const kept = await rows()
    for (const statement of [
      "update audit_entries set object_id = 'x'",
      "delete from audit_entries",
      "truncate audit_entries",
    ])
      await expect(sql.raw(statement).execute(db())).rejects.toThrow("never changed or deleted")
    expect(await rows()).toEqual(kept)
  })

  it("is neither lost nor falsified by a session whose search_path finds other tables and functions first", async () => {
    const recipients = [
      { address: PAYOUT_ADDRESS, percent: 50, label: "Author" },
      { address: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", percent: 50 },
    ]
    const routes = [{ method: "GET", path: "/cities", price: "0.01" }]
    const ids = [
      await made("splits", { name: "One", recipients }),
      await made("bundles", { name: "API", originUrl: "https://api.example", routes }),
    ]
    const change = async (hostile: string[]): Promise<Partial<Row<"audit_entries">>[]> => {
      let written: Partial<Row<"audit_entries">>[] = []
      const undone = inTransaction(service.ctx, async ({ db }) => {
        for (const statement of hostile) await sql.raw(statement).execute(db)
        await sql`update public.splits set name = 'Two' where id = ${ids[0]}`.execute(db)
        await sql`insert into public.bundle_routes select (jsonb_populate_record(r, '{"n": 1, "shape": "x"}')).*
          from public.bundle_routes r where bundle_id = ${ids[1]}`.execute(db)
        const all = await sql<Row<"audit_entries">>`select * from public.audit_entries order by n`.execute(db)
        written = all.rows.map(({ action, object_id, merchant_id, before, after }) => {
          return { action, object_id, merchant_id, before, after }
        })
        throw new Error("undone")
      })
      await expect(undone).rejects.toThrow("undone")
      return written
    }
    const usual = await change([])
    expect(usual.slice(-2).map(({ action }) => action)).toEqual(["split.changed", "bundle_routes.added"])
    const tables = ["audit_entries", "recipients", "bundles", "paywalls"]
    const hostile = [
      ...tables.map(name => `create temporary table ${name} (like public.${name} including all)`),
      "create schema hostile",
      "create function hostile.to_jsonb(anyelement) returns jsonb language sql as $$ select '{}'::jsonb $$",
      "create function hostile.audited(text, jsonb) returns jsonb language sql as $$ select '{}'::jsonb $$",
      "create function hostile.audit_value(jsonb, boolean) returns jsonb language sql as $$ select 'null'::jsonb $$",
      "create function hostile.add_audit_entry(text, text, text, integer, jsonb, jsonb) returns void language sql as 'select'",
    ]
    for (const path of ["pg_temp, public", "hostile, pg_catalog, public", "pg_temp, hostile"])
      expect(await change([...hostile, `set local search_path = ${path}`]), path).toEqual(usual)
  })

  it("loses where it came from by the statements of docs/merchants/audit.md, and by no other", async () => {
    const docs = readFileSync(new URL("../../../../docs/merchants/audit.md", import.meta.url), "utf8")
    const text = /```sql\nbegin;\n([\s\S]*?)commit;\n```/.exec(docs)?.[1]?.replace("auth0|ada", "shop") ?? ""
    const statements = text.split(";\n").filter(each => each !== "")
    expect(statements).toHaveLength(3)
    await inTransaction(service.ctx, async ({ db }) => {
      for (const statement of statements) await sql.raw(statement).execute(db)
    })
    const kept = await rows()
    expect(kept.map(({ address, user_agent }) => [address, user_agent])).toEqual(kept.map(() => [null, null]))
    await expect(sql`delete from audit_entries`.execute(db())).rejects.toThrow("never changed or deleted")
  })

  it("shows a time that no Date has as it is", async () => {
    const id = await made("payment-links", { title: "Donate", slug: "donate" })
    await sql`update payment_links set expires_at = 'infinity' where id = ${id}`.execute(db())
    const { data } = await list(`?object=${id}`)
    expect(data[0]).toMatchObject({ before: { expiresAt: null }, after: { expiresAt: "infinity" } })
  })

  it("keeps a long value as its beginning, and a number that no double has as text", async () => {
    const openapi = { description: "x".repeat(50_000) }
    const id = await made("bundles", { name: "API", originUrl: "https://api.example", routes: [], openapi })
    expect(JSON.stringify((await last())?.after).length).toBeLessThan(12_000)
    await sql`update products set price = 123456789012345678901234567890 where id = ${await product()}`.execute(db())
    expect((await last())?.after).toEqual({ price: "123456789012345678901234567890" })
    expect((await list(`?object=${id}`)).total).toBe(1)
  })
})

describe("the actor", () => {
  it("is who the credential says, whatever else a request says", async () => {
    await product({
      remoteAddress: "203.0.113.9",
      headers: {
        "x-forwarded-for": "198.51.100.1",
        "x-real-ip": "198.51.100.2",
        "x-actor": "operator",
        "sluice.actor": "e30=",
        "x-request-id": "mine",
        "user-agent": `'); drop table audit_entries; -- ${"\u00e9\t\u0001"}${"x".repeat(5_000)}`,
      },
    })
    expect(await last()).toMatchObject({
      actor_kind: "console",
      actor_id: "shop",
      address: "203.0.113.9",
      request_id: "mine",
      user_agent: "'); drop table audit_entries; -- ???".padEnd(200, "x"),
    })
  })

  it.each([
    ["198.51.100.7", "198.51.100.7"],
    ["evil, 198.51.100.7", "198.51.100.7"],
    ["[2001:DB8::1]:443", "2001:db8::1"],
    ["::ffff:198.51.100.7", "198.51.100.7"],
    ["<script>", null],
  ])("behind a trusted proxy that sends %s has the address %s", async (forwarded, address) => {
    await product({ remoteAddress: PROXY, headers: { "x-forwarded-for": forwarded } })
    expect((await last())?.address).toBe(address)
  })

  it("is a key, whatever name it has, where a key does what has an entry", async () => {
    const merchantId = await service.merchant("shop")
    const actor = { kind: "api_key", id: `key_'"\\\u{1f600}`, route: "POST /x" } as const
    await withActor(actor, () =>
      inTransaction(service.ctx, ({ db }) =>
        db.updateTable("merchants").set({ name: "New" }).where("id", "=", merchantId).execute(),
      ),
    )
    expect(await last()).toMatchObject({
      actor_kind: "api_key",
      actor_id: actor.id,
      action: "settings.changed",
      address: null,
    })
  })

  it("is each request's own, with many at once", async () => {
    const names = Array.from({ length: 30 }, (_, i) => `merchant ${i}`)
    await Promise.all(names.map(as => service.merchant(as)))
    await Promise.all(
      names.flatMap(as => [
        product({ as }),
        product({ as }),
        service.call("GET", "/api/console/settings", undefined, { as }),
      ]),
    )
    const members = db().selectFrom("members").innerJoin("persons", "persons.id", "members.person_id")
    const owners = new Map(
      (await members.select(["merchant_id", "sub"]).execute()).map(row => [row.merchant_id, row.sub]),
    )
    const entries = await rows()
    expect(entries.filter(({ actor_id, merchant_id }) => actor_id !== owners.get(merchant_id))).toEqual([])
    // For each merchant: itself, its secret, its owner, its address, two products.
    expect(entries.length).toBe(6 * names.length + 4)
  })

  it("is the service, where the service changes configuration by itself", async () => {
    const merchant_id = await service.merchant("shop")
    const now = service.ctx.now()
    const pending = { pending_address: `0x${"9".repeat(40)}` as never, pending_at: new Date(now.getTime() - 1_000) }
    await db().updateTable("payout_addresses").set(pending).where("merchant_id", "=", merchant_id).execute()
    await inTransaction(service.ctx, applyPendingPayoutAddresses)
    const { data } = await list("?actorKind=service&action=payout_address.changed")
    expect(data[0]).toMatchObject({ actor: { kind: "service", id: null, issuer: null }, route: null, address: null })
    expect(data[0].after).toMatchObject({ address: `0x${"9".repeat(40)}`, pendingAddress: null, pendingAt: null })
  })

  it("of the first entry of a merchant that signs in with a wallet is that wallet", async () => {
    const wallet = privateKeyToAccount(generatePrivateKey())
    const { body } = await service.call("POST", "/api/auth/nonce")
    const signed = await signMessage(wallet, body.nonce, signInFields)
    const signedIn = await service.call("POST", "/api/auth/verify", signed)
    const headers = { authorization: `Bearer ${signedIn.body.accessToken}` }
    await service.call("GET", "/api/console/products", undefined, { headers })
    const [entry] = (await rows()).filter(({ route }) => route === "GET /api/console/products")
    const issuer = service.ctx.settings.baseUrl
    expect(entry).toMatchObject({ action: "settings.created", actor_kind: "console", actor_issuer: issuer })
    expect(entry?.actor_id).toBe(`eip155:84532:${wallet.address}`)
  })

  it("is nobody once its request is over: what the engine writes on the same connection leaves no entry", async () => {
    const id = await made("checkouts", { amount: "5.00" })
    const before = await rows()
    // As many as a pool has connections, so that an actor has used each of them.
    await Promise.all(Array.from({ length: 20 }, () => product()))
    const made20 = await rows()
    expect(made20.length).toBe(before.length + 20)
    const write = () =>
      inTransaction(service.ctx, ({ db }) =>
        db
          .updateTable("checkout_sessions")
          .set({ expires_at: new Date(0) })
          .where("id", "=", id)
          .execute(),
      )
    await Promise.all(Array.from({ length: 20 }, write))
    expect(await rows()).toEqual(made20)
  })

  it("is not that of the request that wakes a loop", async () => {
    const stop = new AbortController()
    const seen: unknown[] = []
    const round = async () => seen.push(actorStatement()) && 60_000
    const ctx: Context = { ...service.ctx, signal: stop.signal }
    const running = runLoop(ctx, { name: "a test", wokenBy: "housekeeping", gapMs: 0, round })
    await until("a round", async () => seen.length === 1)
    withActor({ kind: "console", id: "shop", route: "" }, () => ctx.wakes.wakeSoon("housekeeping"))
    await until("a round", async () => seen.length > 1)
    stop.abort()
    await running
    expect(new Set(seen)).toEqual(new Set([undefined]))
  })
})

it("what the engine writes leaves no entry: payments, renewals, payouts", async () => {
  const rig = await startSubscriptionRig()
  const entries = () =>
    rig.service.ctx.db.selectFrom("audit_entries").select(["action", "actor_kind"]).orderBy("n").execute()
  await rig.begin("2026-01-10T12:00:00Z")
  const id = await rig.subscribed()
  const before = await entries()
  rig.to("2026-02-10T13:00:00Z")
  await rig.look()
  await rig.pay(await rig.open(id))
  await rig.look()
  const payments = await rig.service.ctx.db.selectFrom("payments").select("status").execute()
  expect(payments).toEqual([{ status: "granted" }, { status: "granted" }])
  expect(await entries()).toEqual(before)
  expect(before.map(({ action }) => action)).not.toContain("payout.changed")
  await rig.stop()
})

describe("secrets", () => {
  it("are in no entry, as they are or as they are stored", async () => {
    const receiver = await startReceiver()
    const shop = { as: "shop" }
    const { key } = (await service.call("POST", "/api/console/api-keys", { name: "Server" }, shop)).body
    const hook = await service.call("POST", "/api/console/webhooks", { url: receiver.url, events: ["*"] }, shop)
    const { id, secret } = hook.body.data
    const rolled = await service.call("POST", `/api/console/webhooks/${id}/roll-secret`, {}, shop)
    const revealed = await service.call("POST", "/api/console/settings/webhook-secret/reveal", {}, shop)
    const account = await service.call("POST", "/api/console/settings/webhook-secret", {}, shop)
    const originHeaders = { authorization: "Bearer origins-own" }
    const bundle = { name: "API", originUrl: "https://api.example", routes: [], originHeaders }
    const bundleId = await made("bundles", bundle)
    const change = { originHeaders: { authorization: "Bearer another-one" } }
    expect((await service.call("PUT", `/api/console/bundles/${bundleId}`, change, shop)).status).toBe(200)
    const sold = { contentUrl: "https://films.example/hidden", contentData: { password: "swordfish" } }
    const paywall = await made("paywalls", { name: "Film", price: "5.00", ...sold })
    await service.call("PUT", `/api/console/paywalls/${paywall}`, { contentData: { password: "hammerhead" } }, shop)
    await receiver.stop()
    const stored = [
      ...(await db().selectFrom("api_keys").select("hash as it").execute()),
      ...(await db().selectFrom("webhook_secrets").select("sealed as it").execute()),
      ...(await db().selectFrom("bundle_headers").select("sealed as it").execute()),
    ].map(({ it }) => it)
    expect(stored.length).toBeGreaterThan(4)
    const shown = [
      key,
      secret,
      rolled.body.data.secret,
      revealed.body.data.webhookSecret,
      account.body.data.webhookSecret,
    ]
    const all = [...stored, ...shown, "origins-own", "another-one", "films.example/hidden", "swordfish", "hammerhead"]
    expect(all).not.toContain(undefined)
    const { rows: texts } = await sql<{
      text: string
    }>`select string_agg(e::text, ' ') as text from audit_entries e`.execute(db())
    expect(all.filter(each => texts[0]?.text.includes(each))).toEqual([])
    // The log shows that they changed.
    const changed = (await rows()).slice(-1)[0]
    expect(changed).toMatchObject({
      action: "paywall.changed",
      before: { content_data: "[secret]" },
      after: { content_data: "[secret]" },
    })
    expect((await list(`?object=${bundleId}&action=bundle_header.changed`)).total).toBe(1)
  })
})

describe("the list", () => {
  it("has the merchant's own entries alone, for whoever has its token or a key of the console", async () => {
    const id = await product()
    await service.merchant("rival")
    expect((await list(`?object=${id}`, "rival")).total).toBe(0)
    const rival = await list("?limit=1000", "rival")
    expect(rival.data.map((each: { actor: { id: string } }) => each.actor.id)).toEqual(Array(4).fill("rival"))
    for (const [scopes, status] of [[["checkouts", "read"], 403] as const, [["console"], 200] as const]) {
      const { key } = (await service.call("POST", "/api/console/api-keys", { name: "A", scopes }, { as: "shop" })).body
      for (const path of ["audit", "audit.csv"]) {
        const byKey = await service.call("GET", `/api/console/${path}`, undefined, { headers: { "x-api-key": key } })
        expect(byKey.status).toBe(status)
      }
    }
  })

  it("is newest first in pages, and takes filters by actor, action, object and time", async () => {
    const ids: string[] = []
    for (let i = 0; i < 7; i++) ids.unshift(await product())
    const all = await list("?action=product.created")
    const objects = (page: { data: { object: { id: string } }[] }) => page.data.map(({ object }) => object.id)
    expect(objects(all)).toEqual(ids)
    const pages = [
      await list("?action=product.created&limit=3"),
      await list("?action=product.created&limit=3&offset=3"),
    ]
    expect(pages.flatMap(objects)).toEqual(ids.slice(0, 6))
    expect(pages[0].total).toBe(7)
    expect((await list("?actor=shop&actorKind=console&action=product.created")).total).toBe(7)
    expect((await list("?actor=shopp")).total).toBe(0)
    expect((await list("?actorKind=operator")).total).toBe(0)
    const [{ at }] = (await list(`?object=${ids[3]}`)).data
    expect((await list(`?from=${at}&to=${new Date(Date.parse(at) + 1).toISOString()}&object=${ids[3]}`)).total).toBe(1)
    expect((await list(`?to=${at}&object=${ids[3]}`)).total).toBe(0)
    expect((await list("?from=2999-01-01")).total).toBe(0)
  })

  it("has its rows once each where it is sent in parts", async () => {
    const merchant = await service.merchant("shop")
    // All of them within some milliseconds, so that many have the same time.
    await sql`select add_audit_entry(${merchant}, 'paywall.changed', 'pw_' || i, null, null, null)
      from generate_series(1, 500) as i`.execute(db())
    const { data, total } = await list("?limit=1000&action=paywall.changed")
    expect(total).toBe(500)
    const ids = data.map((each: { object: { id: string } }) => each.object.id)
    expect(ids).toEqual(Array.from({ length: 500 }, (_, i) => `pw_${500 - i}`))
    const csv = await service.call("GET", "/api/console/audit.csv?action=paywall.changed", undefined, { as: "shop" })
    expect(csv.body.trimEnd().split("\r\n").length).toBe(501)
  })

  it("as CSV quotes what comes from outside, and runs no formula", async () => {
    const cunning = `=HYPERLINK("http://evil.example")`
    const as = "=cmd|'/c calc'!A1"
    await service.merchant(as)
    await made(
      "products",
      { name: cunning, price: "5.00" },
      { as, headers: { "user-agent": `=1+1,"a"`, "x-request-id": "-1-1" } },
    )
    const csv = await service.call("GET", "/api/console/audit.csv?action=product.created", undefined, { as })
    expect(csv.headers["content-disposition"]).toBe('attachment; filename="audit.csv"')
    const [head, line, ...rest] = csv.body.split("\r\n")
    expect(rest).toEqual([""])
    const names = "at,actorKind,actorId,actorIssuer,action,objectId,before,after,address,userAgent,route,requestId,id"
    expect(head).toBe(names)
    const cells = [...line.matchAll(/(?:^|,)("(?:[^"]|"")*"|[^,"]*)/g)].map(([, cell]) => cell)
    expect(cells.length).toBe(names.split(",").length)
    expect(cells[2]).toBe(`"'${as}"`)
    expect(cells[6]).toBe("")
    expect(JSON.parse((cells[7] ?? "").slice(1, -1).replaceAll('""', '"'))).toMatchObject({
      name: cunning,
      price: "5.00",
    })
    expect(cells[9]).toBe(`"'=1+1,""a"""`)
    expect(cells.filter(cell => /^"?[=+\-@]/.test(cell ?? ""))).toEqual([])
  })
})

it("every action of the triggers is in the document, and no other", async () => {
  const { rows: triggers } = await sql<{ name: string; type: number; args: string }>`
    select p.proname as name, t.tgtype as type, encode(t.tgargs, 'escape') as args
    from pg_trigger t join pg_proc p on p.oid = t.tgfoid where p.proname in ('write_audit_entry', 'write_audit_of_routes')`.execute(
    db(),
  )
  // The bits of `pg_trigger.tgtype`.
  const verbs = (type: number) => [
    ...(type & 4 ? ["created"] : []),
    ...(type & 16 ? ["changed"] : []),
    ...(type & 8 ? ["deleted"] : []),
  ]
  const written = triggers.flatMap(({ name, type, args }) => {
    if (name === "write_audit_of_routes") return [`bundle_routes.${type & 4 ? "added" : "removed"}`]
    const [what = ""] = args.split("\\000")
    return what.includes(".") ? [what] : verbs(type).map(verb => `${what}.${verb}`)
  })
  // A repeated answer changes no row, and a device is of no merchant before the decision.
  const byHand = ["secret.shown_again", "device_sign_in.approved", "device_sign_in.denied"]
  expect([...new Set([...written, ...byHand])].sort()).toEqual([...actions].sort())
})
