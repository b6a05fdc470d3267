// Who becomes a member and with which role, who may change that, and what a role may do from its next request on.
import { privateKeyToAccount } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { startService, type TestService } from "../../../test/service.ts"
import { signInFields, signMessage } from "../../../test/wallet.ts"
import type { Role } from "../../platform/http/rights.ts"
import { forgetExpiredInvitations } from "./invite-members.ts"

const DAY_MS = 86_400_000
/** Controls the payout address that test merchants have. */
const payoutWallet = privateKeyToAccount("0x2a871d0798f97d79848a013d4936a73bf4cc922c825d33c1cf7073dff6d409c6")
const wallet = privateKeyToAccount(`0x${"42".repeat(32)}`)

let service: TestService
let shop: string
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service.stop())
beforeEach(async () => {
  await service.empty()
  shop = await service.merchant("shop")
})

type Headers = Record<string, string>
/** A request of a person whose issuer has verified `NAME@x.example`. */
async function call(
  as: string,
  method: "GET" | "POST" | "PUT" | "DELETE",
  path: string,
  body?: unknown,
  more?: Headers,
) {
  const token = await service.issuer.token(as, { email: `${as}@x.example`, email_verified: true })
  return await service.call(method, `/api/console/${path}`, body, {
    headers: { authorization: `Bearer ${token}`, ...more },
  })
}
const db = () => service.ctx.db
const invite = (as: string, email: string, role: Role, more?: Headers) =>
  call(as, "POST", "team/invitations", { email, role }, more)
const accept = (as: string, token: string) => call(as, "POST", "team/accept", { token })
/** Makes somebody a member of the shop; returns the person's id. */
async function join(as: string, role: Role): Promise<string> {
  const { body } = await invite("shop", `${as}@x.example`, role)
  expect((await accept(as, body.token)).body).toMatchObject({ merchantId: shop, role })
  return await personOf(as)
}
const personOf = async (as: string): Promise<string> => (await call(as, "GET", "me")).body.person.id
const members = async () =>
  (
    await db()
      .selectFrom("members")
      .innerJoin("persons", "persons.id", "members.person_id")
      .select(["sub", "role"])
      .where("merchant_id", "=", shop)
      .orderBy("sub")
      .execute()
  ).map(({ sub, role }) => `${sub} ${role}`)
const list = (as: string, more?: Headers) => call(as, "GET", "paywalls", undefined, more)

describe("a person", () => {
  it("sees who it is, without being written anywhere", async () => {
    const { body } = await call("stranger", "GET", "me")
    const { issuer } = service.issuer
    const person = { id: null, issuer, subject: "stranger", email: "stranger@x.example" }
    expect(body).toEqual({ person, merchants: [] })
    expect(await db().selectFrom("persons").select("sub").execute()).toEqual([{ sub: "shop" }])
  })

  it("has no e-mail address that its issuer has not verified", async () => {
    for (const claims of [{ email: "a@x.example" }, { email: "a@x.example", email_verified: "true" }]) {
      const headers = { authorization: `Bearer ${await service.issuer.token("ann", claims)}` }
      const { body } = await service.call("GET", "/api/console/me", undefined, { headers })
      expect(body.person.email).toBeNull()
    }
  })

  it("starts merchants, and names the one that a request is for once there are several", async () => {
    const first = await call("ann", "POST", "merchants", { name: "First" })
    expect(first).toMatchObject({ status: 201, body: { name: "First", role: "owner" } })
    expect((await list("ann")).status).toBe(200)
    const second = (await call("ann", "POST", "merchants", {})).body.merchantId
    const asked = await list("ann")
    expect(asked).toMatchObject({ status: 400, body: { error: "MERCHANT_REQUIRED" } })
    expect(asked.body.details).toEqual([
      { path: first.body.merchantId, message: "First, where your role is owner." },
      { path: second, message: "Without a name, where your role is owner." },
    ])
    await call("ann", "POST", "paywalls", { name: "Film", price: 5 }, { "sluice-merchant": second }).then(expectPayout)
    const settings = (more: Headers, query = "") => call("ann", "GET", `settings${query}`, undefined, more)
    expect((await settings({ "sluice-merchant": second })).body.merchantId).toBe(second)
    expect((await settings({}, `?merchant=${first.body.merchantId}`)).body.merchantId).toBe(first.body.merchantId)
    const change = await call("ann", "PUT", `settings?merchant=${second}`, { name: "B" })
    expect(change).toMatchObject({ status: 400, body: { error: "MERCHANT_REQUIRED" } })
    for (const other of [shop, "mer_none", ""])
      expect(await settings({ "sluice-merchant": other })).toMatchObject({
        status: 400,
        body: { error: "MERCHANT_REQUIRED" },
      })
  })

  it("owns at most twenty merchants", async () => {
    for (let i = 0; i < 20; i++) expect((await call("ann", "POST", "merchants", {})).status).toBe(201)
    expect(await call("ann", "POST", "merchants", {})).toMatchObject({
      status: 409,
      body: { error: "INVALID_OPERATION" },
    })
  })

  it("gets one merchant from many first requests at the same time, also beside one that names it", async () => {
    const all = await Promise.all(Array.from({ length: 12 }, () => call("ann", "GET", "settings")))
    expect(new Set(all.map(({ body }) => body.merchantId)).size).toBe(1)
    expect(await call("bob", "GET", "settings", undefined, { "sluice-merchant": shop })).toMatchObject({
      status: 400,
      body: { error: "MERCHANT_REQUIRED" },
    })
    expect(await personOf("bob")).toBeNull()
  })

  const expectPayout = ({ body }: { body: { error: string } }) => expect(body.error).toBe("PAYOUT_ADDRESS_REQUIRED")
})

