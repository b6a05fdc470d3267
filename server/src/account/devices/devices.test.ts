/** Sign-in of devices over HTTP, as the device asks and as the person decides, with the attacks on it. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { startService, type TestService } from "../../../test/service.ts"
import { newVisitor, sendDeviceForm, type Visitor, withSession } from "../../../test/sign-in.ts"
import { type Role, SCOPES } from "../../platform/http/rights.ts"
import { mayGive } from "../../platform/http/route-access.ts"
import { accountSecret } from "../webhooks/manage-secrets.ts"
import { forgetDevices } from "./queries.ts"

let service: TestService
let origin: string
const shop = `mer_${"s".repeat(24)}`
const other = `mer_${"o".repeat(24)}`
const personIdOf = (merchantId: string) => merchantId.replace(/^mer_/, "per_")

beforeAll(async () => {
  service = await startService()
  origin = await service.listen()
  Object.assign(service.ctx.settings, { baseUrl: origin, consoleUrl: origin })
})
afterAll(() => service.stop())
beforeEach(async () => {
  await service.empty()
  const iss = service.ctx.settings.oidcIssuer
  const { db } = service.ctx
  const created_at = new Date()
  for (const id of [shop, other]) {
    await db.insertInto("merchants").values({ id, name: id, email: null, created_at }).execute()
    await db
      .insertInto("persons")
      .values({ id: personIdOf(id), iss, sub: id, email: `${id}@x.example`, created_at })
      .execute()
    await join(id, id, "owner")
    await accountSecret(service.ctx, id)
  }
})
const join = (person: string, merchant_id: string, role: Role) =>
  service.ctx.db
    .insertInto("members")
    .values({ merchant_id, person_id: personIdOf(person), role, created_at: new Date() })
    .execute()
/** Makes the person of the other merchant a member of the shop alone. */
async function hire(role: Role): Promise<void> {
  await service.ctx.db.deleteFrom("members").where("person_id", "=", personIdOf(other)).execute()
  await join(other, shop, role)
}

const begin = async (asked: object = {}) =>
  (await service.call("POST", "/api/device", { host: "anns-laptop", ...asked })).body as {
    device_code: string
    user_code: string
  }
/** The device waits as long as it has to. */
async function ask(deviceCode: string) {
  await service.ctx.db
    .updateTable("device_sign_ins")
    .set({ asked_at: new Date(Date.now() - 3_600_000) })
    .execute()
  return await service.call("POST", "/api/device/token", { device_code: deviceCode })
}
const signedIn = (sub = shop) => withSession(service.ctx, origin, sub)
const post = sendDeviceForm
const approve = (visitor: Visitor, code: string, more: Record<string, string> = {}) =>
  post(visitor, { code, does: "approve", ...more })
const devices = () => service.ctx.db.selectFrom("device_sign_ins").selectAll().execute()
const keys = () => service.ctx.db.selectFrom("api_keys").selectAll().execute()
const actions = async () =>
  await service.ctx.db
    .selectFrom("audit_entries")
    .select(["action", "actor_id as actor", "route"])
    .where("actor_id", "is not", null)
    .orderBy("n")
    .execute()

