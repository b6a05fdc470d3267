// An answer with a secret is given again to whoever repeats the request, for an hour, and is nowhere to be read.
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { type Receiver, startReceiver } from "../../../test/receiver.ts"
import { startService, type TestService } from "../../../test/service.ts"

let service: TestService
let receiver: Receiver
let shop: string
beforeAll(async () => {
  service = await startService()
  receiver = await startReceiver()
})
afterAll(async () => {
  await service.stop()
  await receiver.stop()
})
beforeEach(async () => {
  await service.empty()
  shop = await service.merchant("shop")
})

type Headers = Record<string, string>
const post = (path: string, body: object, headers: Headers, as: string | null = "shop") =>
  service.call("POST", `/api/console/${path}`, body, { headers, ...(as === null ? {} : { as }) })
const once = (key = "k-1") => ({ "idempotency-key": key })
const create = async () => (await post("api-keys", { name: "A", scopes: ["webhooks"] }, {})).body
const endpoint = () => ({ url: receiver.url, events: ["*"] })

/** Each route that answers a secret: its path, its body, and the secret in its answer. */
const routes: [string, () => Promise<[string, object]>, RegExp][] = [
  ["creates a key", async () => ["api-keys", { name: "Till" }], /sk_test_\w{40}/],
  ["rolls a key", async () => [`api-keys/${(await create()).id}/roll`, { graceSeconds: 60 }], /sk_test_\w{40}/],
  ["creates a webhook", async () => ["webhooks", endpoint()], /whsec_[\w+/=]+/],
  [
    "rolls a webhook's secret",
    async () => [`webhooks/${(await post("webhooks", endpoint(), {})).body.data.id}/roll-secret`, {}],
    /whsec_[\w+/=]+/,
  ],
  ["rolls the account's secret", async () => ["settings/webhook-secret", {}], /whsec_[\w+/=]+/],
  ["reveals the account's secret", async () => ["settings/webhook-secret/reveal", {}], /whsec_[\w+/=]+/],
]

describe.each(routes)("a request that %s", (_, prepare, form) => {
  it("repeated with its key gets the same secret, is done once, and is in the audit log", async () => {
    const [path, body] = await prepare()
    const first = await post(path, body, once())
    expect(first.status, JSON.stringify(first.body)).toBeLessThan(300)
    const [secret = ""] = form.exec(JSON.stringify(first.body)) ?? []
    expect(secret).not.toBe("")
    const rows = await count()
    const again = await post(path, body, once())
    expect(again).toMatchObject({ status: first.status, headers: { "idempotent-replayed": "true" }, body: first.body })
    expect(await count()).toEqual({ ...rows, entries: rows.entries + 1 })
    const newest = await service.ctx.db.selectFrom("audit_entries").selectAll().orderBy("n", "desc").executeTakeFirst()
    expect(newest).toMatchObject({
      action: "secret.shown_again",
      actor_id: "shop",
      object_id: first.body.id ?? first.body.data.id ?? shop,
    })
    const kept = await service.ctx.db.selectFrom("idempotency_keys").selectAll().execute()
    expect(kept).toHaveLength(1)
    expect(JSON.stringify(kept, (_, value) => (typeof value === "bigint" ? `${value}` : value))).not.toContain(secret)
  })

  it("is not given to anyone else", async () => {
    const [path, body] = await prepare()
    const first = await post(path, body, once())
    await service.merchant("rival")
    const [secret = ""] = form.exec(JSON.stringify(first.body)) ?? []
    const rivals = await post(path, body, once(), "rival")
    expect(JSON.stringify(rivals.body)).not.toContain(secret)
    expect(rivals.headers).not.toHaveProperty("idempotent-replayed")
    const { key } = await create()
    const byKey = await post(path, body, { ...once(), "x-api-key": key }, null)
    expect(JSON.stringify(byKey.body)).not.toContain(secret)
    expect(byKey.headers).not.toHaveProperty("idempotent-replayed")
  })
})

it("an answer with a secret is kept for an hour, and unreadable under another secret key", async () => {
  const first = await post("api-keys", { name: "Till" }, once())
  const { rows } = await sql<{ s: number }>`
    select extract(epoch from expires_at - clock_timestamp())::int as s from idempotency_keys`.execute(service.ctx.db)
  expect(rows[0]?.s).toBeGreaterThan(3_500)
  expect(rows[0]?.s).toBeLessThanOrEqual(3_600)
  const { settings } = service.ctx
  const before = settings.secretKeys
  settings.secretKeys = [new Uint8Array(32).fill(9)]
  expect((await post("api-keys", { name: "Till" }, once())).status).toBe(500)
  settings.secretKeys = before
  await sql`update idempotency_keys set expires_at = clock_timestamp() - interval '1 second'`.execute(service.ctx.db)
  const later = await post("api-keys", { name: "Till" }, once())
  expect(later.status).toBe(201)
  expect(later.body.id).not.toBe(first.body.id)
})

it("an answer with a secret of another body is 422, and writes nothing", async () => {
  await post("api-keys", { name: "Till" }, once())
  const rows = await count()
  expect(await post("api-keys", { name: "Other" }, once())).toMatchObject({
    status: 422,
    body: { error: "IDEMPOTENCY_MISMATCH" },
  })
  expect(await count()).toEqual(rows)
})

async function count() {
  const { rows } = await sql<{ keys: number; secrets: number; webhooks: number; entries: number; hashes: string }>`
    select (select count(*)::int from api_keys) as keys, (select count(*)::int from webhook_secrets) as secrets,
      (select count(*)::int from webhooks) as webhooks, (select count(*)::int from audit_entries) as entries,
      (select string_agg(hash, ',' order by id) from api_keys) as hashes`.execute(service.ctx.db)
  const [row] = rows
  if (!row) throw new Error("a count has one row")
  return row
}
