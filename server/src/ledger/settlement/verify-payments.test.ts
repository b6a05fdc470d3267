import { encodeFunctionData, erc20Abi, type Hex, parseUnits } from "viem"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import {
  type Anvil,
  deployDepositFactory,
  deployForwarder,
  deployOtherToken,
  deployTestUsdc,
  startAnvil,
} from "../../../test/anvil.ts"
import { startService, type TestService } from "../../../test/service.ts"
import { forwarderAbi, otherTokenAbi, testUsdcAbi } from "../../platform/chain/abi.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { ensureCursor } from "../scanner/scan-round.ts"
import { verifyRound } from "./verify-payments.ts"

let anvil: Anvil
let service: TestService
let usdc: Address
let other: Address
let forwarder: Address

const usd = (text: string) => parseUnits(text, 6)
const buyer = (i: number) => {
  const account = anvil.accounts[i + 2]
  if (!account) throw new Error("no such buyer")
  return account
}

beforeAll(async () => {
  // Finality far enough back that a reorg can take a confirmed payment away.
  anvil = await startAnvil({ slotsInAnEpoch: 10 })
  const [deployer, operator] = anvil.accounts
  usdc = await deployTestUsdc(anvil.client)
  const factory = await deployDepositFactory(anvil.client, operator.address)
  other = await deployOtherToken(anvil.client)
  forwarder = await deployForwarder(anvil.client)
  for (const to of [...[0, 1, 2, 3].map(i => buyer(i).address), forwarder]) {
    await send(usdc, encodeFunctionData({ abi: testUsdcAbi, functionName: "mint", args: [to, usd("10000")] }), deployer)
    await send(
      other,
      encodeFunctionData({ abi: otherTokenAbi, functionName: "mint", args: [to, usd("10000")] }),
      deployer,
    )
  }
  const network = {
    name: "base-sepolia" as const,
    chainId: 84532,
    rpcUrls: [anvil.rpcUrl],
    token: usdc,
    confirmations: 3,
    depositFactory: factory,
    sanctionsOracle: undefined,
  }
  service = await startService({ networks: [network] })
})

afterAll(async () => {
  await service?.stop()
  await anvil?.stop()
})

beforeEach(async () => {
  await service.empty()
  await pass(0)
  await service.merchant("shop")
  await ensureCursor(service.ctx, network())
})

const network = () => {
  const [first] = service.ctx.chain.networks
  if (!first) throw new Error("no network")
  return first
}

type Sender = ReturnType<typeof buyer>

async function send(to: Hex, data: Hex, account: Sender = buyer(0), gas = 1_000_000n): Promise<Hex> {
  const hash = await anvil.client.sendTransaction({ account, chain: null, to, data, gas })
  await anvil.client.waitForTransactionReceipt({ hash })
  return hash
}

const transferData = (to: string, amount: bigint) =>
  encodeFunctionData({ abi: erc20Abi, functionName: "transfer", args: [to as Hex, amount] })

/** A buyer's plain transfer of the settlement token. */
const pay = (to: string, amount: string, from: Sender = buyer(0)) => send(usdc, transferData(to, usd(amount)), from)

interface Shop {
  id: string
  payTo: string
}

async function paywall(fields: Record<string, unknown> = {}): Promise<Shop> {
  const made = await service.call(
    "POST",
    "/api/console/paywalls",
    { name: "Film", price: "5.00", ...fields },
    { as: "shop" },
  )
  expect(made.status).toBe(201)
  return { id: made.body.id, payTo: (await service.call("GET", `/api/paywalls/${made.body.id}`)).body.payTo }
}

const change = (id: string, body: unknown) => service.call("PUT", `/api/console/paywalls/${id}`, body, { as: "shop" })
const submit = (id: string, txHash: string, address: string = buyer(0).address) =>
  service.call("POST", `/api/paywalls/${id}/pay`, { txHash, address })
const statusOf = async (id: string, txHash: string, address: string = buyer(0).address) =>
  (await service.call("GET", `/api/paywalls/${id}/payments/${txHash}?address=${address}`)).body
const access = async (id: string, address: string = buyer(0).address) =>
  (await service.call("GET", `/api/paywalls/${id}/verify?address=${address}`)).body
const grants = async (id: string) =>
  (await service.call("GET", `/api/console/paywalls/${id}/grants`, undefined, { as: "shop" })).body.data

