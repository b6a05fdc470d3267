// Keys end whose maker has left or may not give them any more, unless somebody adopts them who may; and no other key does.
import { privateKeyToAccount } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { startService, type TestService } from "../../../test/service.ts"
import { type Role, SCOPES, type Scope } from "../../platform/http/rights.ts"
import { mayGive } from "../../platform/http/route-access.ts"

const url = "/api/console/api-keys"
const WEEK_MS = 7 * 86_400_000
/** Controls the payout address that test merchants have. */
const payoutWallet = privateKeyToAccount("0x2a871d0798f97d79848a013d4936a73bf4cc922c825d33c1cf7073dff6d409c6")

let service: TestService
let shop: string
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service.stop())
beforeEach(async () => {
  await service.empty()
  shop = await service.merchant("shop")
  for (const as of ["dev", "fin"]) await join(as, as === "dev" ? "developer" : "finance")
})

const idOf = (as: string) => `per_${as.padEnd(24, "a")}`
async function join(as: string, role: Role): Promise<void> {
  const { db } = service.ctx
  const created_at = service.ctx.now()
  await db
    .insertInto("persons")
    .values({ id: idOf(as), iss: service.issuer.issuer, sub: as, created_at })
    .execute()
  await db
    .insertInto("members")
    .values({ merchant_id: shop, person_id: idOf(as), role, created_at })
    .execute()
}
interface Made {
  id: string
  key: string
}
const create = async (scopes: Scope[], as = "dev"): Promise<Made> => {
  const answer = await service.call("POST", url, { name: scopes.join(), scopes }, { as })
  expect(answer.status, JSON.stringify(answer.body)).toBe(201)
  return answer.body
}
const list = async () => {
  const { data } = (await service.call("GET", url, undefined, { as: "shop" })).body
  return Object.fromEntries(data.map(({ name, ending }: { name: string; ending: unknown }) => [name, ending]))
}
const adopt = ({ id }: Pick<Made, "id">, as = "shop", headers: Record<string, string> = {}) =>
  service.call("POST", `${url}/${id}/adopt`, {}, { as, headers })
const setRole = async (as: string, role: Role) => {
  const answer = await service.call("PUT", `/api/console/team/${idOf(as)}`, { role }, { as: "shop" })
  expect(answer.status).toBe(200)
}
const remove = (as: string, by = "shop") =>
  service.call("DELETE", `/api/console/team/${idOf(as)}`, undefined, { as: by })
const status = async ({ key }: Made, path = "/api/checkouts") =>
  (await service.call("GET", path, undefined, { headers: { "x-api-key": key } })).status

