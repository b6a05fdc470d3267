// When a key ends, where it works from, how it gets a new secret, and that nobody gets more by it than a role allows.
import { privateKeyToAccount } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { startService, type TestService } from "../../../test/service.ts"
import { type Role, SCOPES, type Scope } from "../../platform/http/rights.ts"

const url = "/api/console/api-keys"
const DAY_S = 86_400
/** Controls the payout address that test merchants have. */
const payoutWallet = privateKeyToAccount("0x2a871d0798f97d79848a013d4936a73bf4cc922c825d33c1cf7073dff6d409c6")

let service: TestService
let shop: string
beforeAll(async () => {
  service = await startService({ settings: { trustedProxies: ["127.0.0.1"] } })
})
afterAll(() => service.stop())
beforeEach(async () => {
  await service.empty()
  shop = await service.merchant("shop")
})

interface Made {
  id: string
  key: string
  last4: string
}
const create = async (more: object = {}, as = "shop"): Promise<Made> => {
  const answer = await service.call("POST", url, { name: "Server", ...more }, { as })
  expect(answer.status, JSON.stringify(answer.body)).toBe(201)
  return answer.body
}
const change = (id: string, body: object, as = "shop", headers: Record<string, string> = {}) =>
  service.call("PUT", `${url}/${id}`, body, { as, headers })
const roll = (id: string, graceSeconds: number, as = "shop", headers: Record<string, string> = {}) =>
  service.call("POST", `${url}/${id}/roll`, { graceSeconds }, { as, headers })
const ask = (key: string, more: object = {}) =>
  service.call("GET", "/api/checkouts", undefined, { headers: { "x-api-key": key }, ...more })
const status = async (key: string) => (await ask(key)).status
const inSeconds = (s: number) => new Date(service.ctx.now().getTime() + s * 1_000).toISOString()
const row = (id: string) =>
  service.ctx.db.selectFrom("api_keys").selectAll().where("id", "=", id).executeTakeFirstOrThrow()
const entries = () => service.ctx.db.selectFrom("audit_entries").selectAll().orderBy("n").execute()

/** Makes a person a member of the shop. */
async function join(as: string, role: Role): Promise<void> {
  const { db } = service.ctx
  const id = `per_${as.padEnd(24, "a")}`
  const created_at = service.ctx.now()
  await db.insertInto("persons").values({ id, iss: service.issuer.issuer, sub: as, created_at }).execute()
  await db.insertInto("members").values({ merchant_id: shop, person_id: id, role, created_at }).execute()
}

describe("the end of a key", () => {
  it("is the moment that it names, not one before, and its merchant can give it more time", async () => {
    const { id, key } = await create({ expiresAt: inSeconds(3_600) })
    service.advance(3_590_000)
    expect(await status(key)).toBe(200)
    service.advance(11_000)
    expect(await ask(key)).toMatchObject({ status: 401, body: { message: "This API key has expired." } })
    expect((await change(id, { expiresAt: inSeconds(60) })).status).toBe(200)
    expect(await status(key)).toBe(200)
    expect((await change(id, { expiresAt: null })).body.expiresAt).toBeNull()
    service.advance(DAY_S * 1_000)
    expect(await status(key)).toBe(200)
  })
})

describe("the addresses of a key", () => {
  const from = (ip: string) => ({ remoteAddress: ip })
  it("are the only ones that it works from, as single ones and as networks", async () => {
    const { id, key } = await create({ allowedIps: ["192.0.2.7", "198.51.100.0/24", "2001:db8::/32"] })
    for (const ip of ["192.0.2.7", "::ffff:192.0.2.7", "198.51.100.255", "2001:db8:1::1"])
      expect((await ask(key, from(ip))).status, ip).toBe(200)
    for (const ip of ["192.0.2.8", "198.51.101.1", "2001:db9::1", "127.0.0.1"])
      expect(await ask(key, from(ip)), ip).toMatchObject({ status: 403, body: { error: "IP_NOT_ALLOWED" } })
    expect((await change(id, { allowedIps: ["192.0.2.8"] })).status).toBe(200)
    expect((await ask(key, from("192.0.2.7"))).status).toBe(403)
    expect((await change(id, { allowedIps: null })).status).toBe(200)
    expect((await ask(key, from("192.0.2.7"))).status).toBe(200)
  })

  it("are those that a trusted proxy names, and none that a caller claims", async () => {
    const { key } = await create({ allowedIps: ["192.0.2.7"] })
    const headers = { "x-api-key": key, "x-forwarded-for": "192.0.2.7" }
    expect((await ask(key, { headers, remoteAddress: "127.0.0.1" })).status).toBe(200)
    expect((await ask(key, { headers, remoteAddress: "203.0.113.9" })).status).toBe(403)
  })

  it("are not shown to a stranger: a wrong key is 401 from everywhere", async () => {
    const { key } = await create({ allowedIps: ["192.0.2.7"] })
    expect((await ask(`${key.slice(0, -4)}aaaa`, from("203.0.113.9"))).status).toBe(401)
  })
})