/** A round of the verification job, due now. */
async function round(): Promise<void> {
  await service.ctx.db
    .updateTable("cursors")
    .set({ run_at: new Date(0) })
    .execute()
  await verifyRound(service.ctx, network())
}

/** Mines enough blocks to confirm, and runs the rounds that see it. */
async function confirmed(): Promise<void> {
  await round()
  await anvil.client.mine({ blocks: 3 })
  await round()
  // A submission whose receipt is not deep enough is due again after five seconds.
  service.advance(6_000)
  await round()
}

/**
 * Lets time pass for the chain and the service alike. The chain's clock is the one that counts: blocks made faster than
 * one a second put it ahead of the wall's.
 */
async function pass(ms: number): Promise<void> {
  await anvil.client.increaseTime({ seconds: ms / 1_000 })
  await anvil.client.mine({ blocks: 1 })
  const { timestamp } = await anvil.client.getBlock()
  service.advance(Number(timestamp) * 1_000 - service.ctx.now().getTime())
}

const MINUTE = 60_000
const DAY = 86_400_000

describe("a payment", () => {
  it("grants access once it is three blocks deep, and not before", async () => {
    const shop = await paywall()
    const txHash = await pay(shop.payTo, "5")
    const answer = await submit(shop.id, txHash)
    expect(answer).toMatchObject({
      status: 200,
      body: { status: "verifying", paywallId: shop.id, address: buyer(0).address, txHash },
    })
    await round()
    expect(await statusOf(shop.id, txHash)).toMatchObject({
      status: "verifying",
      confirmations: 1,
      requiredConfirmations: 3,
    })
    await anvil.client.mine({ blocks: 1 })
    await round()
    expect(await access(shop.id)).toEqual({ hasAccess: false })
    await anvil.client.mine({ blocks: 1 })
    await round()
    expect(await access(shop.id)).toEqual({ hasAccess: true, expiresAt: "9999-12-31T23:59:59.999Z", txHash })
    expect(await statusOf(shop.id, txHash)).toMatchObject({ status: "granted", reason: null })
    expect((await grants(shop.id)).map((grant: { amount: string }) => grant.amount)).toEqual(["5.00"])
  })

  it("is refused a second time with the same hash, whoever submits it", async () => {
    const shop = await paywall()
    const txHash = await pay(shop.payTo, "5")
    await submit(shop.id, txHash)
    await confirmed()
    for (const address of [buyer(0).address, buyer(1).address])
      expect(await submit(shop.id, txHash, address)).toMatchObject({ status: 409, body: { error: "ALREADY_VERIFIED" } })
    expect(await grants(shop.id)).toHaveLength(1)
  })

  it("submitted twice while it is verified is one submission", async () => {
    const shop = await paywall()
    const txHash = await pay(shop.payTo, "5")
    const first = await submit(shop.id, txHash)
    const again = await submit(shop.id, txHash.toUpperCase().replace("0X", "0x"), buyer(0).address.toLowerCase())
    expect(again.body).toEqual(first.body)
    expect(await service.ctx.db.selectFrom("submissions").selectAll().execute()).toHaveLength(1)
    await confirmed()
    expect(await grants(shop.id)).toHaveLength(1)
  })

  it("claimed by another address never gives it access, and its sender still gets his", async () => {
    const shop = await paywall()
    const txHash = await pay(shop.payTo, "5", buyer(0))
    await submit(shop.id, txHash, buyer(1).address)
    await confirmed()
    const stolen = await statusOf(shop.id, txHash, buyer(1).address)
    expect(stolen).toMatchObject({ status: "failed", reason: "wrong_sender" })
    expect(stolen.message).toContain(buyer(0).address)
    expect((await submit(shop.id, txHash, buyer(0).address)).status).toBe(200)
    await confirmed()
    expect((await access(shop.id, buyer(0).address)).hasAccess).toBe(true)
    expect((await access(shop.id, buyer(1).address)).hasAccess).toBe(false)
  })

  it("that nobody submits is granted to its sender after ten minutes", async () => {
    const shop = await paywall()
    const txHash = await pay(shop.payTo, "5")
    await confirmed()
    expect((await access(shop.id)).hasAccess).toBe(false)
    expect(await statusOf(shop.id, txHash)).toMatchObject({ status: "verifying" })
    await pass(11 * MINUTE)
    await round()
    expect(await access(shop.id)).toMatchObject({ hasAccess: true, txHash })
    expect(await statusOf(shop.id, txHash)).toMatchObject({ status: "granted" })
    expect((await submit(shop.id, txHash)).status).toBe(409)
  })

  it("from a smart wallet counts for the wallet, not for whoever sent the transaction", async () => {
    const shop = await paywall()
    const data = encodeFunctionData({
      abi: forwarderAbi,
      functionName: "forward",
      args: [usdc, shop.payTo as Hex, usd("5")],
    })
    const txHash = await send(forwarder, data, buyer(3))
    await submit(shop.id, txHash, buyer(3).address)
    await submit(shop.id, txHash, forwarder)
    await confirmed()
    expect((await access(shop.id, forwarder)).hasAccess).toBe(true)
    expect((await access(shop.id, buyer(3).address)).hasAccess).toBe(false)
    expect(await statusOf(shop.id, txHash, buyer(3).address)).toMatchObject({
      status: "failed",
      reason: "wrong_sender",
    })
  })

  it("is found by a long-poll as soon as it is granted", async () => {
    const shop = await paywall()
    const txHash = await pay(shop.payTo, "5")
    await submit(shop.id, txHash)
    const waiting = service.call(
      "GET",
      `/api/paywalls/${shop.id}/payments/${txHash}?address=${buyer(0).address}&wait=25`,
    )
    await confirmed()
    expect((await waiting).body.status).toBe("granted")
  })
})

