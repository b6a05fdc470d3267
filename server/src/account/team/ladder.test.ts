// No ladder: whatever members who are no owners do with invitations, roles, keys and merchants of their own, nobody reaches a right that the
// role an owner gave does not have.
import fc from "fast-check"
import { afterAll, beforeAll, expect, it } from "vitest"
import { startService, type TestService } from "../../../test/service.ts"
import { sendDeviceForm, withSession } from "../../../test/sign-in.ts"
import { hasRight, type Right, ROLES, type Role, rightTable, SCOPES, type Scope } from "../../platform/http/rights.ts"

let service: TestService
let origin: string
beforeAll(async () => {
  service = await startService()
  origin = await service.listen()
  Object.assign(service.ctx.settings, { baseUrl: origin, consoleUrl: origin })
})
afterAll(() => service.stop())

/** The role that an owner gave each; `guest` holds an invitation as a viewer, and `stranger` nothing. */
const given: Record<string, Role | undefined> = {
  admin: "admin",
  developer: "developer",
  finance: "finance",
  support: "support",
  viewer: "viewer",
  guest: "viewer",
  stranger: undefined,
}
const people = Object.keys(given)

const anybody = fc.constantFrom(...people)
const role = fc.constantFrom(...ROLES)
const action = fc.oneof(
  fc.record({ do: fc.constant("invite" as const), by: anybody, whom: anybody, role }),
  fc.record({ do: fc.constant("accept" as const), by: anybody, nth: fc.nat(9) }),
  fc.record({ do: fc.constant("change" as const), by: anybody, whom: fc.constantFrom("shop", ...people), role }),
  fc.record({ do: fc.constant("remove" as const), by: anybody, whom: fc.constantFrom("shop", ...people) }),
  fc.record({
    do: fc.constant("key" as const),
    by: anybody,
    scopes: fc.uniqueArray(fc.constantFrom(...SCOPES), { minLength: 1 }),
  }),
  fc.record({
    do: fc.constant("device" as const),
    by: anybody,
    scopes: fc.uniqueArray(fc.constantFrom(...SCOPES), { minLength: 1 }),
  }),
  fc.record({ do: fc.constant("adopt" as const), by: anybody, nth: fc.nat(9) }),
  fc.record({ do: fc.constant("roll" as const), by: anybody, nth: fc.nat(9) }),
  fc.record({ do: fc.constant("start" as const), by: anybody }),
)
type Action = typeof action extends fc.Arbitrary<infer A> ? A : never

/** Requests that a right alone allows; none of them changes anything. */
const probes: Partial<Record<Right, readonly ["GET" | "POST" | "PUT", string, object?]>> = {
  money: ["POST", "payments/refund", { sessionId: `cs_${"a".repeat(24)}` }],
  payouts: ["PUT", `splits/spl_${"a".repeat(24)}`, { name: "Mine" }],
  catalog: ["PUT", `products/prod_${"a".repeat(24)}`, { name: "Mine" }],
  webhooks: ["POST", `webhooks/c${"a".repeat(24)}/roll-secret`, {}],
  payers: ["POST", `subscriptions/sub_${"a".repeat(24)}/pause`, {}],
  audit: ["GET", "audit"],
  requests: ["GET", "requests"],
  keys: ["GET", "api-keys"],
  team: ["GET", "team/invitations"],
  erasure: ["GET", "erasures"],
}

