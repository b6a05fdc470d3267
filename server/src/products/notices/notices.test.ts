// What people are mailed about is found beside the transactions that cause it, and mailed once, against a real SMTP server.
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { type MailServer, startMailServer } from "../../../test/mail-server.ts"
import { startService, type TestService } from "../../../test/service.ts"
import { sendMails } from "../../account/notifications/send-mails.ts"
import { findNotices } from "./find-notices.ts"

const HOUR = 3_600_000
let service: TestService
let server: MailServer
let merchantId: string
beforeAll(async () => {
  server = await startMailServer()
  service = await startService({
    settings: { mail: { url: server.url, from: "payments@shop.example", alarmsTo: "ops@shop.example" } },
  })
})
afterAll(async () => {
  await service.stop()
  await server.stop()
})
beforeEach(async () => {
  await service.empty()
  server.got = []
  merchantId = await service.merchant("owner")
  await emailOf("owner", "owner@shop.example")
  await service.ctx.db.deleteFrom("mails").execute()
})

const emailOf = (sub: string, email: string | null) =>
  service.ctx.db.updateTable("persons").set({ email }).where("sub", "=", sub).execute()
/** Another person who is a member of the merchant. */
async function join(sub: string, role: string): Promise<void> {
  await service.merchant(sub)
  await emailOf(sub, `${sub}@shop.example`)
  await sql`insert into members (merchant_id, person_id, role, created_at)
    select ${merchantId}, id, ${role}, ${service.ctx.now()} from persons where sub = ${sub}`.execute(service.ctx.db)
  await service.ctx.db.deleteFrom("mails").execute()
}

describe("what is found beside", () => {
  const exception = (n: number) =>
    sql`insert into events (id, merchant_id, type, dedupe_key, order_key, body, created_at) values (${`evt_${n}`}, ${merchantId}, 'payment.exception',
      ${`e${n}`}, 'x', ${JSON.stringify({ data: { paymentId: "pay_1", exception: "underpaid", chain: "base", currency: "EVIL.example", amount: "1" } })}, ${service.ctx.now()})`.execute(
      service.ctx.db,
    )

  it("a payment that waits, an endpoint that fails and an alarm are mailed once to who gets them", async () => {
    await join("fin", "finance")
    await join("dev", "developer")
    await exception(1)
    await sql`insert into webhooks (id, merchant_id, url, events, active, failing_since, created_at, updated_at)
      values (${`c${"a".repeat(24)}`}, ${merchantId}, 'https://shop.example/secret', '["*"]', true, ${new Date(service.ctx.now().getTime() - 2 * HOUR)},
        now(), now())`.execute(service.ctx.db)
    for (let n = 0; n < 2; n++) {
      await findNotices(service.ctx, async () => ["base: the payout wallet has 0.01 ETH left"])
      await sendMails(service.ctx)
    }
    const by = (subject: string) =>
      server.got
        .filter(each => each.subject === subject)
        .flatMap(({ to }) => to)
        .sort()
    expect(by("A payment needs a decision")).toEqual(["fin@shop.example", "owner@shop.example"])
    expect(by("An endpoint receives no events")).toEqual(["dev@shop.example", "owner@shop.example"])
    expect(by("An alarm of the payment service")).toEqual(["ops@shop.example"])
    expect(server.got).toHaveLength(5)
    expect(JSON.stringify(server.got)).not.toMatch(/EVIL|secret/)
  })

  it("an endpoint that fails is mailed, though two hundred before it fail and were mailed", async () => {
    await sql`insert into webhooks (id, merchant_id, url, events, active, failing_since, created_at, updated_at)
      select 'c' || lpad(n::text, 24, '0'), ${merchantId}, 'https://shop.example/', '["*"]', true,
        ${new Date(service.ctx.now().getTime() - 2 * HOUR)}, now(), now() from generate_series(1, 201) n`.execute(
      service.ctx.db,
    )
    for (let n = 0; n < 3; n++) await findNotices(service.ctx, async () => [])
    const mailed = await service.ctx.db.selectFrom("mails").select("dedupe_key").execute()
    expect(mailed).toHaveLength(201)
  })

  it("one statement of the last month comes in the first days of a month", async () => {
    const now = service.ctx.now()
    const inMonth = Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), 15)
    await sql`insert into figures (merchant_id, seconds, at, chain_id, token, received, transfers)
      select ${merchantId}, s, to_timestamp(floor(${inMonth / 1_000} / s) * s), ${service.ctx.chain.networks[0]?.chainId}, ${service.ctx.chain.networks[0]?.token.address}, 7000000, 2
      from unnest(array[900, 3600, 21600, 86400]) s`.execute(service.ctx.db)
    service.advance(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1, 3) - now.getTime())
    for (let n = 0; n < 2; n++) await findNotices(service.ctx, async () => [])
    await sendMails(service.ctx)
    expect(server.got).toHaveLength(1)
    expect(server.got[0]?.subject).toMatch(/^Your statement of \d{4}-\d\d$/)
    expect(server.got[0]?.raw).toContain("received: 7.00")
  })
})
