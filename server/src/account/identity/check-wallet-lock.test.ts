// Who gets a merchant's money: every endpoint is notified of each change, and with the wallet lock on a change needs
// the signature of the payout wallet for exactly that change, once.
import { privateKeyToAccount } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from "vitest"
import { type Anvil, deployContractWallet, startAnvil } from "../../../test/anvil.ts"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import { newRecurring, newSubscription } from "../../../test/subscriptions.ts"
import { newEndpoint } from "../../platform/chain/endpoints.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { inTransaction, type TxContext } from "../../platform/context.ts"
import { newCuid } from "../../platform/ids.ts"
import { applyPendingPayoutAddresses, type SettingsChange } from "../../products/settings/change-settings.ts"
import { protectedPart } from "../../products/settings/check-protected-settings.ts"
import { approvedByWallet } from "./check-wallet-lock.ts"

/** Controls the payout address that test merchants have. */
const wallet = privateKeyToAccount("0x2a871d0798f97d79848a013d4936a73bf4cc922c825d33c1cf7073dff6d409c6")
const stranger = privateKeyToAccount(`0x${"5".repeat(64)}`)
const second = privateKeyToAccount(`0x${"6".repeat(64)}`)
const A = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"
const B = "0x90F79bf6EB2c4f870365E785982E1f101E93b906"
const recipients = [
  { address: A, percent: 60 },
  { address: B, percent: 40 },
]
const settings = "/api/console/settings"

let service: TestService
let anvil: Anvil
/** The chain of the second network, `base`. */
let base: Anvil
beforeAll(async () => {
  ;[anvil, base] = await Promise.all([startAnvil(), startAnvil({ chainId: 8453 })])
  service = await startService({ settings: { mode: "live", signup: "open" } })
  // If the signer is not the key of the payout address, it may be a contract wallet: the chain is asked.
  const network = { ...paperNetwork, endpoints: [newEndpoint("base-sepolia", anvil.rpcUrl)] }
  service.ctx.chain.networks.splice(0, 1, network)
})
afterAll(async () => {
  await service.stop()
  await anvil.stop()
  await base.stop()
})
beforeEach(async () => {
  await service.empty()
  await service.merchant("shop")
})

const on = { method: "PUT", url: settings, body: { walletLock: true } } as const
type Method = "POST" | "PUT" | "DELETE"
interface Change {
  method: Method
  url: string
  body?: object | undefined
}
const send = ({ method, url, body }: Change, signature?: string) =>
  service.call(method, url, body, { as: "shop", ...(signature && { headers: { "wallet-signature": signature } }) })
const console_ = (method: Method, path: string, body?: object): Change => ({
  method,
  url: `/api/console/${path}`,
  body,
})
/** The header for a refused change. Each of `by` signs the data of its detail. */
async function signed(answer: Awaited<ReturnType<typeof send>>, ...by: (typeof wallet)[]): Promise<string> {
  expect([answer.status, answer.body.error], JSON.stringify(answer.body)).toEqual([403, "WALLET_SIGNATURE_REQUIRED"])
  const signers = by.length > 0 ? by : [wallet]
  const { details } = answer.body
  const signatures = await Promise.all(signers.map((each, i) => each.signTypedData(details[i].typedData)))
  return [details[0].typedData.message.nonce, ...signatures].join(" ")
}
/** Sends a change, signs the data in the refusal, and sends it again. */
const approved = async (change: Change) => await send(change, await signed(await send(change)))
const lock = async () => expect((await approved(on)).status).toBe(200)
const made = async (path: string, body: object) => {
  const answer = await send(console_("POST", path, body))
  expect(answer.status, JSON.stringify(answer.body)).toBe(201)
  return answer.body.id as string
}
const splitEvents = async () =>
  (
    await service.ctx.db
      .selectFrom("events")
      .selectAll()
      .where("type", "=", "settings.split_changed")
      .orderBy("created_at")
      .execute()
  ).map(({ body }) => JSON.parse(`${body}`).data)