describe("one transaction with four transfers", () => {
  const batch = (to: string[], amounts: string[]) =>
    send(
      forwarder,
      encodeFunctionData({ abi: forwarderAbi, functionName: "pay", args: [usdc, to as Hex[], amounts.map(usd)] }),
      buyer(0),
    )

  it("counts each for its own paywall", async () => {
    const shops = [await paywall(), await paywall(), await paywall(), await paywall()]
    const txHash = await batch(
      shops.map(shop => shop.payTo),
      ["5", "5", "4", "5"],
    )
    for (const shop of shops) await submit(shop.id, txHash, forwarder)
    await confirmed()
    const got = await Promise.all(shops.map(async shop => (await access(shop.id, forwarder)).hasAccess))
    expect(got).toEqual([true, true, false, true])
  })

  it("counts each once for the same paywall, and the hash is used only when all have granted", async () => {
    const shop = await paywall({ accessDuration: 100 })
    const txHash = await batch([shop.payTo, shop.payTo, shop.payTo, shop.payTo], ["5", "5", "5", "2"])
    await submit(shop.id, txHash, forwarder)
    await confirmed()
    expect(await grants(shop.id)).toHaveLength(3)
    expect((await submit(shop.id, txHash, forwarder)).status).toBe(200)
    await send(
      forwarder,
      encodeFunctionData({ abi: forwarderAbi, functionName: "forward", args: [usdc, shop.payTo as Hex, usd("3")] }),
    )
    await confirmed()
    expect(await grants(shop.id)).toHaveLength(4)
    expect((await submit(shop.id, txHash, forwarder)).status).toBe(409)
  })
})