describe("a rolled key", () => {
  it("keeps its id and what it may do; both secrets work for the time given, then the new one alone", async () => {
    const { id, key } = await create({ scopes: ["checkouts", "read"] })
    const rolled = await roll(id, 600)
    expect(rolled).toMatchObject({ status: 200, body: { id, scopes: ["checkouts", "read"] } })
    const { key: next, last4, previousExpiresAt } = rolled.body
    expect(next).not.toBe(key)
    expect(last4).toBe(next.slice(-4))
    expect(previousExpiresAt).toBe((await row(id)).previous_until?.toISOString())
    expect([await status(key), await status(next)]).toEqual([200, 200])
    service.advance(601_000)
    expect([await status(key), await status(next)]).toEqual([401, 200])
  })

  it("has at most two secrets, and without a time only the new one", async () => {
    const { id, key } = await create()
    const second = (await roll(id, 600)).body.key
    const third = (await roll(id, 600)).body.key
    expect([await status(key), await status(second), await status(third)]).toEqual([401, 200, 200])
    const fourth = (await roll(id, 0)).body.key
    expect([await status(second), await status(third), await status(fourth)]).toEqual([401, 401, 200])
    expect((await service.call("GET", url, undefined, { as: "shop" })).body.data).toHaveLength(1)
  })

  it("stops with its revocation, with both secrets", async () => {
    const { id, key } = await create()
    const next = (await roll(id, 600)).body.key
    await service.call("DELETE", `${url}/${id}`, undefined, { as: "shop" })
    expect([await status(key), await status(next)]).toEqual([401, 401])
  })

  it.each([
    {},
    { graceSeconds: -1 },
    { graceSeconds: 7 * DAY_S + 1 },
    { graceSeconds: "600" },
    { graceSeconds: 1, a: 1 },
  ])("400 for %j", async body => {
    const { id, key } = await create()
    const before = await row(id)
    const answer = await service.call("POST", `${url}/${id}/roll`, body, { as: "shop" })
    expect(answer).toMatchObject({ status: 400, body: { error: "VALIDATION_ERROR" } })
    expect(await row(id)).toEqual(before)
    expect(await status(key)).toBe(200)
  })
})

describe("a change of a key", () => {
  it("is of the fields that it names, and the audit log has it", async () => {
    const { id } = await create({ limits: { refundPerDay: 100 } })
    const changed = await change(id, { name: "Till", scopes: ["read"], limits: { returnPerDay: 5 } })
    expect(changed.body).toMatchObject({
      name: "Till",
      scopes: ["read"],
      limits: { refundPerDay: 100, returnPerDay: 5 },
    })
    expect((await change(id, { limits: { refundPerDay: null } })).body.limits).toEqual({
      refundPerDay: null,
      returnPerDay: 5,
    })
    expect((await entries()).at(-1)).toMatchObject({
      action: "api_key.changed",
      before: { refund_per_day: 100 },
      after: { refund_per_day: null },
    })
  })

  it.each([
    { name: " " },
    { scopes: [] },
    { scopes: ["everything"] },
    { expiresAt: "2020-01-01T00:00:00Z" },
    { allowedIps: ["1.2.3.4/40"] },
    { limits: { refundPerDay: 2_000_000_000 } },
    { key: "sk_test_x" },
  ])("400 for %j, and nothing is changed", async body => {
    const { id } = await create()
    const before = [await row(id), await entries()]
    expect(await change(id, body)).toMatchObject({ status: 400, body: { error: "VALIDATION_ERROR" } })
    expect([await row(id), await entries()]).toEqual(before)
  })

  it("404 for another merchant's, and for none", async () => {
    const { id } = await create()
    await service.merchant("rival")
    const before = await row(id)
    for (const [key, as] of [
      [id, "rival"],
      [`key_${"a".repeat(24)}`, "shop"],
    ] as const) {
      expect((await change(key, { name: "Mine" }, as)).status).toBe(404)
      expect((await roll(key, 0, as)).status).toBe(404)
    }
    expect(await row(id)).toEqual(before)
  })
})

