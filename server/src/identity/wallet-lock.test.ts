// Who gets a merchant's money: every endpoint is notified of each change, and with the wallet lock on a change needs
// the signature of the payout wallet for exactly that change, once.
import { privateKeyToAccount } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from "vitest"
import { type Anvil, deployContractWallet, startAnvil } from "../../test/anvil.ts"
import { paperNetwork, startService, type TestService } from "../../test/service.ts"
import { newEndpoint } from "../chain/endpoints.ts"
import type { Address } from "../chain/hex.ts"
import { inTransaction } from "../context.ts"
import { newCuid } from "../ids.ts"
import { applyPendingPayoutAddresses, type SettingsChange } from "./merchant-settings.ts"
import { approvedByWallet } from "./wallet-lock.ts"

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
beforeAll(async () => {
  anvil = await startAnvil()
  service = await startService({ settings: { mode: "live", signup: "open" } })
  // If the signer is not the key of the payout address, it may be a contract wallet: the chain is asked.
  const network = { ...paperNetwork, endpoints: [newEndpoint("base-sepolia", anvil.rpcUrl)] }
  service.ctx.chain.networks.splice(0, 1, network)
})
afterAll(async () => {
  await service.stop()
  await anvil.stop()
})
beforeEach(async () => {
  await service.empty()
  await service.merchant("shop")
})

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
/** The header for a refused change, signed by `by`. */
async function signed(answer: Awaited<ReturnType<typeof send>>, by = wallet): Promise<string> {
  expect([answer.status, answer.body.error], JSON.stringify(answer.body)).toEqual([403, "WALLET_SIGNATURE_REQUIRED"])
  const [{ typedData }] = answer.body.details
  return `${typedData.message.nonce} ${await by.signTypedData(typedData)}`
}
/** Sends a change, signs what comes back, and sends it again. */
const approved = async (change: Change) => await send(change, await signed(await send(change)))
const lock = async () =>
  expect((await approved({ method: "PUT", url: settings, body: { walletLock: true } })).status).toBe(200)
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
    console_("POST", "splits", { name: "new", recipients }),
    console_("PUT", `splits/${splitId}`, { recipients: half }),
    console_("POST", "paywalls", { name: "b", price: 5, splitId }),
    console_("PUT", `paywalls/${ids.paywalls}`, { splitId }),
    console_("POST", "products", { name: "b", price: 5, splitId }),
    console_("PUT", `products/${ids.products}`, { splitId }),
    console_("POST", "payment-links", { slug: "bbb", title: "B", amount: 5, splitId }),
    console_("PUT", `payment-links/${ids.links}`, { splitId }),
    console_("DELETE", `splits/${splitId}`),
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
      const [plain, split] = [await made(path, body), await made(path, { ...body, slug: undefined, splitId })]
      expect(wakes.mock.calls, path).toEqual([["deliveries"], ["deliveries"]])
      wakes.mockRestore()
      await send(console_("PUT", `${path}/${plain}`, { splitId }))
      await send(console_("PUT", `${path}/${plain}`, { splitId: null }))
      // No change of who is paid.
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

describe("the wallet lock", () => {
  it("is off at first, and switched on only by a wallet that can sign", async () => {
    expect((await service.call("GET", settings, undefined, { as: "shop" })).body.walletLock).toBe(false)
    await made("splits", { name: "s", recipients })
    const on = { method: "PUT", url: settings, body: { walletLock: true } } as const
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
    const on = { method: "PUT", url: settings, body: { walletLock: true } } as const
    expect((await send(on, await signed(await send(on), stranger))).status).toBe(403)
    expect((await send(on, await signed(await send(on), owner))).body.walletLock).toBe(true)
  })

  it("is switched on by the wallet that has been paid to longest, and not by one that a token has just added", async () => {
    await onNetworks(["base", "base-sepolia"], async () => {
      const thief = { payoutAddresses: { base: stranger.address } }
      expect((await send({ method: "PUT", url: settings, body: thief })).status).toBe(200)
      const on = { method: "PUT", url: settings, body: { walletLock: true } } as const
      const refused = await send(on)
      expect(refused.body.details[0].typedData.domain.chainId).toBe(84532)
      expect(refused.body.details[0].message).toContain(`with ${wallet.address} on base-sepolia`)
      expect((await send(on, await signed(refused, stranger))).body.details[0].message).toContain(
        "is not the signature of",
      )
      expect((await send(on, await signed(await send(on)))).body.walletLock).toBe(true)
      // The owner's signature changes the owner's address at once, and the thief's after a day.
      const body = { payoutAddresses: { base: A, "base-sepolia": B } }
      const moved = await approved({ method: "PUT", url: settings, body })
      expect(moved.body.payoutAddresses).toEqual({ base: stranger.address, "base-sepolia": B })
      expect(Object.keys(moved.body.pendingPayoutAddresses)).toEqual(["base"])
    })
  })

  it("keeps its wallet where an address is replaced by its own signature, and not where a token alone replaced it", async () => {
    await onNetworks(["base", "base-sepolia"], async () => {
      await send({ method: "PUT", url: settings, body: { payoutAddresses: { base: stranger.address } } })
      const signer = async () => {
        const refused = await send({ method: "PUT", url: settings, body: { walletLock: true } })
        return refused.body.details[0].message as string
      }
      await lock()
      const { address } = second
      await approved({ method: "PUT", url: settings, body: { payoutAddresses: { "base-sepolia": address } } })
      const off = { method: "PUT", url: settings, body: { walletLock: false } } as const
      await send(off, await signed(await send(off), second))
      await send({ method: "PUT", url: settings, body: { payoutAddresses: { "base-sepolia": A } } })
      expect(await signer()).toContain(`${address} on base-sepolia`)
      await service.ctx.db
        .updateTable("payout_addresses")
        .set({ pending_at: new Date(0) })
        .where("pending_address", "is not", null)
        .execute()
      await inTransaction(service.ctx, applyPendingPayoutAddresses)
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
        const on = { method: "PUT", url: settings, body: { walletLock: true } } as const
        expect((await send(on, await signed(await send(on), signer))).status).toBe(200)
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
const setLock = (on: boolean) => service.ctx.db.updateTable("merchants").set({ wallet_lock: on }).execute()

/** Serves these networks in this order while `work` runs; networks without a node exist only on paper. */
async function onNetworks(names: ("base" | "base-sepolia")[], work: () => Promise<void>): Promise<void> {
  const { networks } = service.ctx.chain
  const served = [...networks]
  const paper = { ...paperNetwork, name: "base", chainId: 8453 } as const
  networks.splice(0, networks.length, ...names.map(name => served.find(each => each.name === name) ?? paper))
  try {
    await work()
  } finally {
    networks.splice(0, networks.length, ...served)
  }
}