describe("a failed payment says why", () => {
  it("too little, then topped up", async () => {
    const shop = await paywall()
    const first = await pay(shop.payTo, "4.99")
    await submit(shop.id, first)
    await confirmed()
    expect(await statusOf(shop.id, first)).toMatchObject({
      status: "failed",
      reason: "underpaid",
      message: "4.99 of 5.00 USDC arrived; send 0.01 more. Or ask the merchant, who can accept or return what arrived.",
    })
    const second = await pay(shop.payTo, "0.01")
    await confirmed()
    expect(await access(shop.id)).toMatchObject({ hasAccess: true, txHash: second })
    expect(await statusOf(shop.id, first)).toMatchObject({ status: "granted", reason: null })
    expect((await grants(shop.id))[0].amount).toBe("5.00")
  })

  it("does not add up over more than seven days", async () => {
    const shop = await paywall()
    await submit(shop.id, await pay(shop.payTo, "4"))
    await confirmed()
    await pass(8 * DAY)
    const second = await pay(shop.payTo, "1")
    await submit(shop.id, second)
    await confirmed()
    expect(await statusOf(shop.id, second)).toMatchObject({
      reason: "underpaid",
      message: "1.00 of 5.00 USDC arrived; send 4.00 more. Or ask the merchant, who can accept or return what arrived.",
    })
    expect((await access(shop.id)).hasAccess).toBe(false)
  })

  it("another recipient, and whose it is", async () => {
    const shop = await paywall()
    const neighbour = await paywall()
    const txHash = await pay(neighbour.payTo, "5")
    await submit(shop.id, txHash)
    await confirmed()
    const state = await statusOf(shop.id, txHash)
    expect(state).toMatchObject({ status: "failed", reason: "wrong_recipient" })
    expect(state.message).toContain(`${neighbour.payTo}, which belongs to the paywall ${neighbour.id}`)
    expect(state.message).toContain(shop.payTo)
    expect((await access(shop.id)).hasAccess).toBe(false)
    // It never counts at this paywall, and still counts at the one that it was sent to.
    expect((await submit(neighbour.id, txHash)).status).toBe(200)
    await confirmed()
    expect((await access(neighbour.id)).hasAccess).toBe(true)
    expect((await access(shop.id)).hasAccess).toBe(false)
  })

  it("a stranger's address", async () => {
    const shop = await paywall()
    const txHash = await pay(buyer(2).address, "5")
    await submit(shop.id, txHash)
    await confirmed()
    const state = await statusOf(shop.id, txHash)
    expect(state).toMatchObject({ status: "failed", reason: "wrong_recipient" })
    expect(state.message).toContain(`went to ${buyer(2).address}. Pay at`)
  })

  it("another token", async () => {
    const shop = await paywall()
    const txHash = await send(other, transferData(shop.payTo, usd("5")))
    await submit(shop.id, txHash)
    await confirmed()
    const state = await statusOf(shop.id, txHash)
    expect(state).toMatchObject({ status: "failed", reason: "wrong_asset" })
    expect(state.message.toLowerCase()).toContain(other)
    const kept = await service.ctx.db.selectFrom("transfers").select(["token", "value", "state"]).execute()
    expect(kept).toEqual([{ token: other, value: usd("5"), state: expect.stringMatching(/confirmed|final/) }])
  })

  it("a transaction that failed", async () => {
    const shop = await paywall()
    const txHash = await send(usdc, transferData(shop.payTo, usd("999999")))
    await submit(shop.id, txHash)
    await confirmed()
    expect(await statusOf(shop.id, txHash)).toMatchObject({ status: "failed", reason: "reverted" })
  })

  it("a transaction that moves no token, and one whose transfer is of zero", async () => {
    const shop = await paywall()
    const txHash = await anvil.client.sendTransaction({
      account: buyer(0),
      chain: null,
      to: shop.payTo as Hex,
      value: 0n,
      gas: 100_000n,
    })
    const zero = await pay(shop.payTo, "0")
    await submit(shop.id, txHash)
    await submit(shop.id, zero)
    await confirmed()
    for (const hash of [txHash, zero])
      expect(await statusOf(shop.id, hash)).toMatchObject({ status: "failed", reason: "no_transfer" })
    expect(await service.ctx.db.selectFrom("transfers").select("id").execute()).toEqual([])
  })

  it("a hash that nobody knows, after a day; and may be submitted again", async () => {
    const shop = await paywall()
    const txHash = `0x${"12".repeat(32)}`
    await submit(shop.id, txHash)
    await confirmed()
    expect(await statusOf(shop.id, txHash)).toMatchObject({ status: "verifying" })
    await pass(DAY + MINUTE)
    await round()
    expect(await statusOf(shop.id, txHash)).toMatchObject({ status: "failed", reason: "not_found" })
    expect((await submit(shop.id, txHash)).body.status).toBe("verifying")
    expect(await statusOf(shop.id, txHash)).toMatchObject({ status: "verifying", reason: null })
  })
})