async function walk(actions: Action[]): Promise<void> {
  await service.empty()
  const shop = await service.merchant("shop")
  const call = async (as: string, method: "GET" | "POST" | "PUT" | "DELETE", path: string, body?: unknown) => {
    const token = await service.issuer.token(as, { email: `${as}@x.example`, email_verified: true })
    const headers = { authorization: `Bearer ${token}`, "sluice-merchant": shop }
    return await service.call(method, `/api/console/${path}`, body, { headers })
  }
  const tokens: string[] = []
  const ids: Record<string, string> = { shop: (await call("shop", "GET", "me")).body.person.id }
  const keys: { by: string; key: string; id: string }[] = []
  for (const [as, given_] of Object.entries(given)) {
    if (given_ === undefined) continue
    const { token } = (await call("shop", "POST", "team/invitations", { email: `${as}@x.example`, role: given_ })).body
    if (as === "guest") tokens.push(token)
    else await call(as, "POST", "team/accept", { token })
    ids[as] = (await call(as, "GET", "me")).body.person.id
  }
  for (const each of actions) {
    const { by } = each
    if (each.do === "invite") {
      const asked = { email: `${each.whom}@x.example`, role: each.role }
      const { body } = await call(by, "POST", "team/invitations", asked)
      if (body.token) tokens.push(body.token)
    } else if (each.do === "accept") await call(by, "POST", "team/accept", { token: tokens[each.nth % tokens.length] })
    else if (each.do === "change") await call(by, "PUT", `team/${ids[each.whom]}`, { role: each.role })
    else if (each.do === "remove") await call(by, "DELETE", `team/${ids[each.whom]}`)
    else if (each.do === "start") await call(by, "POST", "merchants", {})
    else if (each.do === "device") {
      const made = await signDeviceIn(by, shop, each.scopes)
      if (made) keys.push({ by, ...made })
    } else if (each.do === "adopt") await call(by, "POST", `api-keys/${keys[each.nth % keys.length]?.id}/adopt`, {})
    else if (each.do === "roll") {
      const rolled = await call(by, "POST", `api-keys/${keys[each.nth % keys.length]?.id}/roll`, { graceSeconds: 60 })
      if (rolled.body.key) keys.push({ by, key: rolled.body.key, id: rolled.body.id })
    } else {
      const { body } = await call(by, "POST", "api-keys", { name: "A", scopes: each.scopes as Scope[] })
      if (body.key) keys.push({ by, key: body.key, id: body.id })
    }
  }
  for (const as of people) {
    const { merchants } = (await call(as, "GET", "me")).body
    const mine = merchants.find(({ merchantId }: { merchantId: string }) => merchantId === shop)
    for (const right of (mine?.rights ?? []) as Right[]) expect(may(as, right), `${as} has ${right}`).toBe(true)
    await expectReach(as, (method, path, body) => call(as, method, path, body))
  }
  for (const { by, key } of keys)
    await expectReach(by, (method, path, body) =>
      service.call(method, `/api/console/${path}`, body, { headers: { "x-api-key": key } }),
    )
  const owners = await service.ctx.db
    .selectFrom("members")
    .select("person_id")
    .where("merchant_id", "=", shop)
    .where("role", "=", "owner")
    .execute()
  expect(owners).toEqual([{ person_id: ids.shop }])
}

/** Has a device ask for a key of the shop's, and the person approve it; returns what the device gets. */
async function signDeviceIn(
  by: string,
  shop: string,
  scopes: readonly Scope[],
): Promise<{ key: string; id: string } | undefined> {
  const { device_code, user_code } = (await service.call("POST", "/api/device", { host: by, scopes })).body
  const visitor = await withSession(service.ctx, origin, by)
  for (const merchant of [undefined, shop])
    await sendDeviceForm(visitor, { code: user_code, does: "approve", ...(merchant ? { merchant } : {}) })
  const { status, body } = await service.call("POST", "/api/device/token", { device_code })
  // What it gets may be for a merchant of the person's own.
  return status === 200 && body.merchantId === shop ? { key: body.key, id: body.id } : undefined
}

const may = (as: string, right: Right): boolean => {
  const role = given[as]
  return role !== undefined && hasRight(role, right)
}

type Ask = (method: "GET" | "POST" | "PUT", path: string, body?: object) => Promise<{ status: number; body: unknown }>
async function expectReach(as: string, ask: Ask): Promise<void> {
  for (const right of Object.keys(probes) as Right[]) {
    if (may(as, right)) continue
    const [method, path, body] = probes[right] ?? []
    const answer = await ask(method ?? "GET", path ?? "", body)
    expect([400, 401, 403], `${as} reaches ${right}: ${JSON.stringify(answer.body)}`).toContain(answer.status)
    expect(JSON.stringify(answer.body)).toMatch(/MERCHANT_REQUIRED|ROLE_REQUIRED|SCOPE_REQUIRED|UNAUTHORIZED/)
  }
}

it("has a probe for each right that some role lacks, but for those that settings and secrets have", () => {
  const lacking = (Object.keys(rightTable) as Right[]).filter(right => ROLES.some(role => !hasRight(role, right)))
  expect(new Set([...Object.keys(probes), "secrets", "settings"])).toEqual(new Set(lacking))
})

it("nobody reaches more than the role that an owner gave", async () => {
  const walks = fc.asyncProperty(fc.array(action, { minLength: 5, maxLength: 25 }), walk)
  await fc.assert(walks, { numRuns: 25, seed: 47 })
})