describe("where sign-up is by invitation", () => {
  it("an invited person makes one merchant, and nobody else does, but whom a team invites is a member", async () => {
    const closed = await startService({ settings: { signup: "invite" } })
    const at = async (as: string, method: "GET" | "POST", path: string, body?: unknown) => {
      const token = await closed.issuer.token(as, { email: `${as}@x.example`, email_verified: true })
      return await closed.call(method, `/api/console/${path}`, body, { headers: { authorization: `Bearer ${token}` } })
    }
    try {
      const created_at = new Date()
      await closed.ctx.db
        .insertInto("invitations")
        .values({ iss: closed.issuer.issuer, sub: "ann", created_at })
        .execute()
      for (const path of ["merchants", "paywalls"])
        expect(
          await at("bob", path === "merchants" ? "POST" : "GET", path, path === "merchants" ? {} : undefined),
        ).toMatchObject({
          status: 403,
          body: { error: "SIGNUP_CLOSED" },
        })
      const made = await at("ann", "POST", "merchants", {})
      expect(made.status).toBe(201)
      expect((await at("ann", "POST", "merchants", {})).body.error).toBe("SIGNUP_CLOSED")
      const { body } = await at("ann", "POST", "team/invitations", { email: "bob@x.example", role: "viewer" })
      expect((await at("bob", "POST", "team/accept", { token: body.token })).status).toBe(200)
      expect((await at("bob", "GET", "paywalls")).status).toBe(200)
      expect((await at("bob", "POST", "merchants", {})).body.error).toBe("SIGNUP_CLOSED")
    } finally {
      await closed.stop()
    }
  })
})

