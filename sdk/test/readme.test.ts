// Every example of the README, as it is written, against the real service.
import { execFile } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, expect, it, vi } from "vitest"
import { until } from "../../server/test/e2e/program.ts"
import { startService, type TestService } from "../../server/test/service.ts"
import { Sluice, webhooks } from "../src/index.ts"

const source = new URL("../src/index.ts", import.meta.url).pathname
const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8")
const written = [...readme.matchAll(/```ts\n([\s\S]*?)```/g)].map(([, code = ""]) => code)

let service: TestService
let folder: string
let env: Record<string, string>
beforeAll(async () => {
  service = await startService()
  await service.merchant("shop")
  const scopes = ["checkouts", "console"]
  const { body } = await service.call("POST", "/api/console/api-keys", { name: "sdk", scopes }, { as: "shop" })
  env = { SLUICE_URL: await service.listen(), SLUICE_API_KEY: body.key, WEBHOOK_SECRET: "whsec_test" }
  // Inside the package, so that Node finds its type.
  folder = mkdtempSync(join(import.meta.dirname, "readme-"))
})
afterAll(async () => {
  await service?.stop()
  rmSync(folder, { recursive: true, force: true })
})

/** Writes an example as a module; returns its path. */
function saved(code: string): string {
  const file = join(folder, `example-${written.indexOf(code)}.ts`)
  writeFileSync(file, code.replace(/from "@sluice\/sdk"/, `from ${JSON.stringify(source)}`))
  return file
}

async function run(code: string): Promise<string> {
  const { stdout } = await promisify(execFile)(process.execPath, [saved(code)], { env: { ...process.env, ...env } })
  return stdout
}

const find = (text: string): string => {
  const found = written.filter(code => code.includes(text))
  expect(found).toHaveLength(1)
  return found[0] ?? ""
}

it("has seven examples", () => {
  expect(written).toHaveLength(7)
})

it("makes a checkout, and prints its page", async () => {
  expect(await run(find("Send your customer"))).toMatch(/^Send your customer to http.*\/pay\/cs_[a-z0-9]{24}\n$/)
})

it("checks an event in a handler", async () => {
  vi.stubEnv("WEBHOOK_SECRET", "whsec_test")
  const { POST } = await import(saved(find("function POST")))
  const { body, headers } = await webhooks.sign(
    { type: "checkout.session.completed", data: { amount: "5.00" } },
    "whsec_test",
  )
  const request = () => new Request("http://shop.example/hook", { method: "POST", body, headers })
  expect(await (await POST(request())).text()).toBe("ok")
  vi.stubEnv("WEBHOOK_SECRET", "whsec_other")
  await expect(POST(request())).rejects.toThrow("No signature fits")
  vi.unstubAllEnvs()
})

it("waits until a checkout has ended", async () => {
  const sluice = new Sluice({ baseUrl: env.SLUICE_URL as string, apiKey: env.SLUICE_API_KEY as string })
  const { total } = await sluice.checkouts.list().page({ limit: 1 })
  const work = run(find("waitUntil"))
  await until("the example has made its checkout", async () => {
    const page = await sluice.checkouts.list().page({ limit: 1 })
    return page.total > total
  })
  const [made] = (await sluice.checkouts.list().page({ limit: 1 })).data
  const expired = { status: "expired", run_at: null } as const
  const { ctx } = service
  await ctx.db.updateTable("checkout_sessions").set(expired).where("id", "=", `${made?.id}`).execute()
  await ctx.wakes.wake("payments")
  expect(await work).toBe("expired\n")
})

it("reads lists", async () => {
  expect(await run(find("for await"))).toMatch(/^\d+ \S+\n$/)
})

it("prints why a call failed", async () => {
  expect(await run(find("SluiceError"))).toMatch(
    /^VALIDATION_ERROR \[[\s\S]*amount[\s\S]*\/docs\/errors#VALIDATION_ERROR\n$/,
  )
})

it("counts money, and signs events", async () => {
  expect(await run(find("money.add"))).toBe("0.30\n19900000n\n1.50\n")
  expect(await run(find("webhooks.sign"))).toBe("ping\n")
})