describe("a device", () => {
  it("gets a key once, when its person has typed the code and approved", async () => {
    const begun = await service.call("POST", "/api/device", { host: "anns-laptop" })
    expect(begun).toMatchObject({
      status: 200,
      headers: { "cache-control": "no-store" },
      body: { verification_uri: `${origin}/console/device`, expires_in: 600, interval: 5 },
    })
    const { device_code, user_code } = begun.body
    expect(JSON.stringify(await devices())).not.toMatch(new RegExp(`${device_code}|${user_code}`))
    expect(await ask(device_code)).toMatchObject({ status: 400, body: { error: "authorization_pending" } })
    const visitor = await signedIn()
    expect((await visitor.fetch("/console/device")).status).toBe(200)
    const shown = await post(visitor, { code: ` ${user_code.slice(0, 4).toLowerCase()}-${user_code.slice(4)}` })
    for (const text of ["anns-laptop", "127.0.0.1", "webhooks", "catalog", "checkouts", "read", "Approve", "Deny"])
      expect(shown.text).toContain(text)
    expect(await ask(device_code)).toMatchObject({ body: { error: "authorization_pending" } })
    expect((await approve(visitor, user_code)).text).toContain("The device is approved")
    const made = await ask(device_code)
    expect(made).toMatchObject({
      status: 200,
      headers: { "cache-control": "no-store" },
      body: {
        name: `CLI, anns-laptop, ${shop}@x.example`,
        scopes: ["read", "webhooks", "checkouts", "catalog"],
        merchantId: shop,
      },
    })
    const days = (Date.parse(made.body.expiresAt) - Date.now()) / 86_400_000
    expect(Math.round(days * 1_000) / 1_000).toBe(90)
    const headers = { "x-api-key": made.body.key }
    expect((await service.call("GET", "/api/console/paywalls", undefined, { headers })).status).toBe(200)
    expect((await service.call("PUT", "/api/console/settings", { name: "x" }, { headers })).status).toBe(401)
    expect(await ask(device_code)).toMatchObject({ body: { error: "expired_token" } })
    expect(await devices()).toEqual([])
    expect(await keys()).toMatchObject([{ made_by: personIdOf(shop), by_device: true }])
    expect(await actions()).toEqual([
      { action: "device_sign_in.approved", actor: shop, route: "POST /console/device" },
      { action: "api_key.created", actor: shop, route: "POST /api/device/token" },
    ])
  })

  it("gets one key, however often it asks at once", async () => {
    const { device_code, user_code } = await begin()
    await approve(await signedIn(), user_code)
    const asked = () => service.call("POST", "/api/device/token", { device_code })
    const answers = await Promise.all(Array.from({ length: 8 }, asked))
    const errors = answers.map(({ body }) => body.error ?? "made").filter(error => error !== "slow_down")
    expect(errors.filter(error => error === "made").length).toBeLessThanOrEqual(1)
    expect((await keys()).length + (await devices()).length).toBe(1)
  })

  it("is slowed down when it asks too early, by five more seconds each time", async () => {
    const { device_code } = await begin()
    const asked = () => service.call("POST", "/api/device/token", { device_code })
    const past = (ms: number) =>
      service.ctx.db
        .updateTable("device_sign_ins")
        .set({ asked_at: new Date(Date.now() - ms) })
        .execute()
    expect((await asked()).body.error).toBe("authorization_pending")
    expect((await asked()).body.error).toBe("slow_down")
    await past(8_000)
    expect((await asked()).body.error).toBe("slow_down")
    await past(15_000)
    expect((await asked()).body.error).toBe("authorization_pending")
  })

  it("is denied, and learns it each time", async () => {
    const { device_code, user_code } = await begin()
    const visitor = await signedIn()
    expect((await post(visitor, { code: user_code, does: "deny" })).text).toContain("The device is denied")
    for (let i = 0; i < 2; i++) expect((await ask(device_code)).body.error).toBe("access_denied")
    expect((await approve(visitor, user_code)).text).toContain("No device is waiting with this code")
    expect((await actions()).map(({ action }) => action)).toEqual(["device_sign_in.denied"])
    expect(await keys()).toEqual([])
  })

  it("is too late after ten minutes, whether it was approved or not; the job removes its row", async () => {
    const waiting = await begin()
    const approved = await begin()
    const visitor = await signedIn()
    await approve(visitor, approved.user_code)
    await service.ctx.db.updateTable("device_sign_ins").set({ expires_at: new Date() }).execute()
    for (const { device_code } of [waiting, approved]) expect((await ask(device_code)).body.error).toBe("expired_token")
    expect((await approve(visitor, waiting.user_code)).text).toContain("No device is waiting with this code")
    const kept = await begin()
    const old = { person_id: personIdOf(shop), session_id: "s", created_at: new Date(Date.now() - 43_200_000) }
    await service.ctx.db.insertInto("device_guesses").values(Array(1_000).fill(old)).execute()
    await forgetDevices(service.ctx)
    expect((await devices()).length).toBe(1)
    expect((await service.ctx.db.selectFrom("device_guesses").selectAll().execute()).length).toBe(1)
    expect((await ask(kept.device_code)).body.error).toBe("authorization_pending")
    expect(await keys()).toEqual([])
  })

  it.each([{}, { host: "" }, { host: "a b" }, { host: "<b>" }, { host: "a".repeat(65) }, { host: "a", scopes: [] }])(
    "400 for %j, and nothing is written",
    async body => {
      expect((await service.call("POST", "/api/device", body)).status).toBe(400)
      expect(await devices()).toEqual([])
    },
  )
})

