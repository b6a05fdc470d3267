// Mail against a real SMTP server on loopback: each notice once, to whoever had a right to it, and no text of a stranger in a header.
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { type Got, type MailServer, startMailServer } from "../../../test/mail-server.ts"
import { startService, type TestService } from "../../../test/service.ts"
import { inTransaction } from "../../platform/context.ts"
import { isMailable } from "./notices.ts"
import { sendMails } from "./send-mails.ts"
import { mailTo } from "./write-mails.ts"

const HOUR = 3_600_000
let service: TestService
let server: MailServer
let merchantId: string
beforeAll(async () => {
  server = await startMailServer()
  service = await startService({
    settings: { mail: { url: server.url, from: "payments@shop.example", alarmsTo: undefined } },
  })
})
afterAll(async () => {
  await service.stop()
  await server.stop()
})
beforeEach(async () => {
  await service.empty()
  server.got = []
  server.refuse = {}
  merchantId = await service.merchant("owner")
  await emailOf("owner", "owner@shop.example")
  await service.ctx.db.deleteFrom("mails").execute()
})

const emailOf = (sub: string, email: string | null) =>
  service.ctx.db.updateTable("persons").set({ email }).where("sub", "=", sub).execute()
/** Another person who is a member of the merchant. */
async function join(sub: string, role: string): Promise<string> {
  await service.merchant(sub)
  await emailOf(sub, `${sub}@shop.example`)
  const { id } = await service.ctx.db
    .selectFrom("persons")
    .select("id")
    .where("sub", "=", sub)
    .executeTakeFirstOrThrow()
  await service.ctx.db
    .insertInto("members")
    .values({ merchant_id: merchantId, person_id: id, role: role as "owner", created_at: service.ctx.now() })
    .execute()
  await service.ctx.db.deleteFrom("mails").execute()
  return id
}
const as = (sub: string) => ({ as: sub, headers: { "sluice-merchant": merchantId } })
type Kind = "payment_waiting" | "security" | "sign_in" | "membership" | "invitation"
const mail = (n: number, notice: Kind = "payment_waiting", address = "owner@shop.example", by = merchantId) =>
  inTransaction(service.ctx, ctx =>
    mailTo(
      ctx,
      { merchantId: by, notice, addresses: [address] },
      { key: `k${notice}${n}`, subject: `Notice ${n} ${notice}`, lines: [], path: "" },
    ),
  )
const rows = () => service.ctx.db.selectFrom("mails").selectAll().orderBy("id").execute()
const recipients = () => server.got.flatMap(({ to }) => to).sort()

describe("a mail", () => {
  it("is sent once, however often it is found and looked for, and its text is not kept", async () => {
    for (let n = 0; n < 3; n++) await mail(1)
    await Promise.all([sendMails(service.ctx), sendMails(service.ctx)])
    await sendMails(service.ctx)
    expect(server.got).toHaveLength(1)
    expect(server.got[0]?.raw).toContain(`${service.ctx.settings.consoleUrl}/console`)
    expect(await rows()).toMatchObject([{ status: "sent", attempts: 1, body: null }])
  })

  it("is not written with a change that is rolled back", async () => {
    const failing = inTransaction(service.ctx, async ctx => {
      await mailTo(
        ctx,
        { merchantId, notice: "security", addresses: ["owner@shop.example"] },
        { key: "k", subject: "S", lines: [], path: "" },
      )
      throw new Error("no")
    })
    await expect(failing).rejects.toThrow("no")
    expect(await rows()).toEqual([])
  })

  it("of a process that died before it sent is sent by the next one, once its lease has ended", async () => {
    await mail(1)
    await sql`update mails set claim_id = gen_random_uuid(), lease_until = clock_timestamp() + interval '1 minute', taken_at = now()`.execute(
      service.ctx.db,
    )
    await sendMails(service.ctx)
    expect(server.got).toHaveLength(0)
    await sql`update mails set lease_until = clock_timestamp() - interval '1 second'`.execute(service.ctx.db)
    await sendMails(service.ctx)
    expect(server.got).toHaveLength(1)
  })

  it("of a process that died between the server's answer and its record comes again with the same Message-ID", async () => {
    await mail(1)
    const [before] = await rows()
    await sendMails(service.ctx)
    await sql`update mails set status = 'pending', body = ${before?.body}, claim_id = gen_random_uuid(),
      lease_until = clock_timestamp() - interval '1 second'`.execute(service.ctx.db)
    await sendMails(service.ctx)
    expect(server.got.map(({ id }) => id)).toEqual(
      [`<${before?.id}@localhost>`, `<${before?.id}@localhost>`].map(id =>
        id.replace("localhost", new URL(service.ctx.settings.consoleUrl).hostname),
      ),
    )
  })

  it("is retried after a failure that may pass, and ends where the recipient is refused", async () => {
    await mail(1)
    server.refuse = { data: 451 }
    await sendMails(service.ctx)
    expect(await rows()).toMatchObject([{ status: "pending", attempts: 1, error: expect.stringContaining("later") }])
    await sendMails(service.ctx)
    expect(await rows()).toMatchObject([{ attempts: 1 }])
    server.refuse = {}
    service.advance(61_000)
    await sendMails(service.ctx)
    expect(server.got).toHaveLength(1)
    await mail(2)
    server.refuse = { rcpt: 550 }
    await sendMails(service.ctx)
    expect((await rows()).find(row => row.dedupe_key.endsWith("2"))).toMatchObject({ status: "failed", attempts: 1 })
  })
})