/** Things created before the lock is on, and each change that the lock covers; `before` runs when all are created. */
async function protectedChanges(before: () => Promise<void> = lock): Promise<Change[]> {
  const splitId = await made("splits", { name: "old", recipients })
  const ids = {
    paywalls: await made("paywalls", { name: "a", price: 5 }),
    products: await made("products", { name: "a", price: 5 }),
    links: await made("payment-links", { slug: "aaa", title: "A", amount: 5 }),
  }
  await before()
  const half = recipients.map(each => ({ ...each, percent: 50 }))
  return [
    { method: "PUT", url: settings, body: { payoutAddress: A } },
    { method: "PUT", url: settings, body: { walletLock: false } },
    { method: "PUT", url: settings, body: { approver: "service" } },
    console_("POST", "splits", { name: "new", recipients }),
    console_("PUT", `splits/${splitId}`, { recipients: half }),
    console_("POST", "paywalls", { name: "b", price: 5, splitId }),
    console_("PUT", `paywalls/${ids.paywalls}`, { splitId }),
    console_("POST", "products", { name: "b", price: 5, splitId }),
    console_("PUT", `products/${ids.products}`, { splitId }),
    console_("POST", "payment-links", { slug: "bbb", title: "B", amount: 5, splitId }),
    console_("PUT", `payment-links/${ids.links}`, { splitId }),
    console_("DELETE", `splits/${splitId}`),
    console_("POST", "api-keys", { name: "Server", scopes: ["read", "console"] }),
  ]
}

describe("settings.split_changed", () => {
  it("reaches every endpoint for each split that is created, changed, deleted, attached or detached", async () => {
    const to = { url: "https://203.0.113.7/hook", events: JSON.stringify(["checkout.failed"]) }
    const row = {
      id: newCuid(),
      merchant_id: (await service.call("GET", settings, undefined, { as: "shop" })).body.merchantId,
    }
    await service.ctx.db
      .insertInto("webhooks")
      .values({ ...row, ...to, active: true, created_at: new Date(), updated_at: new Date() } as never)
      .execute()
    const splitId = await made("splits", { name: "s", recipients })
    const things: string[] = []
    for (const [path, body] of [
      ["paywalls", { name: "a", price: 5 }],
      ["products", { name: "a", price: 5 }],
      ["payment-links", { slug: "aaa", title: "A", amount: 5 }],
    ] as const) {
      const wakes = vi.spyOn(service.ctx.wakes, "wakeSoon")
      const plain = await made(path, body)
      expect(wakes, path).not.toHaveBeenCalled()
      const split = await made(path, { ...body, slug: undefined, splitId })
      expect(wakes.mock.calls, path).toEqual([["deliveries"]])
      wakes.mockRestore()
      await send(console_("PUT", `${path}/${plain}`, { splitId }))
      await send(console_("PUT", `${path}/${plain}`, { splitId: null }))
      // A change that affects nobody's money.
      await send(console_("PUT", `${path}/${plain}`, { description: "x" }))
      things.push(split, plain, plain)
    }
    await send(console_("PUT", `splits/${splitId}`, { name: "renamed" }))
    await send(console_("PUT", `splits/${splitId}`, { recipients: [...recipients].reverse() }))
    await send(console_("DELETE", `splits/${splitId}`))
    const events = await splitEvents()
    const each = ["attached", "attached", "detached"]
    expect(events.map(event => event.change)).toEqual(["created", ...each, ...each, ...each, "changed", "deleted"])
    expect(events.map(event => event.resourceId)).toEqual([null, ...things, null, null])
    expect(events[1]).toMatchObject({ splitId, recipients })
    expect(events[3].recipients).toEqual([])
    const sent = await service.ctx.db.selectFrom("deliveries").select("webhook_id").execute()
    expect(sent.length).toBe(events.length)
  })
})

