/** The examples of the README, with what each must print, for every runtime that they are run on. */
import { readFileSync } from "node:fs"
import { stripTypeScriptTypes } from "node:module"
import { until } from "../../server/test/e2e/program.ts"
import type { TestService } from "../../server/test/service.ts"

const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8")
/** As they are written. */
export const written = [...readme.matchAll(/```ts\n([\s\S]*?)```/g)].map(([, code = ""]) => code)

export interface Example {
  name: string
  /** JavaScript of a module. */
  code: string
  prints: RegExp
  /** What happens at the service while it runs. */
  meanwhile?: (service: TestService) => Promise<void>
}

/** The example that contains a text. */
const find = (text: string): string => {
  const [found, ...more] = written.filter(code => code.includes(text))
  if (found === undefined || more.length > 0) throw new Error(`${more.length + 1} examples have ${text}`)
  return stripTypeScriptTypes(found)
}

/** Calls the handler with a signed event, and with one by another secret. */
const handled = `${find("function POST")}
const event = { type: "checkout.session.completed", data: { amount: "5.00", metadata: { order: "1" } } }
for (const secret of ["whsec_test", "whsec_other"]) {
  const { body, headers } = await webhooks.sign(event, secret)
  const request = new Request("http://shop.example/hook", { method: "POST", body, headers })
  console.log(await POST(request).then(response => response.text(), error => error.message))
}
`

/** Ends the newest checkout, once there is one. */
async function expireNewest({ ctx }: TestService): Promise<void> {
  const newest = () =>
    ctx.db.selectFrom("checkout_sessions").select("id").where("status", "=", "pending").where("amount", "=", 5_000_000n)
  await until("the example has made its checkout", async () => (await newest().execute()).length > 0)
  await ctx.db
    .updateTable("checkout_sessions")
    .set({ status: "expired", run_at: null })
    .where("id", "in", newest())
    .execute()
  await ctx.wakes.wake("payments")
}

/** All of them. */
export const examples: Example[] = [
  {
    name: "makes a checkout, and prints its page",
    code: find("Send your customer"),
    prints: /^Send your customer to http.*\/pay\/cs_[a-z0-9]{24}\n$/,
  },
  { name: "checks an event in a handler", code: handled, prints: /^5\.00 .*1.*\nok\nNo signature fits.*\n$/s },
  { name: "waits until a checkout has ended", code: find("waitUntil"), prints: /^expired\n$/, meanwhile: expireNewest },
  { name: "reads lists", code: find("for await"), prints: /^\d+ \S+\n$/ },
  {
    name: "prints why a call failed",
    code: find("SluiceError"),
    prints: /^VALIDATION_ERROR \[[\s\S]*amount[\s\S]*\/docs\/errors#VALIDATION_ERROR\n$/,
  },
  { name: "makes a payment link", code: find("paymentLinks"), prints: /^http.*\/p\/[a-z0-9-]+\n$/ },
  { name: "makes a paywall", code: find("paywalls.create"), prints: /^The report 0\.50\n$/ },
  { name: "waits with a burst", code: find("queue: true"), prints: /^3\n$/ },
  { name: "counts money", code: find("money.add"), prints: /^0\.30\n19900000n\n1\.50\n$/ },
  { name: "signs events", code: find("webhooks.sign"), prints: /^ping\n$/ },
]

/** What the examples find in their environment. */
export async function environmentOf(service: TestService): Promise<Record<string, string>> {
  await service.merchant("shop")
  const scopes = ["checkouts", "console"]
  const { body } = await service.call("POST", "/api/console/api-keys", { name: "sdk", scopes }, { as: "shop" })
  return { SLUICE_URL: await service.listen(), SLUICE_API_KEY: body.key, WEBHOOK_SECRET: "whsec_test" }
}