describe("prices and switches", () => {
  it("a price raised between quote and payment still satisfies for an hour, then not", async () => {
    const shop = await paywall()
    await change(shop.id, { price: 9 })
    const quoted = await pay(shop.payTo, "5", buyer(0))
    await submit(shop.id, quoted)
    await confirmed()
    expect((await access(shop.id)).hasAccess).toBe(true)
    await pass(3_700_000)
    const later = await pay(shop.payTo, "5", buyer(1))
    await submit(shop.id, later, buyer(1).address)
    await confirmed()
    expect(await statusOf(shop.id, later, buyer(1).address)).toMatchObject({
      reason: "underpaid",
      message: "5.00 of 9.00 USDC arrived; send 4.00 more. Or ask the merchant, who can accept or return what arrived.",
    })
  })

  it("mined before the switch-off and submitted long after: granted; mined after it: not", async () => {
    const shop = await paywall()
    const before = await pay(shop.payTo, "5", buyer(0))
    await pass(10_000)
    expect((await service.call("DELETE", `/api/console/paywalls/${shop.id}`, undefined, { as: "shop" })).body).toEqual({
      deleted: true,
      id: shop.id,
    })
    await pass(10_000)
    const after = await pay(shop.payTo, "5", buyer(1))
    await round()
    await pass(3 * DAY)
    await submit(shop.id, before)
    await submit(shop.id, after, buyer(1).address)
    await confirmed()
    expect((await access(shop.id, buyer(0).address)).hasAccess).toBe(true)
    expect(await statusOf(shop.id, after, buyer(1).address)).toMatchObject({ status: "failed", reason: "late" })
    expect((await access(shop.id, buyer(1).address)).hasAccess).toBe(false)
  })

  it("a new payout address gives a new receiving address, and the old one is good for an hour", async () => {
    const shop = await paywall()
    await service.call("PUT", "/api/console/settings", { payoutAddress: buyer(3).address }, { as: "shop" })
    const now = (await service.call("GET", `/api/paywalls/${shop.id}`)).body.payTo
    expect(now).not.toBe(shop.payTo)
    const old = await pay(shop.payTo, "5", buyer(0))
    const fresh = await pay(now, "5", buyer(1))
    await submit(shop.id, old, buyer(0).address)
    await submit(shop.id, fresh, buyer(1).address)
    await confirmed()
    expect((await access(shop.id, buyer(0).address)).hasAccess).toBe(true)
    expect((await access(shop.id, buyer(1).address)).hasAccess).toBe(true)
    await pass(3_700_000)
    const stale = await pay(shop.payTo, "5", buyer(2))
    await submit(shop.id, stale, buyer(2).address)
    await confirmed()
    expect(await statusOf(shop.id, stale, buyer(2).address)).toMatchObject({ status: "failed", reason: "late" })
  })
})

describe("durations", () => {
  it("two payments confirmed at once add both, and revoking the first takes exactly its own time away", async () => {
    const shop = await paywall({ accessDuration: 1_000 })
    const hashes = [await pay(shop.payTo, "5"), await pay(shop.payTo, "5")]
    for (const hash of hashes) await submit(shop.id, hash)
    await confirmed()
    const granted = await grants(shop.id)
    expect(granted).toHaveLength(2)
    const first = granted.at(-1)
    const end = async () => new Date((await access(shop.id)).expiresAt).getTime() - new Date(first.grantedAt).getTime()
    expect(await end()).toBeGreaterThanOrEqual(2_000_000)
    const before = await end()
    const url = `/api/console/paywalls/${shop.id}/grants/${first.id}`
    expect((await service.call("DELETE", url, { reason: "refunded" }, { as: "shop" })).body).toEqual({
      deleted: true,
      id: first.id,
    })
    // The second was granted some milliseconds after the first, and now starts at its own time.
    expect(before - (await end())).toBeLessThanOrEqual(1_000_000)
    expect(before - (await end())).toBeGreaterThan(999_000)
    expect((await grants(shop.id)).at(-1)).toMatchObject({ revokedBy: "merchant", revokeReason: "refunded" })
    expect((await service.call("DELETE", url, undefined, { as: "shop" })).status).toBe(404)
  })
})