describe("an invitation", () => {
  it("makes the person whom it names a member, once, and the log names both", async () => {
    const made = await invite("shop", "Ann@X.example", "finance")
    expect(made).toMatchObject({ status: 201, body: { role: "finance", email: "ann@x.example", wallet: null } })
    const { id, token, ...shown } = made.body
    const listed = await call("shop", "GET", "team/invitations")
    expect(listed.body).toEqual({ data: [{ id, ...shown }], total: 1 })
    expect(JSON.stringify(await db().selectFrom("team_invitations").selectAll().execute())).not.toContain(token)
    expect((await accept("ann", token)).body).toMatchObject({ merchantId: shop, role: "finance" })
    expect(await members()).toEqual(["ann finance", "shop owner"])
    expect(await accept("ann", token)).toMatchObject({ status: 404, body: { error: "NOT_FOUND" } })
    expect((await call("shop", "GET", "team/invitations")).body.total).toBe(0)
    const { data } = (await call("shop", "GET", "audit?limit=3")).body
    expect(data.map(({ action, actor }: { action: string; actor: { id: string } }) => `${action} ${actor.id}`)).toEqual(
      ["member.created ann", "team_invitation.deleted ann", "team_invitation.created shop"],
    )
  })

  it("counts for no other address, for none that is not verified, and for no letter that only becomes one of ASCII", async () => {
    const { token } = (await invite("shop", "kim@x.example", "viewer")).body
    const before = await db().selectFrom("team_invitations").selectAll().execute()
    const claims = [
      {},
      { email: "kim@x.example" },
      { email: "kim@x.example", email_verified: false },
      { email: "tim@x.example", email_verified: true },
      { email: "\u212aim@x.example", email_verified: true },
    ]
    for (const each of claims) {
      const headers = { authorization: `Bearer ${await service.issuer.token("eve", each)}` }
      const answer = await service.call("POST", "/api/console/team/accept", { token }, { headers })
      expect(answer, JSON.stringify(each)).toMatchObject({ status: 403, body: { error: "INVITATION_REFUSED" } })
    }
    expect(await db().selectFrom("team_invitations").selectAll().execute()).toEqual(before)
    expect(await personOf("eve")).toBeNull()
    expect((await accept("kim", token)).status).toBe(200)
  })

  it("names a wallet on one network, which signs in and accepts it", async () => {
    const { token, wallet: named } = (
      await call("shop", "POST", "team/invitations", { wallet: wallet.address.toLowerCase(), role: "viewer" })
    ).body
    expect(named).toBe(`eip155:84532:${wallet.address}`)
    expect((await accept("ann", token)).body.error).toBe("INVITATION_REFUSED")
    const { nonce } = (await service.call("POST", "/api/auth/nonce")).body
    const signedIn = await service.call("POST", "/api/auth/verify", await signMessage(wallet, nonce, signInFields))
    expect(signedIn.body.merchantId).toBeNull()
    const headers = { authorization: `Bearer ${signedIn.body.accessToken}` }
    const accepted = await service.call("POST", "/api/console/team/accept", { token }, { headers })
    expect(accepted.body).toMatchObject({ merchantId: shop, role: "viewer" })
    for (const body of [
      { role: "viewer" },
      { role: "viewer", wallet: wallet.address, email: "a@x.example" },
      { role: "viewer", wallet: `0x${"0".repeat(40)}` },
      { role: "viewer", wallet: wallet.address, chain: "base" },
      { role: "boss", email: "a@x.example" },
    ])
      expect((await call("shop", "POST", "team/invitations", body)).body.error).toBe("VALIDATION_ERROR")
  })

  it("ends after seven days, when it is revoked, and when its maker may invite no more", async () => {
    const late = (await invite("shop", "ann@x.example", "viewer")).body
    service.advance(7 * DAY_MS)
    expect((await accept("ann", late.token)).status).toBe(404)
    await forgetExpiredInvitations(service.ctx)
    expect(await db().selectFrom("team_invitations").selectAll().execute()).toEqual([])
    const revoked = (await invite("shop", "ann@x.example", "viewer")).body
    expect((await call("shop", "DELETE", `team/invitations/${revoked.id}`)).status).toBe(200)
    expect((await call("shop", "DELETE", `team/invitations/${revoked.id}`)).status).toBe(404)
    expect((await accept("ann", revoked.token)).status).toBe(404)
    const second = await join("second", "owner")
    const byOther = (await invite("second", "ann@x.example", "owner")).body
    await call("shop", "PUT", `team/${second}`, { role: "admin" })
    expect((await accept("ann", byOther.token)).body.error).toBe("INVITATION_REFUSED")
    await call("shop", "DELETE", `team/${second}`)
    expect((await accept("ann", byOther.token)).body.error).toBe("INVITATION_REFUSED")
    expect(await members()).toEqual(["shop owner"])
  })

  it("brings nobody back who was removed, also where it was sent twice", async () => {
    const tokens = []
    for (let i = 0; i < 2; i++) tokens.push((await invite("shop", "ann@x.example", "admin")).body.token)
    expect((await accept("ann", tokens[0])).status).toBe(200)
    expect((await call("shop", "DELETE", `team/${await personOf("ann")}`)).status).toBe(200)
    expect(await accept("ann", tokens[1])).toMatchObject({ status: 404, body: { error: "NOT_FOUND" } })
    expect(await members()).toEqual(["shop owner"])
  })

  it("is for one person of twenty who send it at the same time, and no member accepts another", async () => {
    const { token } = (await invite("shop", "ann@x.example", "viewer")).body
    const all = await Promise.all(Array.from({ length: 20 }, () => accept("ann", token)))
    expect(all.filter(({ status }) => status === 200)).toHaveLength(1)
    expect(await members()).toEqual(["ann viewer", "shop owner"])
    const again = (await invite("shop", "ann@x.example", "admin")).body
    expect((await accept("ann", again.token)).body.error).toBe("INVALID_OPERATION")
    expect(await members()).toEqual(["ann viewer", "shop owner"])
  })

  it("is one of a hundred, with the members", async () => {
    const person_id = await personOf("shop")
    const rows = Array.from({ length: 99 }, (_, i) => ({
      id: `tinv_${`${i}`.padStart(24, "a")}`,
      merchant_id: shop,
      hash: `${i}`,
      email: `a${i}@x.example`,
      wallet: null,
      role: "viewer" as const,
      invited_by: person_id,
      by_wallet: false,
      created_at: service.ctx.now(),
      expires_at: new Date(service.ctx.now().getTime() + DAY_MS),
    }))
    await db().insertInto("team_invitations").values(rows).execute()
    expect((await invite("shop", "ann@x.example", "viewer")).body.error).toBe("INVALID_OPERATION")
  })
})

