/**
 * Every route by which a merchant, or a payer's wallet, changes something: a valid request leaves entries with its
 * actor, or the route is in a short list with a reason. `server/test/bad-input.test.ts`, which compares every table,
 * shows that a refused request leaves none. The commands of operators are tested too.
 */
import type { InjectOptions } from "fastify"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import {
  BUYER,
  ids,
  personOf,
  prepare,
  type Route,
  routes,
  send,
  service,
  signed,
  startEverything,
  stopEverything,
} from "../../../test/everything.ts"
import { newRecurring } from "../../../test/subscriptions.ts"
import { openAdmin } from "../../operations/operator/open-admin.ts"
import type { Row } from "../../platform/db/schema.ts"

beforeAll(async () => {
  await startEverything()
  await prepare()
})
afterAll(stopEverything)

/** The document is generated from the registered routes, and `bad-input.test.ts` compares both. */
const changing = routes.filter(route => route.method !== "GET" && (route.isConsole || route.needsWallet))

const SENT = "sends events, which deliveries record with `by_hand` and each attempt"
/** Routes that change nothing that is logged, each with the reason. */
const silent: Record<string, string> = {
  "POST /api/console/erasures": "the example only counts; `erasure.test.ts` has one that erases",
  "POST /api/console/checkouts": "a checkout is its own record, and an entry would make each payment slower",
  "PUT /api/console/notifications":
    "what a person is mailed is the person's own choice; notices of security can't be switched off",
  "DELETE /api/console/sessions/{id}": "a session is a person's own, and of no merchant",
  "POST /api/console/webhooks/{id}/test": SENT,
  "POST /api/console/webhooks/{id}/recover": SENT,
  "POST /api/console/deliveries/{id}/resend": SENT,
  "POST /api/console/listeners/{id}/results": SENT,
}

/** These need an object of their own, because an earlier route used up the other one. */
const fresh = [
  "POST /api/console/payments/{id}/return",
  "POST /api/console/payments/return",
  "POST /api/console/payments/void",
  "POST /api/console/webhooks/{id}/test",
  "POST /api/console/listeners/{id}/results",
  "POST /api/console/settings/webhook-secret/reveal",
  "DELETE /api/console/team/invitations/{id}",
  "POST /api/console/api-keys/{id}/roll",
  "POST /api/console/api-keys/{id}/adopt",
]

/** Bodies where the document's example changes nothing here. */
const bodies: Record<string, () => Promise<object>> = {
  ...signed,
  "POST /api/console/payments/return": async () => ({ returns: [{ id: ids.payments, address: BUYER }] }),
  "PUT /api/console/subscriptions/{id}": async () => ({ productId: await newRecurring(service, "shop") }),
}

const entriesAfter = (n: bigint) =>
  service.ctx.db.selectFrom("audit_entries").selectAll().where("n", ">", n).orderBy("n").execute()
const newest = async (): Promise<bigint> => (await entriesAfter(0n)).at(-1)?.n ?? 0n
const actionsOf = (entries: Row<"audit_entries">[]) => [...new Set(entries.map(({ action }) => action))].sort()

describe.each(changing.map(route => [route.name, route] as const))("%s", (name, route: Route) => {
  it(name in silent ? `leaves no entry: ${silent[name]}` : "leaves entries with its actor", async () => {
    if (fresh.includes(name)) await prepare()
    const body = await bodies[name]?.()
    const before = await newest()
    const answer = await send(route, body ? { body: JSON.stringify(body) } : {})
    expect(answer.status, JSON.stringify(answer.body)).toBeLessThan(300)
    const entries = await entriesAfter(before)
    if (name in silent) return expect(entries).toEqual([])
    expect(entries).not.toEqual([])
    const person = personOf[name] ?? "shop"
    const from = route.isConsole
      ? { actor_kind: "console", actor_id: person, actor_issuer: service.issuer.issuer, address: "127.0.0.1" }
      : { actor_kind: "subscriber", actor_issuer: null, address: null, user_agent: null }
    for (const entry of entries)
      expect(entry).toMatchObject({
        ...from,
        merchant_id: person === "founder" ? answer.body.merchantId : await service.merchant("shop"),
        route: `${route.method} ${route.path.replaceAll(/\{(\w+)\}/g, ":$1")}`,
        request_id: answer.headers["x-request-id"],
      })
    if (!route.isConsole) expect(entries[0]?.actor_id).toMatch(/^eip155:0:0x[0-9a-fA-F]{40}$/)
    return undefined
  })
})

it("the lists above name routes that exist", () => {
  const names = changing.map(({ name }) => name)
  const known = new Set([...names, ...Object.keys(signed)])
  expect([...Object.keys(silent), ...fresh, ...Object.keys(bodies)].filter(name => !known.has(name))).toEqual([])
  expect(names.length).toBeGreaterThan(40)
})

describe("an operator's command", () => {
  const command = async (url: string, payload: object): Promise<number> => {
    const admin = openAdmin(service.ctx)
    const request: InjectOptions = { method: "POST", url, headers: { "content-type": "application/json" } }
    const { statusCode } = await admin.inject({ ...request, payload: JSON.stringify({ by: "ada", ...payload }) })
    await admin.close()
    return statusCode
  }
  const payoutId = async (): Promise<string> => {
    const { id } = await service.ctx.db
      .selectFrom("payouts")
      .select("id")
      .where("kind", "=", "refund")
      .where("state", "=", "queued")
      .executeTakeFirstOrThrow()
    return id
  }

  it("leaves an entry for each merchant's payout that it changes, with the operator's name", async () => {
    await prepare()
    const payout = await payoutId()
    const before = await newest()
    expect(await command("/retry", { payout })).toBe(200)
    expect(await command("/cancel", { payout, reason: "Asked for by the merchant" })).toBe(200)
    const entries = await entriesAfter(before)
    const object_id = `po_${payout.replaceAll("-", "")}`
    const by = { merchant_id: await service.merchant("shop"), actor_kind: "operator", actor_id: "ada", object_id }
    expect(entries).toMatchObject([
      { ...by, action: "payout.changed", route: "sluice wallet retry" },
      {
        ...by,
        route: "sluice wallet cancel",
        before: { state: "queued" },
        after: { state: "cancelled", stopped: true },
      },
    ])
  })

  it("leaves one for each of the payouts that it changes at once", async () => {
    await prepare()
    const held = { state: "held", held_reason: "gas_budget" } as const
    await service.ctx.db.updateTable("payouts").set(held).where("state", "=", "queued").execute()
    const before = await newest()
    expect(await command("/retry-all", {})).toBe(200)
    const entries = await entriesAfter(before)
    expect(entries.length).toBeGreaterThan(1)
    expect(actionsOf(entries)).toEqual(["payout.changed"])
    for (const entry of entries)
      expect(entry).toMatchObject({ actor_kind: "operator", route: "sluice wallet retry --all" })
  })

  it("leaves none where it is refused", async () => {
    await prepare()
    const payout = await payoutId()
    const before = await newest()
    expect(await command("/cancel", { payout })).toBe(400)
    expect(await command("/adopt-all", { wallet: "payout" })).toBeGreaterThan(399)
    expect(await entriesAfter(before)).toEqual([])
  })
})
