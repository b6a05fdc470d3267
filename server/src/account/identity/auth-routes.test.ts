import { createServer } from "node:http"
import { json } from "node:stream/consumers"
import { decodeJwt, decodeProtectedHeader } from "jose"
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { type Anvil, deployContractWallet, startAnvil } from "../../../test/anvil.ts"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import { accessFields, BASE_URL, type Fields, type SignedMessage, signMessage } from "../../../test/wallet.ts"
import { type Endpoint, newEndpoint } from "../../platform/chain/endpoints.ts"
import type { Address } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { forgetExpiredNonces } from "./make-nonces.ts"

const account = privateKeyToAccount(generatePrivateKey())
const other = privateKeyToAccount(generatePrivateKey())
const settings = "/api/console/settings"

let service: TestService
let anvil: Anvil
let contract: Address

beforeAll(async () => {
  anvil = await startAnvil()
  contract = await deployContractWallet(anvil.client, account.address)
  service = await startService()
})
afterAll(async () => {
  await service?.stop()
  await anvil?.stop()
})
beforeEach(async () => {
  await service.empty()
  serve({ ...paperNetwork, endpoints: [newEndpoint("base-sepolia", anvil.rpcUrl)] })
})

const serve = (...networks: Network[]) => {
  service.ctx.chain.networks = networks
}
const nonceOf = async (path = "/api/auth/nonce"): Promise<string> => (await service.call("POST", path)).body.nonce
const verify = (signed: SignedMessage | Record<string, unknown>) => service.call("POST", "/api/auth/verify", signed)
const signIn = async (fields: Fields = {}, by = account) => await verify(await signMessage(by, await nonceOf(), fields))
const withToken = (token: string, url = settings) =>
  service.call("GET", url, undefined, { headers: { authorization: `Bearer ${token}` } })
const merchants = () =>
  service.ctx.db
    .selectFrom("members")
    .innerJoin("persons", "persons.id", "members.person_id")
    .select(["merchant_id as id", "iss", "sub", "role"])
    .execute()
const expectRefused = async (answer: Promise<unknown>, fault: string) =>
  expect(await answer).toMatchObject({
    status: 401,
    body: { error: "SIGNATURE_REFUSED", details: [{ message: expect.stringContaining(fault) }] },
  })

describe("POST /api/auth/nonce", () => {
  it("200: a nonce of its own each time, valid for ten minutes of wall time", async () => {
    service.advance(40 * 86_400_000)
    const { status, headers, body } = await service.call("POST", "/api/auth/nonce", {})
    expect({ status, cache: headers["cache-control"] }).toEqual({ status: 200, cache: "no-store" })
    expect(body).toMatchObject({
      nonce: expect.stringMatching(/^[0-9A-Za-z]{24}$/),
      domain: new URL(BASE_URL).host,
      uri: `${BASE_URL}/api/auth/verify`,
      chainIds: [84532],
      resources: ["urn:sluice:sign-in"],
    })
    expect(Math.abs(new Date(body.expiresAt).getTime() - Date.now() - 600_000)).toBeLessThan(30_000)
    expect(await nonceOf()).not.toBe(body.nonce)
  })

  it("400 for a body with a field", async () => {
    const answer = await service.call("POST", "/api/auth/nonce", { purpose: "paywall" })
    expect(answer).toMatchObject({ status: 400, body: { error: "VALIDATION_ERROR", details: [{ path: "purpose" }] } })
    expect(await service.ctx.db.selectFrom("nonces").selectAll().execute()).toEqual([])
  })
})

