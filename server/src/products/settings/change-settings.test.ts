// The time zone of a merchant: who sets it, what is no zone, and what counts its days by it.
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { startService, type TestService } from "../../../test/service.ts"
import { zoneNamed } from "../../platform/http/zone.ts"

let service: TestService
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service.stop())
beforeEach(async () => {
  await service.empty()
  await service.merchant("shop")
})

const put = (body: object, as = "shop") => service.call("PUT", "/api/console/settings", body, { as })
const get = async (path: string, as = "shop") =>
  (await service.call("GET", `/api/console/${path}`, undefined, { as })).body
const setTo = async (timeZone: string | null) => (await put({ timeZone })).body.timeZone

describe("the merchant's time zone", () => {
  it("is none at first, then what was set, in the spelling of the database, and none again", async () => {
    expect([(await get("settings")).timeZone, (await get("me")).merchants[0].timeZone]).toEqual([null, null])
    for (const [asked, kept] of [
      ["Asia/Kolkata", "Asia/Kolkata"],
      ["america/st_johns", "America/St_Johns"],
      [null, null],
    ] as const) {
      expect(await setTo(asked)).toBe(kept)
      await put({ name: "Shop" })
      expect([(await get("settings")).timeZone, (await get("me")).merchants[0].timeZone]).toEqual([kept, kept])
    }
  })

  it("can be any zone that a browser offers", async () => {
    const { rows } = await sql<{ name: string }>`select name from pg_timezone_names`.execute(service.ctx.db)
    const known = new Set(rows.map(({ name }) => name))
    const offered = Intl.supportedValuesOf("timeZone")
    expect(offered.filter(zone => zoneNamed(zone) !== zone || !known.has(zone))).toEqual([])
  })

  it("has an entry in the audit log, with what it was before", async () => {
    await setTo("Asia/Kathmandu")
    await setTo("Europe/Berlin")
    const { data } = await get("audit?limit=1")
    expect(data).toMatchObject([
      {
        action: "settings.changed",
        before: { timeZone: "Asia/Kathmandu" },
        after: { timeZone: "Europe/Berlin" },
      },
    ])
  })

  it.each(["Mars/Olympus", "+02:00", "", "Europe/Berlin ", "Etc/Unknown", "x".repeat(65), 5, ["UTC"]])(
    "400 for %j, and nothing is changed",
    async timeZone => {
      await setTo("Asia/Kolkata")
      const before = await get("audit")
      const { status, body } = await put({ name: "Other", timeZone })
      expect([status, body.error, body.details[0].path]).toEqual([400, "VALIDATION_ERROR", "timeZone"])
      expect(await get("settings")).toMatchObject({ name: "", timeZone: "Asia/Kolkata" })
      expect(await get("audit")).toEqual(before)
    },
  )

  it("says what to give instead of a zone that there is not", async () => {
    expect((await put({ timeZone: "Mars/Olympus" })).body.details).toEqual([
      {
        path: "timeZone",
        message: "`timeZone` must be the name of a time zone of the IANA database, such as Asia/Kolkata, or null.",
      },
    ])
  })

  it("is set by those who may change the name, and by no others", async () => {
    const call = async (method: "POST" | "PUT" | "GET", path: string, body: object | undefined, as: string) => {
      const token = await service.issuer.token(as, { email: `${as}@x.example`, email_verified: true })
      const headers = { authorization: `Bearer ${token}` }
      return await service.call(method, `/api/console/${path}`, body, { headers })
    }
    for (const role of ["admin", "developer", "finance", "support", "viewer"]) {
      const made = await call("POST", "team/invitations", { email: `${role}@x.example`, role }, "shop")
      await call("POST", "team/accept", { token: made.body.token }, role)
      const changes = [{ name: role }, { timeZone: "Asia/Kolkata" }]
      const answers = await Promise.all(changes.map(change => call("PUT", "settings", change, role)))
      const expected = role === "admin" ? 200 : 403
      expect(answers.map(({ status }) => status)).toEqual([expected, expected])
      expect((await call("GET", "me", undefined, role)).body.merchants[0].timeZone).toBe("Asia/Kolkata")
    }
  })
})

describe("without `tz`", () => {
  it("the overview has the days of the merchant's zone, and of UTC if it has none", async () => {
    const time = "from=2026-02-10T12:00:00Z&to=2026-02-11T12:00:00Z"
    const starts = async (more = "") => {
      const { tz, series } = await get(`overview?${time}${more}`)
      return [tz, series[0].at]
    }
    expect(await starts()).toEqual(["UTC", "2026-02-10T00:00:00.000Z"])
    await setTo("Asia/Kathmandu")
    expect(await starts()).toEqual(["Asia/Kathmandu", "2026-02-09T18:15:00.000Z"])
    expect(await starts("&tz=UTC")).toEqual(["UTC", "2026-02-10T00:00:00.000Z"])
  })
})
