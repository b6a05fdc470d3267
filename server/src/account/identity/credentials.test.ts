/** Which of several credentials decides, and what a page of another origin may send and read. */
import { afterAll, beforeAll, expect, it } from "vitest"
import { startService, type TestService } from "../../../test/service.ts"

const CONSOLE = "https://console.example"

let service: TestService
let token: string
let keys: { console: string; checkouts: string }
beforeAll(async () => {
  service = await startService({ settings: { consoleOrigins: [CONSOLE] } })
  await service.merchant("shop")
  const made = async (scopes: string[]): Promise<string> =>
    (await service.call("POST", "/api/console/api-keys", { name: "Server", scopes }, { as: "shop" })).body.key
  token = `Bearer ${await service.issuer.token("shop")}`
  keys = { console: await made(["console"]), checkouts: await made(["checkouts"]) }
})
afterAll(() => service.stop())

const get = async (url: string, headers: Record<string, string>): Promise<number> =>
  (await service.call("GET", url, undefined, { headers })).status

it("the first credential that is present decides, and no other is tried where it is invalid", async () => {
  const invalid = { authorization: "Bearer x", "x-api-key": `${keys.console.slice(0, -4)}aaaa` }
  const paywalls = "/api/console/paywalls"
  expect(await get(paywalls, { authorization: token, "x-api-key": invalid["x-api-key"] })).toBe(200)
  for (const authorization of [invalid.authorization, "", "Basic YTpi", `Bearer ${keys.console}`])
    expect(await get(paywalls, { authorization, "x-api-key": keys.console }), authorization).toBe(401)
  expect(await get(paywalls, { "x-api-key": keys.console })).toBe(200)
})

it("an Authorization beside a key decides where only keys are taken, and the answer says so", async () => {
  expect(await get("/api/checkouts", { "x-api-key": keys.checkouts })).toBe(200)
  for (const authorization of [token, "Bearer x", ""]) {
    const headers = { authorization, "x-api-key": keys.checkouts }
    const answer = await service.call("GET", "/api/checkouts", undefined, { headers })
    expect(answer).toMatchObject({ status: 401, body: { error: "UNAUTHORIZED" } })
    expect(answer.body.message).toContain("if both are sent")
  }
})

it("a page of another origin can send no cookie that it could read the answer to", async () => {
  for (const url of [
    "/api/console/paywalls",
    "/api/console/settings",
    "/api/checkouts",
    "/api/paywalls/none",
    "/pay/none",
  ])
    for (const origin of [CONSOLE, "https://evil.example", "null"])
      for (const method of ["GET", "OPTIONS"] as const) {
        const headers = { origin, "access-control-request-method": "POST", cookie: "__Host-sluice=x" }
        const answer = await service.call("GET", url, undefined, { method, headers })
        expect(answer.headers, `${method} ${url} from ${origin}`).not.toHaveProperty("access-control-allow-credentials")
      }
})