describe("an approval", () => {
  it("gives no scope beyond the role of the person, of any role", async () => {
    for (const role of ["admin", "developer", "finance", "support", "viewer"] as const)
      for (const scope of SCOPES) {
        await hire(role)
        const { device_code, user_code } = await begin({ scopes: [scope] })
        const { text } = await approve(await signedIn(other), user_code)
        const made = await ask(device_code)
        const may = mayGive(role, [scope])
        expect(text, `${role} ${scope}`).toContain(may ? "is approved" : `Your role here, ${role},`)
        expect(made.status, `${role} ${scope}`).toBe(may ? 200 : 400)
        await service.ctx.db.deleteFrom("api_keys").execute()
      }
  })

  it.each([
    [
      "the person's role",
      () =>
        service.ctx.db
          .updateTable("members")
          .set({ role: "viewer" })
          .where("person_id", "=", personIdOf(other))
          .execute(),
    ],
    [
      "the person's membership",
      () => service.ctx.db.deleteFrom("members").where("person_id", "=", personIdOf(other)).execute(),
    ],
    ["the session that it was given with", () => service.ctx.db.deleteFrom("sessions").execute()],
  ])("ends with %s, if the device has not asked yet", async (_what, end) => {
    await hire("developer")
    const { device_code, user_code } = await begin({ scopes: ["catalog"] })
    expect((await approve(await signedIn(other), user_code)).text).toContain("is approved")
    await end()
    expect((await ask(device_code)).body.error).toBe("access_denied")
    expect(await keys()).toEqual([])
  })

  it("with the wallet lock on gives no scope that moves money", async () => {
    await service.ctx.db.updateTable("merchants").set({ wallet_lock: true }).execute()
    const visitor = await signedIn()
    const { device_code, user_code } = await begin({ scopes: ["money"] })
    expect((await approve(visitor, user_code)).text).toContain("The wallet lock is on")
    expect((await ask(device_code)).body.error).toBe("authorization_pending")
    const reads = await begin({ scopes: ["read"] })
    await approve(visitor, reads.user_code)
    expect((await ask(reads.device_code)).status).toBe(200)
  })

  it("is for the merchant that the person chose, and never for another's", async () => {
    await join(other, shop, "viewer")
    const visitor = await signedIn(other)
    const { device_code, user_code } = await begin({ scopes: ["read"] })
    const shown = await post(visitor, { code: user_code })
    expect(shown.text).toContain(`<option value="${shop}">`)
    const stranger = await signedIn()
    expect((await approve(stranger, user_code, { merchant: other })).text).toContain("You belong to no merchant")
    expect((await approve(visitor, user_code, { merchant: shop })).text).toContain("is approved")
    expect((await ask(device_code)).body.merchantId).toBe(shop)
  })

  it("needs a form of the console's own page, and a session", async () => {
    const { device_code, user_code } = await begin()
    const visitor = await signedIn()
    for (const site of ["cross-site", "same-site", "none"]) {
      const answer = await post(visitor, { code: user_code, does: "approve" }, { "sec-fetch-site": site })
      expect(answer.status, site).toBe(403)
    }
    expect((await approve(newVisitor(origin), user_code)).status).toBe(401)
    for (const does of ["constructor", "__proto__", "approved", ""])
      expect(await post(visitor, { code: user_code, does }), does).toMatchObject({ status: 200 })
    expect((await visitor.fetch(`/console/device?code=${user_code}&does=approve`)).status).toBe(200)
    expect((await newVisitor(origin).fetch("/console/device")).status).toBe(200)
    const text = await visitor.fetch("/console/device", {
      method: "POST",
      headers: { "content-type": "text/plain" },
      body: "x",
    })
    expect(text.status).toBe(415)
    expect((await ask(device_code)).body.error).toBe("authorization_pending")
  })

  it("shows what the device and the person say of themselves as text", async () => {
    const { user_code } = await begin()
    await service.ctx.db.updateTable("device_sign_ins").set({ host: "<b>x</b>" }).execute()
    expect((await post(await signedIn(), { code: user_code })).text).toContain("&lt;b&gt;x&lt;/b&gt;")
  })
})