describe("the keys of a member who leaves", () => {
  it.each([
    ["is removed", "shop"],
    ["leaves", "dev"],
  ])("who %s end in seven days, and the list says why and when", async (_what, by) => {
    const key = await create(["checkouts"])
    const others = await create(["checkouts"], "shop")
    expect(await list()).toEqual({ checkouts: null })
    expect((await remove("dev", by)).status).toBe(200)
    const until = new Date(service.ctx.now().getTime() + WEEK_MS)
    const ending = (await service.call("GET", url, undefined, { as: "shop" })).body.data.find(
      ({ id }: Made) => id === key.id,
    ).ending
    expect(ending.reason).toBe("maker_left")
    expect(Math.abs(Date.parse(ending.until) - until.getTime())).toBeLessThan(60_000)
    service.advance(WEEK_MS - 60_000)
    expect([await status(key), await status(others)]).toEqual([200, 200])
    service.advance(120_000)
    expect([await status(key), await status(others)]).toEqual([401, 200])
  })

  it("go on when somebody adopts them who has the rights of all scopes, and are that one's then", async () => {
    const key = await create(["catalog"])
    await join("admin", "admin")
    await remove("dev")
    await setRole("fin", "viewer")
    expect((await adopt(key, "fin")).body.error).toBe("ROLE_REQUIRED")
    expect((await adopt(key, "admin")).body).toMatchObject({ id: key.id, ending: null })
    service.advance(2 * WEEK_MS)
    expect(await status(key, "/api/console/paywalls")).toBe(200)
    expect((await adopt(key)).body.error).toBe("INVALID_OPERATION")
    await remove("admin")
    expect((await list()).catalog).toMatchObject({ reason: "maker_left" })
  })

  it("can't be adopted by who may not give one of their scopes, nor for another merchant", async () => {
    const key = await create(["money"], "shop")
    await service.ctx.db
      .updateTable("api_keys")
      .set({ beyond_until: new Date(Date.now() + WEEK_MS), beyond_by: "maker_left" })
      .execute()
    expect((await adopt(key, "dev")).body.error).toBe("ROLE_REQUIRED")
    await service.merchant("rival")
    expect((await adopt(key, "rival")).status).toBe(404)
    expect((await list()).money).not.toBeNull()
    expect((await adopt(key)).status).toBe(200)
  })

  it("go on too when somebody who may changes what they do, and not when they are renamed or rolled", async () => {
    const key = await create(["catalog"])
    await remove("dev")
    const change = (body: object) => service.call("PUT", `${url}/${key.id}`, body, { as: "shop" })
    expect((await change({ name: "catalog" })).body.ending).not.toBeNull()
    const rolled = await service.call("POST", `${url}/${key.id}/roll`, { graceSeconds: 60 }, { as: "shop" })
    expect(rolled.body.ending).not.toBeNull()
    expect((await change({ allowedIps: ["127.0.0.1"] })).body.ending).toBeNull()
  })

  it("need the payout wallet's signature to be adopted with the lock on, where they move money", async () => {
    const key = await create(["money"], "shop")
    const end = { beyond_until: new Date(Date.now() + WEEK_MS), beyond_by: "maker_left" } as const
    await service.ctx.db.updateTable("api_keys").set(end).execute()
    await service.ctx.db.updateTable("merchants").set({ wallet_lock: true }).execute()
    const asked = await adopt(key)
    expect(asked.body.error).toBe("WALLET_SIGNATURE_REQUIRED")
    const { typedData } = asked.body.details[0]
    const signature = await payoutWallet.signTypedData(typedData)
    const headers = { "wallet-signature": `${typedData.message.nonce} ${signature}` }
    expect((await adopt(key, "shop", headers)).body.ending).toBeNull()
  })
})

describe("the keys of a member with another role", () => {
  it("end where the role may not give one of their scopes, for each role and scope", async () => {
    for (const role of ["admin", "developer", "finance", "support", "viewer"] as const) {
      await setRole("dev", "admin")
      await service.ctx.db.deleteFrom("api_keys").execute()
      const scopes = SCOPES.filter(scope => mayGive("admin", [scope]))
      for (const scope of scopes) await create([scope])
      await setRole("dev", role)
      const endings = await list()
      for (const scope of scopes) expect(endings[scope] === null, `${role} ${scope}`).toBe(mayGive(role, [scope]))
    }
  })

  it("go on when the member may give them again, but not once they have ended", async () => {
    const key = await create(["catalog"])
    await setRole("dev", "viewer")
    expect((await list()).catalog).toMatchObject({ reason: "maker_role" })
    await setRole("dev", "developer")
    expect((await list()).catalog).toBeNull()
    await setRole("dev", "viewer")
    service.advance(WEEK_MS + 1)
    await setRole("dev", "developer")
    expect((await list()).catalog).not.toBeNull()
    expect(await status(key, "/api/console/paywalls")).toBe(401)
  })

  it("keep the end that the first change gave them", async () => {
    await create(["catalog"])
    await setRole("dev", "viewer")
    const { until } = (await list()).catalog
    service.advance(86_400_000)
    await setRole("dev", "support")
    await remove("dev")
    expect((await list()).catalog.until).toBe(until)
  })

  it("leave entries in the audit log, with who changed the role", async () => {
    await create(["catalog"])
    await setRole("dev", "viewer")
    const entry = await service.ctx.db
      .selectFrom("audit_entries")
      .selectAll()
      .where("action", "=", "api_key.changed")
      .executeTakeFirstOrThrow()
    expect(entry).toMatchObject({ actor_id: "shop", before: { beyond_by: null }, after: { beyond_by: "maker_role" } })
  })
})