describe("a role", () => {
  it("counts from the next request on, and so does its end; who was a member gets no merchant by itself", async () => {
    const ann = await join("ann", "developer")
    const make = () => call("ann", "POST", "products", { name: "Report", price: 5 })
    expect((await make()).status).toBe(201)
    expect((await call("shop", "PUT", `team/${ann}`, { role: "viewer" })).body).toMatchObject({
      id: ann,
      role: "viewer",
    })
    const refused = await make()
    expect(refused).toMatchObject({ status: 403, body: { error: "ROLE_REQUIRED" } })
    expect(refused.body.message).toBe(
      "Your role here, viewer, does not allow this. You need the role owner, admin or developer to create and change paywalls, products, payment links, bundles and checkouts.",
    )
    expect((await list("ann")).status).toBe(200)
    expect((await call("shop", "DELETE", `team/${ann}`)).body).toEqual({ deleted: true, id: ann })
    expect(await list("ann")).toMatchObject({ status: 400, body: { error: "MERCHANT_REQUIRED" } })
    expect((await call("ann", "POST", "merchants", {})).status).toBe(201)
    expect((await list("ann")).body.total).toBe(0)
  })

  it("of an admin changes names, but neither where the money goes nor who is a member", async () => {
    await join("ann", "admin")
    expect((await call("ann", "PUT", "settings", { name: "New" })).body.name).toBe("New")
    for (const change of [
      { payoutAddress: wallet.address },
      { name: "B", payoutAddresses: { "base-sepolia": wallet.address } },
      { walletLock: true },
      { approver: "service" },
    ])
      expect((await call("ann", "PUT", "settings", change)).body.error).toBe("ROLE_REQUIRED")
    expect((await call("ann", "GET", "settings")).body).toMatchObject({ name: "New", walletLock: false })
    expect((await invite("ann", "eve@x.example", "viewer")).body.error).toBe("ROLE_REQUIRED")
    expect((await call("ann", "PUT", `team/${await personOf("ann")}`, { role: "owner" })).body.error).toBe(
      "ROLE_REQUIRED",
    )
    expect((await call("ann", "DELETE", `team/${await personOf("shop")}`)).body.error).toBe("ROLE_REQUIRED")
    expect(await members()).toEqual(["ann admin", "shop owner"])
  })

  it("without the right to say who is paid attaches no split, and takes none away", async () => {
    const recipients = [payoutWallet, wallet].map(({ address }) => ({ address, percent: 50 }))
    const { body: split } = await call("shop", "POST", "splits", { name: "All", recipients })
    const { id } = (await call("shop", "POST", "products", { name: "Report", price: 5 })).body
    await join("dev", "developer")
    const refused = { status: 403, body: { error: "ROLE_REQUIRED" } }
    for (const path of ["products", "paywalls"])
      expect(await call("dev", "POST", path, { name: "Mine", price: 5, splitId: split.id })).toMatchObject(refused)
    expect(await call("dev", "PUT", `products/${id}`, { splitId: split.id })).toMatchObject(refused)
    expect((await call("dev", "PUT", `products/${id}`, { price: 6, splitId: null })).status).toBe(200)
    expect((await call("shop", "PUT", `products/${id}`, { splitId: split.id })).status).toBe(200)
    expect(await call("dev", "PUT", `products/${id}`, { splitId: null })).toMatchObject(refused)
    const kept = await db().selectFrom("products").select(["name", "split_id"]).execute()
    expect(kept).toEqual([{ name: "Report", split_id: split.id }])
  })

  it("gives no key that may do more", async () => {
    for (const [role, scopes] of [
      ["admin", "console"],
      ["developer", "console"],
    ] as const) {
      await join(role, role)
      const asked = await call(role, "POST", "api-keys", { name: "A", scopes: ["read", scopes] })
      expect(asked.body.error).toBe("ROLE_REQUIRED")
      expect((await call(role, "POST", "api-keys", { name: "A", scopes: ["checkouts", "read"] })).status).toBe(201)
    }
    await join("money", "finance")
    expect((await call("money", "POST", "api-keys", { name: "A", scopes: ["read"] })).body.error).toBe("ROLE_REQUIRED")
  })

  it("of the last owner stays, whoever asks, and whatever is asked at the same time", async () => {
    const own = await personOf("shop")
    const ann = await join("ann", "owner")
    await Promise.all([
      call("shop", "DELETE", `team/${ann}`),
      call("ann", "DELETE", `team/${own}`),
      call("shop", "PUT", `team/${own}`, { role: "viewer" }),
      call("ann", "PUT", `team/${ann}`, { role: "viewer" }),
    ])
    const left = (await members()).filter(member => member.endsWith(" owner"))
    expect(left.length).toBeGreaterThan(0)
    const [last] = left[0]?.split(" ") ?? []
    const others = (await members()).map(member => member.split(" ")[0]).filter(sub => sub !== last)
    for (const sub of others) await call(last ?? "", "DELETE", `team/${await personOf(sub ?? "")}`)
    const id = await personOf(last ?? "")
    const asked = [
      await call(last ?? "", "DELETE", `team/${id}`),
      await call(last ?? "", "PUT", `team/${id}`, { role: "admin" }),
    ]
    for (const answer of asked) expect(answer).toMatchObject({ status: 409, body: { error: "INVALID_OPERATION" } })
    expect(await members()).toEqual([`${last} owner`])
  })

  it("of another merchant counts for nothing", async () => {
    await service.merchant("rival")
    const ann = await join("ann", "viewer")
    const invited = (await invite("shop", "bob@x.example", "viewer")).body
    for (const [method, path, body] of [
      ["PUT", `team/${ann}`, { role: "owner" }],
      ["DELETE", `team/${ann}`, undefined],
      ["DELETE", `team/invitations/${invited.id}`, undefined],
    ] as const)
      expect(await call("rival", method, path, body)).toMatchObject({ status: 404, body: { error: "NOT_FOUND" } })
    for (const path of ["team", "team/invitations"])
      expect(JSON.stringify((await call("rival", "GET", path)).body)).not.toMatch(/ann|bob/)
    expect(await members()).toEqual(["ann viewer", "shop owner"])
  })

  it("is listed with the members, the newest first", async () => {
    const ann = await join("ann", "support")
    expect((await call("ann", "GET", "team")).body).toMatchObject({
      total: 2,
      data: [
        { id: ann, role: "support", subject: "ann", email: "ann@x.example" },
        { role: "owner", subject: "shop" },
      ],
    })
  })
})