describe("a reorg", () => {
  /** Removes the last blocks with their transactions; returns the raw bytes of the named ones. */
  async function reorg(depth: number, hashes: Hex[] = []): Promise<Hex[]> {
    const raw = await Promise.all(
      hashes.map(
        hash =>
          anvil.client.request({ method: "eth_getRawTransactionByHash", params: [hash] } as never) as Promise<Hex>,
      ),
    )
    await anvil.client.reorg(depth)
    return raw
  }

  it("after the grant takes access away and says so; mined again it is granted again, once", async () => {
    const shop = await paywall({ accessDuration: 100_000 })
    const txHash = await pay(shop.payTo, "5")
    await submit(shop.id, txHash)
    await confirmed()
    expect((await access(shop.id)).hasAccess).toBe(true)
    const { k, log_index, block_hash } = await service.ctx.db
      .selectFrom("transfers")
      .selectAll()
      .executeTakeFirstOrThrow()

    const [raw = "0x"] = await reorg(6, [txHash])
    // One round is not enough evidence.
    await round()
    expect((await access(shop.id)).hasAccess).toBe(true)
    service.advance(31_000)
    await round()
    expect(await access(shop.id)).toEqual({ hasAccess: false })
    expect(await statusOf(shop.id, txHash)).toMatchObject({ status: "reversed" })
    expect((await grants(shop.id))[0]).toMatchObject({ revokedBy: "reorg" })

    // In a block with another transfer before it, so that its log has another index.
    await anvil.client.setAutomine(false)
    await anvil.client.sendTransaction({
      account: buyer(1),
      chain: null,
      to: usdc,
      data: transferData(buyer(2).address, 1n),
      gas: 100_000n,
      maxFeePerGas: 10n ** 11n,
      maxPriorityFeePerGas: 10n ** 11n,
    })
    await anvil.client.sendRawTransaction({ serializedTransaction: raw })
    await anvil.client.mine({ blocks: 1 })
    await anvil.client.setAutomine(true)
    await confirmed()
    const again = await service.ctx.db.selectFrom("transfers").selectAll().execute()
    expect(again).toHaveLength(1)
    expect(again[0]).toMatchObject({ k })
    expect(again[0]?.log_index).not.toBe(log_index)
    expect(again[0]?.block_hash).not.toBe(block_hash)
    expect(await access(shop.id)).toMatchObject({ hasAccess: true, txHash })
    expect(await statusOf(shop.id, txHash)).toMatchObject({ status: "granted" })
    expect(await grants(shop.id)).toHaveLength(1)
    expect((await submit(shop.id, txHash)).status).toBe(409)
  })

  it("that only moves the transfer to another block reverses nothing", async () => {
    const shop = await paywall()
    const txHash = await pay(shop.payTo, "5")
    await submit(shop.id, txHash)
    await confirmed()
    const [raw = "0x"] = await reorg(6, [txHash])
    await anvil.client.sendRawTransaction({ serializedTransaction: raw })
    await round()
    service.advance(31_000)
    await confirmed()
    expect((await access(shop.id)).hasAccess).toBe(true)
    expect(await grants(shop.id)).toMatchObject([{ revokedAt: null }])
    expect(await service.ctx.db.selectFrom("payments").select("status").execute()).toEqual([{ status: "granted" }])
  })

  it("before the grant: the payment is looked for again, and counts when it is mined again", async () => {
    const shop = await paywall()
    const txHash = await pay(shop.payTo, "5")
    await submit(shop.id, txHash)
    await round()
    const [raw = "0x"] = await reorg(2, [txHash])
    await anvil.client.mine({ blocks: 3 })
    await round()
    service.advance(31_000)
    await round()
    expect(await statusOf(shop.id, txHash)).toMatchObject({ status: "verifying" })
    expect((await access(shop.id)).hasAccess).toBe(false)
    await anvil.client.sendRawTransaction({ serializedTransaction: raw })
    await confirmed()
    expect((await access(shop.id)).hasAccess).toBe(true)
  })

  it("takes one of two top-ups: reversed; what is left and another top-up are a payment again", async () => {
    const shop = await paywall()
    const first = await pay(shop.payTo, "3")
    await submit(shop.id, first)
    await confirmed()
    await anvil.client.mine({ blocks: 10 })
    const second = await pay(shop.payTo, "2")
    await submit(shop.id, second)
    await confirmed()
    expect((await access(shop.id)).hasAccess).toBe(true)
    const [raw = "0x"] = await reorg(4, [second])
    await round()
    service.advance(31_000)
    await round()
    expect((await access(shop.id)).hasAccess).toBe(false)
    await pay(shop.payTo, "2", buyer(0))
    await confirmed()
    expect((await access(shop.id)).hasAccess).toBe(true)
    expect(await service.ctx.db.selectFrom("payments").select(["status", "amount"]).execute()).toEqual([
      { status: "granted", amount: usd("5") },
    ])
    expect(raw).toMatch(/^0x/)
  })
})