describe("what others wrote", () => {
  it.each([
    "a@b.example\r\nBcc: thief@evil.example",
    "a@b.example, thief@evil.example",
    "Ann <thief@evil.example>",
    '"a b"@b.example',
    "a@b.example\n",
    "a@",
  ])("%j is no address that is mailed", async address => {
    expect(isMailable(address)).toBe(false)
    await mail(1, "security", address)
    expect(await rows()).toEqual([])
  })

  it("stands in no header, and makes no link", async () => {
    const name = "Shop\r\nBcc: thief@evil.example\r\n\r\nhttps://evil.example/now"
    await sql`update merchants set name = ${name} where id = ${merchantId}`.execute(service.ctx.db)
    await mail(1)
    await sendMails(service.ctx)
    const [head = "", body = ""] = (server.got[0] as Got).raw.split("\r\n\r\n")
    expect(head).not.toMatch(/evil|Shop/)
    expect(recipients()).toEqual(["owner@shop.example"])
    expect(body).not.toMatch(/evil\.example/)
    expect(body).toContain("Merchant: Shop Bcc")
  })
})

describe("more than twenty in an hour", () => {
  it("wait for one digest, and do not delay what is urgent", async () => {
    for (let n = 0; n < 45; n++) await mail(n)
    await sendMails(service.ctx)
    expect(server.got).toHaveLength(20)
    await mail(1, "security")
    await sendMails(service.ctx)
    expect(server.got).toHaveLength(21)
    service.advance(HOUR + 1_000)
    await sendMails(service.ctx)
    await sendMails(service.ctx)
    expect(server.got).toHaveLength(22)
    const digest = server.got.at(-1) as Got
    expect(digest.subject).toBe("Notices of the last hour")
    expect(digest.raw.match(/Notice \d+/g)).toHaveLength(25)
    await mail(100)
    await sendMails(service.ctx)
    expect(server.got).toHaveLength(23)
  })

  it("of one kind do not delay those of another", async () => {
    for (let n = 0; n < 25; n++) await mail(n, "membership")
    await mail(1, "security")
    await mail(1, "sign_in")
    await sendMails(service.ctx)
    const count = (kind: Kind) => server.got.filter(({ subject }) => subject.endsWith(kind)).length
    expect([count("membership"), count("security"), count("sign_in")]).toEqual([20, 1, 1])
  })

  it("of security stand first in the digest, before those that a stranger caused", async () => {
    for (let n = 0; n < 80; n++) await mail(n)
    for (let n = 0; n < 22; n++) await mail(n, "security")
    await sendMails(service.ctx)
    service.advance(HOUR + 1_000)
    await sendMails(service.ctx)
    await sendMails(service.ctx)
    const listed = (server.got.at(-1) as Got).raw.match(/Notice \d+ \w+/g) ?? []
    expect(listed).toHaveLength(50)
    expect(listed.slice(0, 3).map(line => line.split(" ")[2])).toEqual(["security", "security", "payment_waiting"])
  })
})

describe("security notices", () => {
  it("of a changed contact e-mail, payout address and lock go to the owners and admins, not to others", async () => {
    await join("ada", "admin")
    await join("vic", "viewer")
    const { status } = await service.call("PUT", "/api/console/settings", { email: "new@shop.example" }, as("owner"))
    expect(status).toBe(200)
    await sendMails(service.ctx)
    expect(recipients()).toEqual(["ada@shop.example", "owner@shop.example"])
    server.got = []
    await service.call("PUT", "/api/console/settings", { payoutAddress: `0x${"4e".repeat(20)}` }, as("owner"))
    await sendMails(service.ctx)
    expect(recipients()).toEqual(["ada@shop.example", "owner@shop.example"])
    expect(server.got[0]?.raw.replaceAll("=\r\n", "").toLowerCase()).toContain("4e".repeat(20))
    server.got = []
    await service.call("PUT", "/api/console/settings", { name: "Another name" }, as("owner"))
    await sendMails(service.ctx)
    expect(server.got).toEqual([])
  })

  it("of a removed owner go to the owners as they were, with the one who was removed", async () => {
    const id = await join("olga", "owner")
    await service.call("DELETE", `/api/console/team/${id}`, undefined, as("owner"))
    await sendMails(service.ctx)
    expect(recipients()).toEqual(["olga@shop.example", "owner@shop.example"])
  })

  it("of a raised and of a lowered owner, too", async () => {
    const id = await join("olga", "viewer")
    await service.call("PUT", `/api/console/team/${id}`, { role: "owner" }, as("owner"))
    await sendMails(service.ctx)
    // As a member whose role changed, she gets one mail.
    expect(recipients()).toEqual(["olga@shop.example", "owner@shop.example"])
    server.got = []
    await service.call("PUT", `/api/console/team/${id}`, { role: "viewer" }, as("owner"))
    await sendMails(service.ctx)
    expect(recipients()).toEqual(["olga@shop.example", "owner@shop.example"])
  })
})