describe("another product with another split", () => {
  /** A product without a split and one with, a subscription to the first, and paywalls without and with it. */
  async function things() {
    const plain = await newRecurring(service, "shop")
    const split = await newRecurring(service, "shop")
    const splitId = await made("splits", { name: "s", recipients })
    await send(console_("PUT", `products/${split}`, { splitId }))
    const { id: subscription } = await newSubscription(service, "shop", plain, stranger.address)
    const paywall = await made("paywalls", { name: "a", price: 5 })
    const sold = await made("paywalls", { name: "b", price: 5, subscriptionProductId: plain })
    await service.ctx.db.deleteFrom("events").execute()
    return { plain, split, splitId, subscription, paywall, sold }
  }
  const moves = ({ split, subscription, paywall, sold }: Awaited<ReturnType<typeof things>>) => [
    console_("PUT", `subscriptions/${subscription}`, { productId: split }),
    console_("PUT", `paywalls/${paywall}`, { subscriptionProductId: split }),
    console_("PUT", `paywalls/${sold}`, { subscriptionProductId: split }),
  ]

  it("notifies every endpoint, where a subscription or the subscriptions of a paywall are moved there and back", async () => {
    const all = await things()
    for (const change of moves(all)) expect((await send(change)).status).toBe(200)
    const to = { resourceId: expect.any(String), productId: all.split, change: "attached", recipients }
    expect(await splitEvents()).toMatchObject([to, to, to])
    expect((await splitEvents()).map(({ resourceId }) => resourceId)).toEqual([all.subscription, all.paywall, all.sold])
    await send(console_("PUT", `paywalls/${all.sold}`, { subscriptionProductId: all.plain }))
    await send(console_("PUT", `paywalls/${all.sold}`, { subscriptionProductId: all.plain, name: "c" }))
    await send(console_("PUT", `paywalls/${all.sold}`, { subscriptionProductId: null }))
    const detached = { change: "detached", splitId: all.splitId, recipients: [] }
    expect((await splitEvents()).slice(3)).toMatchObject([{ ...detached, resourceId: all.sold, productId: all.plain }])
    await send(console_("PUT", `paywalls/${all.paywall}`, { subscriptionProductId: null }))
    const made_ = await made("paywalls", { name: "c", price: 5, subscriptionProductId: all.split })
    expect((await splitEvents()).slice(4)).toMatchObject([
      { ...detached, resourceId: all.paywall, productId: all.split },
      { ...to, resourceId: made_ },
    ])
  })

  it("needs the wallet's signature while the lock is on, and one for the same split none", async () => {
    const all = await things()
    await lock()
    for (const change of moves(all)) {
      const refused = await send(change)
      const { action, subject, from, to } = refused.body.details[0].typedData.message
      expect([action, subject]).toEqual(["Attach split", change.url.split("/").at(-1)])
      expect([from, to]).toEqual([expect.stringContaining("the merchant alone"), expect.stringContaining(all.splitId)])
      expect((await send(change, await signed(refused))).status).toBe(200)
    }
    const both = console_("PUT", `paywalls/${all.sold}`, { subscriptionProductId: all.plain, splitId: all.splitId })
    const words = (await send(both)).body.details[0].typedData.message
    expect(words.to).toContain(`${all.splitId}: ${A} 60%, ${B} 40%; its subscriptions: the merchant alone`)
    // Nor in two steps, nor at a new paywall.
    for (const change of [
      console_("PUT", `paywalls/${all.paywall}`, { subscriptionProductId: null }),
      console_("POST", "paywalls", { name: "c", price: 5, subscriptionProductId: all.split }),
    ])
      expect((await send(change)).body.error).toBe("WALLET_SIGNATURE_REQUIRED")
    const alike = await made("paywalls", { name: "d", price: 5, subscriptionProductId: all.plain })
    for (const subscriptionProductId of [null, all.plain, await newRecurring(service, "shop")])
      expect((await send(console_("PUT", `paywalls/${alike}`, { subscriptionProductId }))).status).toBe(200)
    // What is no subscription or product of this merchant is refused as without the lock.
    const nowhere = console_("PUT", "subscriptions/sub_x", { productId: all.split })
    expect((await send(nowhere)).status).toBe(404)
  })

  it("is one notice for a product, however many links it has, and they have its split", async () => {
    const all = await things()
    for (const slug of ["one", "two"]) await made("payment-links", { slug, title: "A", productId: all.plain })
    expect((await send(console_("PUT", `products/${all.plain}`, { splitId: all.splitId }))).status).toBe(200)
    expect((await splitEvents()).map(({ resourceId }) => resourceId)).toEqual([all.plain])
    const links = await service.ctx.db.selectFrom("payment_links").select("split_id").execute()
    expect(links).toEqual([{ split_id: all.splitId }, { split_id: all.splitId }])
  })
})

