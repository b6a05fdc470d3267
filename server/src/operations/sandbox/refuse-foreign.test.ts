/** Who may use the sandbox's own routes, by the headers that browsers and programs send; with Chromium: web/test/sessions.test.ts. */
import fastify from "fastify"
import { expect, it } from "vitest"
import { readSettings } from "../../platform/config/read-settings.ts"
import { ApiError, errorTable } from "../../platform/errors.ts"
import { refuseForeign } from "./refuse-foreign.ts"

const status = async (headers: Record<string, string>, given: Record<string, string> = {}): Promise<number> => {
  const app = fastify()
  const settings = { ...readSettings(given), oidcIssuer: "http://127.0.0.1:4000/sandbox/oidc" }
  app.addHook("onRequest", refuseForeign(settings))
  app.setErrorHandler((error, _request, reply) =>
    reply.code(error instanceof ApiError ? errorTable[error.code].status : 500).send(),
  )
  app.post("/sandbox/clock", async () => "moved")
  const { statusCode } = await app.inject({ method: "POST", url: "/sandbox/clock", headers })
  await app.close()
  return statusCode
}
const host = "127.0.0.1:4000"

it("its own pages, the address bar, curl and Node may", async () => {
  const own = { host, origin: `http://${host}` }
  for (const headers of [
    { host },
    { host, "sec-fetch-mode": "cors" },
    { ...own, "sec-fetch-site": "same-origin" },
    { host, "sec-fetch-site": "none" },
    // Safari before 16.4 sends no `Sec-Fetch-Site`.
    own,
  ])
    expect(await status(headers), JSON.stringify(headers)).toBe(200)
  for (const name of ["localhost", "LOCALHOST:4000", "127.0.0.1", "127.8.9.1:1", "[::1]:4000", "[::1]"])
    expect(await status({ host: name }), name).toBe(200)
})

it("pages of other origins may not, another port of this machine included", async () => {
  for (const site of ["cross-site", "same-site", "", "same-origin, cross-site"])
    expect(await status({ host, "sec-fetch-site": site }), site).toBe(403)
  for (const origin of ["null", "https://evil.example", "http://127.0.0.1:3000", "https://127.0.0.1:4000", ""])
    expect(await status({ host, origin }), origin).toBe(403)
})

it("names that can point here for a while may not, whatever else a request says", async () => {
  for (const name of [
    "evil.example:4000",
    "localhost.evil.example",
    "127.0.0.1.evil.example:4000",
    "localhost.",
    "0.0.0.0:4000",
    "192.168.0.9:4000",
    "[::]:4000",
    "evil@127.0.0.1:4000",
  ])
    expect(await status({ host: name, "x-forwarded-host": host, "sec-fetch-site": "same-origin" }), name).toBe(403)
})

it("a public sandbox answers at its own addresses too, and still no page of another origin", async () => {
  const open = { SANDBOX_PUBLIC: "1", HOST: "0.0.0.0", BASE_URL: "http://sandbox.example" }
  expect(await status({ host: "sandbox.example" }, open)).toBe(200)
  expect(await status({ host: "evil.example" }, open)).toBe(403)
  expect(await status({ host: "sandbox.example", origin: "https://evil.example" }, open)).toBe(403)
  expect(await status({ host: "sandbox.example" }, { BASE_URL: "http://sandbox.example" })).toBe(403)
})