describe("GET and PUT /api/console/notifications", () => {
  it("are each person's own, and security notices can't be switched off", async () => {
    await join("ada", "admin")
    const read = async (sub: string) =>
      (await service.call("GET", "/api/console/notifications", undefined, as(sub))).body.data
    expect(await read("ada")).toMatchObject({ address: "ada@shop.example", isSending: true })
    const { status } = await service.call("PUT", "/api/console/notifications", { payment_waiting: false }, as("ada"))
    expect(status).toBe(200)
    const byMail = async (sub: string) =>
      Object.fromEntries(
        (await read(sub)).notices.map((each: { notice: string; byMail: boolean }) => [each.notice, each.byMail]),
      )
    expect((await byMail("ada")).payment_waiting).toBe(false)
    expect((await byMail("owner")).payment_waiting).toBe(true)
    for (const wrong of [{ security: false }, { other: true }, { statement: "no" }])
      expect(
        (await service.call("PUT", "/api/console/notifications", wrong, as("ada"))).status,
        JSON.stringify(wrong),
      ).toBe(400)
    expect((await byMail("ada")).security).toBe(true)
  })
})

describe("an invitation", () => {
  it("comes from one merchant three times a day, and twenty-five delay no security mail", async () => {
    for (let n = 0; n < 25; n++) {
      const made = await service.call(
        "POST",
        "/api/console/team/invitations",
        { email: "ada@shop.example", role: "viewer" },
        as("owner"),
      )
      const path = `/api/console/team/invitations/${made.body.id}`
      expect((await service.call("DELETE", path, undefined, as("owner"))).status).toBe(200)
    }
    await mail(1, "security", "ada@shop.example")
    await sendMails(service.ctx)
    expect(server.got.map(({ subject }) => subject).sort()).toEqual([
      "Notice 1 security",
      ...Array(3).fill("You are invited to a team"),
    ])
    expect((await rows()).filter(({ status, body }) => status === "failed" && body === null)).toHaveLength(22)
    // Another merchant's comes; this one's comes again after a day.
    await mail(1, "invitation", "ada@shop.example", await service.merchant("other"))
    await mail(2, "invitation", "ada@shop.example")
    await sendMails(service.ctx)
    expect(server.got).toHaveLength(5)
    service.advance(24 * HOUR + 1_000)
    await mail(3, "invitation", "ada@shop.example")
    await sendMails(service.ctx)
    expect(server.got).toHaveLength(6)
  })

  const invite = async () =>
    (
      await service.call(
        "POST",
        "/api/console/team/invitations",
        { email: "New@shop.example", role: "viewer" },
        as("owner"),
      )
    ).body

  it("waits without its token where the mail server is away, and where the key is not the one that sealed it", async () => {
    const body = await invite()
    await mail(1)
    const { secretKeys } = service.ctx.settings
    service.ctx.settings.secretKeys = [new Uint8Array(32).fill(9)]
    await sendMails(service.ctx)
    service.ctx.settings.secretKeys = secretKeys
    // One that can't be read holds no other up.
    expect(recipients()).toEqual(["owner@shop.example"])
    server.refuse = { data: 451 }
    service.advance(60_000)
    await sendMails(service.ctx)
    const [waits] = (await rows()).filter(({ notice }) => notice === "invitation")
    expect(waits).toMatchObject({ status: "pending", attempts: 2, sealed: expect.any(String) })
    expect(JSON.stringify(await rows())).not.toContain(body.token)
    server.refuse = {}
    service.advance(300_000)
    await sendMails(service.ctx)
    expect((server.got[1] as Got).raw.replaceAll("=\r\n", "")).toContain(`/console/team/accept#${body.token}`)
  })

  it("from before links were sealed does not keep its token where its mail fails for good", async () => {
    const { token } = await invite()
    const body = `Merchant: Shop\n\n${service.ctx.settings.consoleUrl}/console/team/accept#${token}`
    const old = service.ctx.db.updateTable("mails").set({ sealed: null, body }).where("notice", "=", "invitation")
    await old.execute()
    server.refuse = { rcpt: 550 }
    await sendMails(service.ctx)
    expect(await rows()).toMatchObject([{ status: "failed", attempts: 1, body: null }])
    expect(JSON.stringify(await rows())).not.toContain(token)
  })

  it("is mailed with a link that opens a page, and the token is not kept once it is sent", async () => {
    const body = await invite()
    await sendMails(service.ctx)
    expect(recipients()).toEqual(["new@shop.example"])
    const sent = (server.got[0] as Got).raw.replaceAll("=\r\n", "")
    expect(sent).toContain(`/console/team/accept#${body.token}`)
    expect(JSON.stringify(await rows())).not.toContain(body.token)
  })
})