describe("the wallet lock", () => {
  it("is off at first, and switched on only by a wallet that can sign", async () => {
    expect((await service.call("GET", settings, undefined, { as: "shop" })).body.walletLock).toBe(false)
    await made("splits", { name: "s", recipients })
    const refused = await send(on)
    const [{ typedData }] = refused.body.details
    expect(typedData).toMatchObject({
      domain: { name: "Sluice", version: "1", chainId: 84532 },
      primaryType: "MerchantChange",
      message: { action: "Change settings", from: "wallet lock: off", to: "wallet lock: on" },
    })
    expect((await send(on, await signed(refused))).body.walletLock).toBe(true)
  })

  it("covers each route that changes who is paid: without the signature nothing is changed", async () => {
    const changes = await protectedChanges()
    const before = await rows()
    for (const change of changes) {
      const answer = await send(change)
      expect([change.url, answer.status, answer.body.error]).toEqual([change.url, 403, "WALLET_SIGNATURE_REQUIRED"])
      const foreign = await signed(answer, stranger)
      expect((await send(change, foreign)).body.details[0].message).toContain("is not the signature of")
    }
    expect(await rows()).toEqual(before)
  })

  it("accepts the signature of each change, once, and for no other change", async () => {
    const changes = await protectedChanges()
    for (const [i, change] of changes.slice(2).entries()) {
      const next = changes.slice(2)[i + 1]
      const header = await signed(await send(change))
      if (next) expect((await send(next, header)).status, `${change.url} for ${next.url}`).toBe(403)
      const answer = await send(change, header)
      expect([change.url, answer.status], JSON.stringify(answer.body)).toEqual([
        change.url,
        change.method === "POST" ? 201 : 200,
      ])
      if (change.method === "POST")
        expect((await send(change, header)).body.details[0].message).toContain("already used")
    }
  })

  it("makes signed changes take effect at once, in live mode too; then the new wallet signs", async () => {
    await lock()
    const move = { method: "PUT", url: settings, body: { payoutAddress: stranger.address } } as const
    const { body } = await approved(move)
    expect([body.payoutAddress, body.pendingPayoutAddresses]).toEqual([stranger.address, {}])
    const off = { method: "PUT", url: settings, body: { walletLock: false } } as const
    const refused = await send(off)
    expect((await send(off, await signed(refused, wallet))).status).toBe(403)
    expect((await send(off, await signed(await send(off), stranger))).body.walletLock).toBe(false)
  })

  it("withdraws an address that nobody signed and that waits for its 24 hours", async () => {
    const thief = await send({ method: "PUT", url: settings, body: { payoutAddress: A } })
    expect(Object.keys(thief.body.pendingPayoutAddresses).length).toBe(1)
    await lock()
    const after = await service.call("GET", settings, undefined, { as: "shop" })
    expect([after.body.payoutAddress, after.body.pendingPayoutAddresses]).toEqual([wallet.address, {}])
  })

  it("accepts no signature that is too old, malformed, or for another amount of the same change", async () => {
    await lock()
    const change = console_("POST", "splits", { name: "s", recipients })
    const header = await signed(await send(change))
    const other = { ...change, body: { name: "s", recipients: [...recipients].reverse() } }
    expect((await send(other, header)).status).toBe(403)
    await service.ctx.db
      .updateTable("nonces")
      .set({ expires_at: new Date(0) })
      .execute()
    expect((await send(change, header)).body.details[0].message).toContain("too old")
    for (const bad of ["x", "0x12", "abc 0x", `abc ${"0x".padEnd(200, "1")} `, `${header} ${header}`])
      expect((await send(change, bad)).status).toBe(403)
    expect(await splitEvents()).toEqual([])
    // Faults of the change itself are reported first.
    const wrong = await send(console_("POST", "splits", { name: "s", recipients: recipients.slice(1) }))
    expect(wrong.body.error).toBe("INVALID_SPLIT")
    // A change that moves nobody's money needs no signature.
    expect((await send({ method: "PUT", url: settings, body: { name: "Shop" } })).status).toBe(200)
  })

  it("accepts the approval of a contract wallet (ERC-1271)", async () => {
    const owner = privateKeyToAccount(`0x${"7".repeat(64)}`)
    const address = await deployContractWallet(anvil.client, owner.address)
    await service.ctx.db.updateTable("payout_addresses").set({ address }).execute()
    expect((await send(on, await signed(await send(on), stranger))).status).toBe(403)
    expect((await send(on, await signed(await send(on), owner))).body.walletLock).toBe(true)
  })

  it("is switched on only by the signatures of every payout address, however old each is", async () => {
    await onNetworks(["base", "base-sepolia"], async () => {
      const thief = { payoutAddresses: { base: stranger.address } }
      expect((await send({ method: "PUT", url: settings, body: thief })).status).toBe(200)
      // The owner replaces the first address without a signature, so from now on the thief's address is the older one.
      await send({ method: "PUT", url: settings, body: { payoutAddresses: { "base-sepolia": second.address } } })
      await waitADay()
      const refused = await send(on)
      const [theirs, owners] = refused.body.details
      expect(theirs.message).toContain(`with ${stranger.address} on base,`)
      expect(owners.message).toContain(`with ${second.address} on base-sepolia,`)
      expect([theirs, owners].map(each => each.typedData.domain.chainId)).toEqual([8453, 84532])
      const alone = await send(on, await signed(refused, stranger))
      expect([alone.status, alone.body.details?.[0].message]).toEqual([
        403,
        expect.stringContaining(`is not the signature of ${second.address} on base-sepolia for this change`),
      ])
      const [, onlyOwner] = (await signed(alone, stranger, second)).match(/^\w+ \w+ (\w+)$/) ?? []
      const other = await send(on, `${alone.body.details[0].typedData.message.nonce} ${onlyOwner}`)
      expect(other.body.details[0].message).toContain(`is not the signature of ${stranger.address} on base for`)
      const three = await signed(other, stranger, second)
      expect((await send(on, `${three} ${onlyOwner}`)).body.details[0].message).toContain(
        "at most one signature for each of 2",
      )
      expect((await service.call("GET", settings, undefined, { as: "shop" })).body.walletLock).toBe(false)
      expect((await send(on, three)).body.walletLock).toBe(true)
    })
  })

  it("is not switched on while an address on a network that is not served has not signed", async () => {
    await onNetworks(["base", "base-sepolia"], async () => {
      await send({ method: "PUT", url: settings, body: { payoutAddresses: { base: stranger.address } } })
    })
    const refused = await send(on)
    const half = await send(on, await signed(refused))
    expect(half.body.details[0].message).toContain(`is not the signature of ${stranger.address} on base for`)
    expect((await send(on, await signed(half, wallet, stranger))).body.walletLock).toBe(true)
  })

  it("refuses at commit to be switched on where an address was added after all had signed", async () => {
    const { ctx } = service
    const { merchantId } = (await service.call("GET", settings, undefined, { as: "shop" })).body
    const read = (ctx: TxContext) => protectedPart(ctx, merchantId, { walletLock: true, payoutAddresses: {} })
    const headers = { "wallet-signature": await signed(await send(on)) }
    const approval = await approvedByWallet(ctx, { headers }, merchantId, read)
    await inTransaction(ctx, ctx => approval.hold(ctx))
    await onNetworks(["base-sepolia", "base"], async () => {
      await send({ method: "PUT", url: settings, body: { payoutAddresses: { base: stranger.address } } })
    })
    await expect(inTransaction(ctx, ctx => approval.hold(ctx))).rejects.toMatchObject({
      code: "WALLET_SIGNATURE_REQUIRED",
    })
  })

  it("is opened by the oldest address: one replaced by its own signature stays that, one that a token replaced does not", async () => {
    await onNetworks(["base", "base-sepolia"], async () => {
      await send({ method: "PUT", url: settings, body: { payoutAddresses: { base: stranger.address } } })
      const signer = async () => (await send(on)).body.details[0].message as string
      expect((await send(on, await signed(await send(on), wallet, stranger))).status).toBe(200)
      const { address } = second
      await approved({ method: "PUT", url: settings, body: { payoutAddresses: { "base-sepolia": address } } })
      // The owner's signature changes the owner's address at once; the other one changes after a day.
      const body = { payoutAddresses: { base: A } }
      const moved = await send({ ...on, body }, await signed(await send({ ...on, body }), second))
      expect(moved.body.payoutAddresses).toEqual({ base: stranger.address, "base-sepolia": address })
      expect(Object.keys(moved.body.pendingPayoutAddresses)).toEqual(["base"])
      const off = { method: "PUT", url: settings, body: { walletLock: false } } as const
      await send(off, await signed(await send(off), second))
      await send({ method: "PUT", url: settings, body: { payoutAddresses: { "base-sepolia": A } } })
      expect(await signer()).toContain(`${address} on base-sepolia`)
      await waitADay()
      expect(await signer()).toContain(`${stranger.address} on base`)
    })
  })

  it("accepts a key's signature for its address on every network, and a contract's only on its own", async () => {
    const owner = privateKeyToAccount(`0x${"7".repeat(64)}`)
    const contract = await deployContractWallet(anvil.client, owner.address)
    await onNetworks(["base-sepolia", "base"], async () => {
      for (const [address, signer, waits] of [
        [wallet.address, wallet, []],
        [contract, owner, ["base"]],
      ] as const) {
        await service.empty()
        await service.merchant("shop")
        await send({ method: "PUT", url: settings, body: { payoutAddresses: { base: address } } })
        await service.ctx.db
          .updateTable("payout_addresses")
          .set({ address: address.toLowerCase() as Address })
          .execute()
        // The contract exists on one network only.
        const switched = await send(on, await signed(await send(on), signer))
        expect(switched.status).toBe(waits.length === 0 ? 200 : 403)
        await setLock(true)
        const move = { ...on, body: { payoutAddresses: { base: A, "base-sepolia": A } } }
        const { body } = await send(move, await signed(await send(move), signer))
        expect(body.payoutAddresses["base-sepolia"]).toBe(A)
        expect(Object.keys(body.pendingPayoutAddresses)).toEqual(waits)
      }
    })
  })

  it("withdraws a pending address on a network that is not served any more", async () => {
    await onNetworks(["base-sepolia", "base"], async () => {
      await send({ method: "PUT", url: settings, body: { payoutAddresses: { base: wallet.address } } })
      await send({ method: "PUT", url: settings, body: { payoutAddresses: { base: A } } })
    })
    await lock()
    const rows = await service.ctx.db.selectFrom("payout_addresses").selectAll().execute()
    expect(rows.map(row => row.pending_address)).toEqual([null, null])
    const { body } = await service.ctx.db
      .selectFrom("events")
      .select("body")
      .where("type", "=", "settings.payout_address_changed")
      .orderBy("created_at", "desc")
      .executeTakeFirstOrThrow()
    expect(JSON.parse(body).data).toMatchObject({ chain: "base", payoutAddress: wallet.address })
  })

  it("refuses at commit what was admitted just before the lock", async () => {
    const changes = await protectedChanges(async () => {})
    const { db } = service.ctx
    const switchedOff = (change: Change) => (change.body as SettingsChange | undefined)?.walletLock === false
    for (const change of changes.filter(each => !switchedOff(each))) {
      await setLock(false)
      const before = await rows()
      const begin = db.transaction.bind(db)
      const spy = vi.spyOn(db, "transaction").mockImplementationOnce(() => {
        const execute = async (work: Parameters<ReturnType<typeof begin>["execute"]>[0]) => {
          await setLock(true)
          return await begin().execute(work)
        }
        return { execute } as unknown as ReturnType<typeof begin>
      })
      const answer = await send(change)
      expect([change.url, answer.status, answer.body.error]).toEqual([change.url, 403, "WALLET_SIGNATURE_REQUIRED"])
      expect(answer.body.message).toContain("at the same time")
      spy.mockRestore()
      await setLock(false)
      expect(await rows()).toEqual(before)
    }
  })

  it("refuses at commit what was signed for recipients that have changed since", async () => {
    await service.ctx.db.updateTable("merchants").set({ wallet_lock: true }).execute()
    const { merchantId } = (await service.call("GET", settings, undefined, { as: "shop" })).body
    const { ctx } = service
    let from = "A"
    const read = async () => ({ words: { action: "Change split", subject: "s", from, to: "C" } })
    const refused = await approvedByWallet(ctx, { headers: {} }, merchantId, read).catch(error => error)
    const { typedData } = refused.details[0]
    const headers = { "wallet-signature": `${typedData.message.nonce} ${await wallet.signTypedData(typedData)}` }
    const approval = await approvedByWallet(ctx, { headers }, merchantId, read)
    await inTransaction(ctx, ctx => approval.hold(ctx))
    from = "B"
    await expect(inTransaction(ctx, ctx => approval.hold(ctx))).rejects.toMatchObject({
      code: "WALLET_SIGNATURE_REQUIRED",
    })
  })

  it("asks for nothing new where the same request is answered again", async () => {
    await lock()
    const body = { name: "s", recipients }
    const post = (signature?: string) =>
      service.call("POST", "/api/console/splits", body, {
        as: "shop",
        headers: { "idempotency-key": "once", ...(signature && { "wallet-signature": signature }) },
      })
    const made = await post(await signed(await post()))
    expect(made.status, JSON.stringify(made.body)).toBe(201)
    const again = await post()
    expect([again.status, again.headers["idempotent-replayed"]]).toEqual([201, "true"])
    expect(again.body).toEqual(made.body)
    expect((await service.ctx.db.selectFrom("nonces").selectAll().execute()).length).toBe(0)
  })
})