describe("POST /api/auth/verify", () => {
  it("200 for the message that came with the nonce, with the wallet's address inserted", async () => {
    const { body } = await service.call("POST", "/api/auth/nonce")
    const message = body.message.replace("{address}", account.address)
    const signature = await account.signMessage({ message })
    expect((await service.call("POST", "/api/auth/verify", { message, signature })).status).toBe(200)
  })

  it("200: a token that is valid for the console for an hour, whose first request makes the wallet's merchant", async () => {
    const { status, headers, body } = await signIn({ statement: "Sign in to Sluice." })
    expect({ status, cache: headers["cache-control"] }).toEqual({ status: 200, cache: "no-store" })
    const { accessToken, expiresAt, merchantId } = body
    expect(Math.abs(new Date(expiresAt).getTime() - Date.now() - 3_600_000)).toBeLessThan(30_000)
    const sub = `eip155:84532:${account.address}`
    expect(decodeProtectedHeader(accessToken)).toMatchObject({ alg: "ES256", typ: "console+jwt" })
    expect(decodeJwt(accessToken)).toMatchObject({ iss: BASE_URL, aud: "sluice", sub })
    expect(merchantId).toBeNull()
    expect(await merchants()).toEqual([])
    const made = (await withToken(accessToken)).body.merchantId
    expect(await merchants()).toMatchObject([{ id: made, iss: BASE_URL, sub, role: "owner" }])
    expect((await signIn()).body.merchantId).toBe(made)
    expect((await signIn({}, other)).body.merchantId).toBeNull()
    expect(await merchants()).toHaveLength(1)
  })

  it("uses wall time, whatever the service's clock says", async () => {
    service.advance(31 * 86_400_000)
    const { accessToken } = (await signIn()).body
    expect((await withToken(accessToken)).status).toBe(200)
  })

  it("400 for a message not in the form, and for fields of the wrong form", async () => {
    const signed = await signMessage(account, await nonceOf())
    for (const [fields, path] of [
      [{ message: "hello" }, "message"],
      [{ message: `${signed.message}\n` }, "message"],
      [{ message: undefined }, "message"],
      [{ signature: "0x123" }, "signature"],
      [{ signature: signed.signature.slice(2) }, "signature"],
      [{ address: account.address }, "address"],
    ] as const)
      expect(await verify({ ...signed, ...fields })).toMatchObject({
        status: 400,
        body: { error: "VALIDATION_ERROR", details: [{ path }] },
      })
    expect((await verify(signed)).status).toBe(200)
  })

  it.each([
    ["another domain", { domain: "evil.example" }, "domain"],
    ["another URI", { uri: "http://evil.example/api/auth/verify" }, "URI"],
    ["the URI of a paywall", { uri: accessFields("pw_1").uri ?? "" }, "URI"],
    ["a chain that is not served", { chainId: 8453 }, "chain ID 84532"],
    ["another purpose", { resources: ["urn:sluice:paywall:pw_1"] }, "urn:sluice:sign-in"],
    ["no purpose", { resources: [] }, "urn:sluice:sign-in"],
    ["an end that is over", { expirationTime: new Date(Date.now() - 1_000) }, "expired"],
    ["a beginning that is to come", { notBefore: new Date(Date.now() + 600_000) }, "not valid yet"],
    ["a time that is to come", { issuedAt: new Date(Date.now() + 600_000) }, "in the future"],
    ["an old time", { issuedAt: new Date(Date.now() - 3_600_000) }, "too long ago"],
  ])("401 for %s, and no merchant is created", async (_what, fields, fault) => {
    await expectRefused(signIn(fields), fault)
    expect(await merchants()).toEqual([])
  })

  it("401 for another's signature, a changed message, and text that is not a signature", async () => {
    const nonce = await nonceOf()
    const good = await signMessage(account, nonce)
    await expectRefused(
      verify(await signMessage(other, nonce, { address: account.address })),
      "is not the signature of",
    )
    const changed = good.message.replace(account.address, other.address)
    await expectRefused(verify({ ...good, message: changed }), "is not the signature of")
    for (const signature of [`0x${"00".repeat(65)}`, `0x${"ff".repeat(65)}`, "0x12", `0x${"12".repeat(3_000)}`])
      await expectRefused(verify({ ...good, signature }), "is not the signature of")
    expect(await merchants()).toEqual([])
    expect((await verify(good)).status).toBe(200)
  })

  it("401 for a nonce that is not ours, is for another purpose, has expired, or was used", async () => {
    await expectRefused(verify(await signMessage(account, "a".repeat(24))), "nonce")
    const { id } = await paywall()
    await expectRefused(verify(await signMessage(account, await nonceOf(`/api/paywalls/${id}/access/nonce`))), "nonce")
    const late = await signMessage(account, await nonceOf())
    await service.ctx.db.updateTable("nonces").set({ expires_at: new Date() }).execute()
    await expectRefused(verify(late), "nonce")
    await forgetExpiredNonces(service.ctx)
    expect(await service.ctx.db.selectFrom("nonces").selectAll().execute()).toEqual([])
    const signed = await signMessage(account, await nonceOf())
    expect((await verify(signed)).status).toBe(200)
    await expectRefused(verify(signed), "nonce")
  })

  it("accepts a nonce once, of twenty at the same time", async () => {
    const signed = await signMessage(account, await nonceOf())
    const answers = await Promise.all(Array.from({ length: 20 }, () => verify(signed)))
    const statuses = answers.map(({ status }) => status).sort()
    expect(statuses).toEqual([200, ...Array(19).fill(401)])
  })

  it("gives a wallet that nobody invited a token, which makes no merchant where sign-up is by invitation", async () => {
    const closed = await startService({ settings: { signup: "invite" } })
    try {
      const signed = await signMessage(account, (await closed.call("POST", "/api/auth/nonce")).body.nonce)
      const { status, body } = await closed.call("POST", "/api/auth/verify", signed)
      expect({ status, merchantId: body.merchantId }).toEqual({ status: 200, merchantId: null })
      const headers = { authorization: `Bearer ${body.accessToken}` }
      const ask = () => closed.call("GET", "/api/console/settings", undefined, { headers })
      expect(await ask()).toMatchObject({ status: 403, body: { error: "SIGNUP_CLOSED" } })
      expect(await closed.ctx.db.selectFrom("merchants").selectAll().execute()).toEqual([])
      await closed.ctx.db
        .insertInto("invitations")
        .values({ iss: BASE_URL, sub: `eip155:84532:${account.address}`, created_at: new Date() })
        .execute()
      expect((await ask()).status).toBe(200)
    } finally {
      await closed.stop()
    }
  })

  it("429 after five a minute", async () => {
    const limits = { ...service.ctx.settings.limits, auth: 5 }
    const limited = await startService({ settings: { limits } })
    try {
      const statuses: number[] = []
      for (let i = 0; i < 6; i++) statuses.push((await limited.call("POST", "/api/auth/nonce")).status)
      expect(statuses).toEqual([200, 200, 200, 200, 200, 429])
    } finally {
      await limited.stop()
    }
  })
})