describe("with the wallet lock on", () => {
  type Send = (more?: Headers) => ReturnType<typeof call>
  /** Sends a change, has the payout wallet sign the data in the refusal, and sends it again. */
  async function signed(send: Send) {
    const refused = await send()
    expect(refused).toMatchObject({ status: 403, body: { error: "WALLET_SIGNATURE_REQUIRED" } })
    const { typedData } = refused.body.details[0]
    const signature = await payoutWallet.signTypedData(typedData)
    return await send({ "wallet-signature": `${typedData.message.nonce} ${signature}` })
  }
  const lock = () => signed(more => call("shop", "PUT", "settings", { walletLock: true }, more))

  it("who shall decide about money is invited and raised by the payout wallet's signature, others without", async () => {
    const ann = await join("ann", "viewer")
    expect((await lock()).status).toBe(200)
    for (const role of ["owner", "admin", "finance"] as const) {
      const invited = await signed(more => invite("shop", `${role}@x.example`, role, more))
      expect(invited.status).toBe(201)
      expect((await accept(role, invited.body.token)).body).toMatchObject({ role })
    }
    for (const role of ["developer", "support", "viewer"] as const)
      expect((await invite("shop", "bob@x.example", role)).status).toBe(201)
    const raise = (role: Role) => (more?: Headers) => call("shop", "PUT", `team/${ann}`, { role }, more)
    expect((await raise("developer")()).status).toBe(200)
    expect((await signed(raise("finance"))).body).toMatchObject({ role: "finance" })
    expect((await signed(raise("owner"))).body).toMatchObject({ role: "owner" })
    // What takes rights away needs none.
    for (const role of ["admin", "finance", "support"] as const) expect((await raise(role)()).status).toBe(200)
    expect((await call("shop", "DELETE", `team/${ann}`)).status).toBe(200)
  })

  it("an invitation from before, without the signature, makes nobody who decides about money", async () => {
    const invited = await Promise.all(
      (["owner", "viewer"] as const).map(role => invite("shop", `${role}@x.example`, role)),
    )
    await lock()
    const [asOwner, asViewer] = invited.map(({ body }) => body.token)
    expect((await accept("owner", asOwner)).body).toMatchObject({
      error: "INVITATION_REFUSED",
      message: expect.stringContaining("wallet lock"),
    })
    expect((await accept("viewer", asViewer)).status).toBe(200)
    expect(await members()).toEqual(["shop owner", "viewer viewer"])
  })
})