const tables = [
  "merchants",
  "payout_addresses",
  "splits",
  "recipients",
  "paywalls",
  "products",
  "payment_links",
] as const
const rows = async () =>
  await Promise.all(
    tables.map(table =>
      service.ctx.db
        .selectFrom(table as "merchants")
        .selectAll()
        .execute(),
    ),
  )
/** Makes the pending payout addresses take effect. */
async function waitADay(): Promise<void> {
  await service.ctx.db
    .updateTable("payout_addresses")
    .set({ pending_at: new Date(0) })
    .where("pending_address", "is not", null)
    .execute()
  await inTransaction(service.ctx, applyPendingPayoutAddresses)
}
const setLock = (on: boolean) => service.ctx.db.updateTable("merchants").set({ wallet_lock: on }).execute()

/** Serves these networks in this order while `work` runs. */
async function onNetworks(names: ("base" | "base-sepolia")[], work: () => Promise<void>): Promise<void> {
  const { networks } = service.ctx.chain
  const served = [...networks]
  const paper = { ...paperNetwork, name: "base", chainId: 8453, endpoints: [newEndpoint("base", base.rpcUrl)] } as const
  networks.splice(0, networks.length, ...names.map(name => served.find(each => each.name === name) ?? paper))
  try {
    await work()
  } finally {
    networks.splice(0, networks.length, ...served)
  }
}