describe("a developer", () => {
  const money: Scope[][] = [["money"], ["console"], ["read", "money"], ["checkouts", "console"]]
  beforeEach(() => join("dora", "developer"))

  it("gives a key no more than the role allows, when it is made, changed or rolled", async () => {
    for (const scopes of money) {
      const made = await service.call("POST", url, { name: "Server", scopes }, { as: "dora" })
      expect(made, `${scopes}`).toMatchObject({ status: 403, body: { error: "ROLE_REQUIRED" } })
    }
    const own = await create({ scopes: ["read", "catalog", "webhooks", "checkouts", "settings:read"] }, "dora")
    const owners = await create({ scopes: ["money"], limits: { refundPerDay: 10 }, allowedIps: ["192.0.2.7"] })
    const before = [await row(own.id), await row(owners.id), await entries()]
    for (const scopes of money) expect((await change(own.id, { scopes }, "dora")).status).toBe(403)
    // Nor more money, nor more places, nor a secret of the owner's key.
    for (const body of [{ limits: { refundPerDay: 11 } }, { allowedIps: null }, { expiresAt: inSeconds(60) }])
      expect((await change(owners.id, body, "dora")).status).toBe(403)
    expect((await roll(owners.id, 0, "dora")).status).toBe(403)
    expect([await row(own.id), await row(owners.id), await entries()]).toEqual(before)
    expect((await roll(own.id, 0, "dora")).status).toBe(200)
    expect((await change(owners.id, { scopes: ["read"] }, "dora")).status).toBe(200)
  })

  it("loses that with the role, at once", async () => {
    const { id } = await create({}, "dora")
    await service.ctx.db.updateTable("members").set({ role: "viewer" }).where("role", "=", "developer").execute()
    expect((await change(id, { name: "Mine" }, "dora")).status).toBe(403)
    expect((await roll(id, 0, "dora")).status).toBe(403)
  })
})

describe("with the wallet lock on", () => {
  const header = async ({ body }: { body: { error: string; details: { typedData: never }[] } }) => {
    expect(body.error, JSON.stringify(body)).toBe("WALLET_SIGNATURE_REQUIRED")
    const { typedData } = body.details[0] as { typedData: { message: { nonce: string } } & never }
    const signature = await payoutWallet.signTypedData(typedData)
    return { "wallet-signature": `${(typedData as { message: { nonce: string } }).message.nonce} ${signature}` }
  }
  beforeEach(async () => {
    await service.ctx.db.updateTable("merchants").set({ wallet_lock: true }).where("id", "=", shop).execute()
  })

  it("a key for money is made, changed and rolled only with the wallet's signature; others without", async () => {
    await create({ scopes: SCOPES.filter(scope => !["money", "console"].includes(scope)) })
    const body = { name: "Till", scopes: ["money"], limits: { refundPerDay: 10 } }
    const refused = await service.call("POST", url, body, { as: "shop" })
    const made = await service.call("POST", url, body, { as: "shop", headers: await header(refused) })
    expect(made.status).toBe(201)
    const { id } = made.body
    const before = await row(id)
    const wider = { limits: { refundPerDay: 1_000 } }
    const asked = await change(id, wider)
    expect(asked.body.details[0].typedData.message).toMatchObject({
      action: "Change API key",
      from: "Scopes: money; refunds up to 10 per day",
      to: "Scopes: money; refunds up to 1000 per day",
    })
    const rolled = await roll(id, 0)
    expect(rolled.body.error).toBe("WALLET_SIGNATURE_REQUIRED")
    expect(await row(id)).toEqual(before)
    // A signature is for one change of one key.
    expect((await roll(id, 0, "shop", await header(asked))).status).toBe(403)
    expect((await change(id, wider, "shop", await header(await change(id, wider)))).status).toBe(200)
    expect((await roll(id, 0, "shop", await header(await roll(id, 0)))).status).toBe(200)
    expect((await change(id, { name: "Renamed" })).status).toBe(200)
    expect((await change(id, { scopes: ["read"] })).status).toBe(200)
  })
})