describe("wrong codes", () => {
  const guess = async (visitor: Visitor, times: number) => {
    for (let i = 0; i < times; i++) await post(visitor, { code: "BBBBBBBB", ...(i % 2 ? { does: "approve" } : {}) })
  }

  it("are five in a session, at whichever step; then the right one is refused too", async () => {
    const { user_code } = await begin()
    const visitor = await signedIn()
    await guess(visitor, 4)
    expect((await post(visitor, { code: user_code })).text).toContain("Approve")
    await guess(visitor, 1)
    expect((await approve(visitor, user_code)).text).toContain("You typed 5 wrong codes. Sign out")
    expect((await approve(await signedIn(), user_code)).text).toContain("is approved")
  })

  it("are 20 in an hour of a person, over all sessions, and no other person's", async () => {
    const { user_code } = await begin()
    for (let i = 0; i < 4; i++) await guess(await signedIn(), 5)
    const visitor = await signedIn()
    expect((await approve(visitor, user_code)).text).toContain("You typed 20 wrong codes in an hour")
    await service.ctx.db
      .updateTable("device_guesses")
      .set({ created_at: new Date(Date.now() - 3_600_000) })
      .execute()
    expect((await post(visitor, { code: user_code })).text).toContain("Approve")
    expect((await approve(await signedIn(other), user_code)).text).toContain("is approved")
  })

  it("are counted when they come at once", async () => {
    const visitor = await signedIn()
    await Promise.all(Array.from({ length: 12 }, () => guess(visitor, 1)))
    expect((await service.ctx.db.selectFrom("device_guesses").selectAll().execute()).length).toBe(5)
  })
})

describe("the key of a device", () => {
  const made = async (scopes: string[], as = shop) => {
    const { device_code, user_code } = await begin({ scopes })
    await approve(await signedIn(as), user_code)
    return (await ask(device_code)).body as { id: string; key: string }
  }

  it("can be renamed and revoked, but neither changed, rolled nor adopted", async () => {
    const { id } = await made(["read"])
    const url = `/api/console/api-keys/${id}`
    const by = { as: shop }
    expect((await service.call("PUT", url, { name: "Mine" }, by)).body).toMatchObject({ name: "Mine", byDevice: true })
    for (const answer of [
      await service.call("PUT", url, { scopes: ["read", "catalog"] }, by),
      await service.call("PUT", url, { expiresAt: null }, by),
      await service.call("POST", `${url}/roll`, { graceSeconds: 0 }, by),
      await service.call("POST", `${url}/adopt`, {}, by),
    ])
      expect(answer).toMatchObject({ status: 409, body: { error: "INVALID_OPERATION" } })
    expect((await service.call("DELETE", url, undefined, by)).status).toBe(200)
  })

  it("ends at once when its maker leaves, or may not give it any more, and not otherwise", async () => {
    await hire("developer")
    const read = await made(["read"], other)
    const catalog = await made(["catalog"], other)
    const url = `/api/console/team/${personIdOf(other)}`
    const holds = async ({ key }: { key: string }) =>
      (await service.call("GET", "/api/console/paywalls", undefined, { headers: { "x-api-key": key } })).status === 200
    expect([await holds(read), await holds(catalog)]).toEqual([true, true])
    expect((await service.call("PUT", url, { role: "finance" }, { as: shop })).status).toBe(200)
    expect([await holds(read), await holds(catalog)]).toEqual([true, false])
    expect((await service.call("DELETE", url, undefined, { as: shop })).status).toBe(200)
    expect([await holds(read), await holds(catalog)]).toEqual([false, false])
    expect(await keys()).toEqual([])
  })

  it("leaves its place among a merchant's keys when it has expired", async () => {
    await made(["read"])
    await service.ctx.db
      .updateTable("api_keys")
      .set({ expires_at: new Date(Date.now() - 1_000) })
      .execute()
    const next = await made(["read"])
    expect((await keys()).map(({ id }) => id)).toEqual([next.id])
  })
})