describe("a contract wallet", () => {
  it("signs in with what its contract approves, and with nothing else", async () => {
    const { status, body } = await signIn({ address: contract })
    expect(status).toBe(200)
    expect(decodeJwt(body.accessToken).sub?.toLowerCase()).toBe(`eip155:84532:${contract}`)
    await expectRefused(signIn({ address: contract }, other), "is not the signature of")
  })

  it("is asked on the network that the message names", async () => {
    const elsewhere = { ...paperNetwork, name: "base" as const, chainId: 8453 }
    const dead = { ...elsewhere, endpoints: [newEndpoint("base", "http://127.0.0.1:1")] }
    const alive = service.ctx.chain.networks[0] as Network
    serve(alive, dead)
    expect((await signIn({ address: contract })).status).toBe(200)
    expect((await signIn({ address: contract, chainId: 8453 })).status).toBe(503)
    // A key signs on any network, and is a different person on each.
    const tokens = [await signIn({}), await signIn({ chainId: 8453 })].map(({ body }) => body.accessToken)
    expect(new Set(tokens.map(token => decodeJwt(token).sub)).size).toBe(2)
  })

  it("that can't be asked is a 503, never a 401, and its signature can be tried again", async () => {
    const network = service.ctx.chain.networks[0] as Network
    const signed = await signMessage(account, await nonceOf(), { address: contract })
    serve({ ...network, endpoints: [newEndpoint("base-sepolia", "http://127.0.0.1:1")] })
    expect(await verify(signed)).toMatchObject({ status: 503, body: { error: "CHAIN_UNAVAILABLE" } })
    // Nodes that answer, but not the question.
    for (const answer of [{ error: { code: -32005, message: "limit exceeded" } }, { result: null }, {}]) {
      await using node = await startNode({ eth_chainId: { result: "0x14a34" }, eth_call: answer })
      serve({ ...network, endpoints: [node.endpoint] })
      expect(await verify(signed)).toMatchObject({ status: 503, body: { error: "CHAIN_UNAVAILABLE" } })
      // If an endpoint can't answer the question, the next one is asked.
      serve({ ...network, endpoints: [node.endpoint, newEndpoint("base-sepolia", anvil.rpcUrl)] })
      const wrong = { ...signed, signature: `0x${"12".repeat(65)}` }
      await expectRefused(verify(wrong), "is not the signature of")
    }
    serve(network)
    expect((await verify(signed)).status).toBe(200)
  })

  it("is not believed on one endpoint's report where there are two", async () => {
    const network = service.ctx.chain.networks[0] as Network
    const honest = newEndpoint("base-sepolia", anvil.rpcUrl)
    await using liar = await startNode({ eth_chainId: { result: "0x14a34" }, eth_call: { result: YES } })
    for (const address of [account.address, contract])
      for (const endpoints of [
        [liar.endpoint, honest],
        [honest, liar.endpoint],
      ]) {
        serve({ ...network, endpoints })
        await expectRefused(signIn({ address }, other), "is not the signature of")
      }
    expect(await merchants()).toEqual([])
    // While the other endpoint is down, and while it is skipped because of that.
    const dead = newEndpoint("base-sepolia", "http://127.0.0.1:1")
    for (const silentUntil of [0, Date.now() + 60_000]) {
      serve({ ...network, endpoints: [liar.endpoint, { ...dead, silentUntil }] })
      expect(await signIn({ address: account.address }, other)).toMatchObject({
        status: 503,
        body: { error: "CHAIN_UNAVAILABLE" },
      })
    }
    expect(await merchants()).toEqual([])
    // An endpoint that is paused after a failure is asked anyway if it is needed.
    serve({ ...network, endpoints: [honest, { ...honest, silentUntil: Date.now() + 60_000 }] })
    expect((await signIn({ address: contract })).status).toBe(200)
    // Of three endpoints one may be down; a single endpoint is trusted alone.
    serve({ ...network, endpoints: [dead, honest, { ...honest }] })
    expect((await signIn({ address: contract })).status).toBe(200)
    serve({ ...network, endpoints: [liar.endpoint] })
    expect((await signIn({ address: other.address }, account)).status).toBe(200)
  })

  it("is not asked of an endpoint of another chain", async () => {
    const network = service.ctx.chain.networks[0] as Network
    const honest = newEndpoint("base-sepolia", anvil.rpcUrl)
    await using elsewhere = await startNode({ eth_chainId: { result: "0x2105" }, eth_call: { result: YES } })
    for (const endpoints of [[elsewhere.endpoint], [elsewhere.endpoint, honest]]) {
      serve({ ...network, endpoints })
      expect(await signIn({ address: contract })).toMatchObject({
        status: 503,
        body: { error: "CHAIN_UNAVAILABLE" },
      })
    }
    expect(await merchants()).toEqual([])
  })

  it("whose contract doesn't say yes has not signed", async () => {
    const address = `0x${"dd".repeat(20)}` as const
    // It reverts; it fails; it never returns; it returns too little, and another value.
    for (const bytecode of [
      "0x60006000fd",
      "0xfe",
      "0x5b600056",
      "0x631626ba7e5f526004601cf3",
      "0x60015f5260205ff3",
    ] as const) {
      await anvil.client.setCode({ address, bytecode })
      await expectRefused(signIn({ address }), "is not the signature of")
    }
    const [endpoint] = (service.ctx.chain.networks[0] as Network).endpoints
    expect(endpoint).toMatchObject({ failures: 0 })
  })

  it("makes us ask no node without a nonce of ours", async () => {
    serve(paperNetwork)
    await expectRefused(verify(await signMessage(account, "a".repeat(24), { address: contract })), "nonce")
  })

  it("a wallet whose key signs needs no node", async () => {
    serve(paperNetwork)
    expect((await signIn()).status).toBe(200)
  })
})

async function paywall(): Promise<{ id: string }> {
  await service.merchant("shop")
  return (await service.call("POST", "/api/console/paywalls", { name: "Film", price: 5 }, { as: "shop" })).body
}

/** The answer of a contract to a valid signature. */
const YES = `0x1626ba7e${"0".repeat(56)}`

/** A node that has one answer for each method. */
async function startNode(answers: Record<string, object>): Promise<{ endpoint: Endpoint } & AsyncDisposable> {
  const server = createServer(async (request, response) => {
    const calls = (await json(request)) as { id: number; method: string }[]
    response.end(JSON.stringify(calls.map(({ id, method }) => ({ jsonrpc: "2.0", id, ...answers[method] }))))
  })
  await new Promise<void>(resolve => server.listen(0, "127.0.0.1", resolve))
  return {
    endpoint: newEndpoint("base-sepolia", `http://127.0.0.1:${(server.address() as { port: number }).port}`),
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections()
      server.close()
    },
  }
}
