// Returns that a merchant's wallet approves, on a real chain: what it signed is sent once, and nothing else is.
import { randomUUID } from "node:crypto"
import { sql } from "kysely"
import { encodeFunctionData, type Hex, parseSignature, serializeSignature } from "viem"
import type { PrivateKeyAccount } from "viem/accounts"
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from "vitest"
import { deployContractWallet } from "../../../test/anvil.ts"
import { lifeOf } from "../../../test/life.ts"
import { wrongParts } from "../../../test/parts.ts"
import { type PayoutRig, recipient, startPayoutRig } from "../../../test/payouts.ts"
import { PAYOUT_ADDRESS } from "../../../test/service.ts"
import { depositFactoryAbi } from "../../platform/chain/abi.ts"
import { type GiveBack, giveBackData } from "../../platform/chain/give-back.ts"
import type { Hash } from "../../platform/chain/hex.ts"
import { termsOf } from "../../platform/chain/release-call.ts"
import { checkConsistency } from "../reconciliation/check-consistency.ts"
import { reconcileRound } from "../reconciliation/reconcile.ts"
import { sweepDue } from "./make-payouts.ts"

let rig: PayoutRig
let merchant: PrivateKeyAccount
beforeAll(async () => {
  rig = await startPayoutRig()
  merchant = rig.anvil.accounts[9]
})
afterAll(() => rig.stop())
afterEach(async () => expect(await wrongParts(rig.service.ctx)).toEqual([]))
beforeEach(async () => {
  await lifeOf(rig).begin()
  await settings({ approver: "wallet" })
})

const as = { as: "shop" }
const db = () => rig.service.ctx.db
const settings = async (body: object) => {
  const { status } = await rig.service.call("PUT", "/api/console/settings", body, as)
  expect(status).toBe(200)
}
const giveBack = (id: string, body: object) => rig.service.call("POST", `/api/console/payments/${id}/return`, body, as)

/** Money too little for its paywall, which waits for the merchant; returns its payment. */
const waiting = async (amount = 200_000n): Promise<string> => await rig.paid(await rig.sell(), amount)

/** The data that the answer to a request without an approval asks to sign. */
async function askedOf(id: string, address: string) {
  const { status, body } = await giveBack(id, { address })
  expect([status, body.error]).toEqual([409, "RETURN_APPROVAL_REQUIRED"])
  expect(body.details[0].message).toContain(`Sign typedData with ${PAYOUT_ADDRESS}`)
  return body.details[0].typedData
}

// biome-ignore lint/suspicious/noExplicitAny: it is JSON, as a wallet gets it.
const sign = (by: PrivateKeyAccount, { types: { EIP712Domain: _, ...types }, ...data }: any): Promise<Hex> =>
  by.signTypedData({ ...data, types })

const approvalOf = async (typedData: Awaited<ReturnType<typeof askedOf>>, by = merchant) => ({
  deadline: Number.parseInt(typedData.message.deadline, 10),
  signature: await sign(by, typedData),
})

const accept = (id: string) => rig.service.call("POST", `/api/console/payments/${id}/accept`, {}, as)

/** A payment as its merchant sees it. */
async function shown(id: string) {
  const { body } = await rig.service.call("GET", "/api/console/payments?limit=100", undefined, as)
  return body.data.find((row: { id: string }) => row.id === id)
}

type Shop = Awaited<ReturnType<PayoutRig["sell"]>>

/** The books of an address: its rows, what of its money is promised to nobody, and what it holds. */
async function booked({ deposit }: Shop) {
  const { body } = await rig.service.call("GET", `/api/console/books?deposit=${deposit.address}`, undefined, as)
  const { rows } = await sql<{
    room: bigint
  }>`select room_in(${deposit.id}, ${rig.token})::numeric(78,0) as room`.execute(db())
  const lines = body.data.map((row: Record<string, string>) => `${row.reason} ${row.amountIn ?? row.amountOut}`)
  return { rows: lines.sort(), room: rows[0]?.room, balance: await rig.balanceOf(deposit.address) }
}

/** The database agrees with itself, and with the chain in every comparison. */
async function agrees(): Promise<void> {
  expect(await checkConsistency(rig.service.ctx, rig.network.chainId)).toEqual([])
  await db().updateTable("wallets").set({ checked_number: 0n }).execute()
  expect(await lifeOf(rig).compareLogs()).toBeNull()
  rig.service.advance(86_400_001)
  await reconcileRound(rig.service.ctx, rig.network, rig.signer.address)
  expect(await lifeOf(rig).haltedReason()).toBeNull()
}

// biome-ignore lint/suspicious/noExplicitAny: it is JSON, as a wallet gets it.
const messageOf = ({ message: { token, to, amount, deposit, nonce, deadline } }: any): GiveBack => ({
  token,
  to,
  deposit,
  nonce,
  amount: BigInt(amount),
  deadline: BigInt(deadline),
})

/** What the merchant signs without asking the service. */
const ownMessage = ({ deposit }: Shop, amount: bigint, digit = "7"): GiveBack => ({
  token: rig.token,
  to: recipient(5),
  amount,
  deposit: deposit.address,
  deadline: 2n ** 40n,
  nonce: `0x${digit.repeat(64)}` as Hash,
})

/** A stranger submits what the merchant has signed, all in one transaction; returns its hash. */
async function submit({ deposit }: Shop, messages: GiveBack[]): Promise<Hex> {
  const { depositFactory: address, chainId } = rig.network
  const calls = messages.map(async message => {
    const signature = await merchant.signTypedData(giveBackData(chainId, address, message))
    const { token, to, amount, nonce, deadline } = message
    const args = [deposit.salt, termsOf(deposit), token, to, amount, nonce, deadline, signature] as const
    return encodeFunctionData({ abi: depositFactoryAbi, functionName: "giveBack", args })
  })
  const call = { address, abi: depositFactoryAbi, functionName: "multicall", args: [await Promise.all(calls)] } as const
  const [, , , stranger] = rig.anvil.accounts
  return (await rig.anvil.client.writeContractSync({ ...call, account: stranger })).transactionHash
}

it("sends what the wallet signed, once, and leaves no trace of a request without a signature", async () => {
  const id = await waiting()
  const to = recipient(7)
  const typedData = await askedOf(id, to)
  expect(typedData).toMatchObject({
    primaryType: "GiveBack",
    message: { to, amount: "200000", token: rig.token },
    types: { EIP712Domain: expect.any(Array) },
  })
  expect(await rig.payouts()).toEqual([])
  expect((await db().selectFrom("payments").selectAll().executeTakeFirstOrThrow()).status).toBe("open")
  const approval = await approvalOf(typedData)
  const before = await rig.balanceOf(to)
  const returned = await giveBack(id, { address: to, approval })
  expect(returned).toMatchObject({ status: 200, body: { status: "returned", approver: PAYOUT_ADDRESS } })
  expect((await giveBack(id, { address: to, approval })).body.error).toBe("INVALID_OPERATION")
  await lifeOf(rig).settle()
  expect(await rig.balanceOf(to)).toBe(before + 200_000n)
  expect(await rig.states()).toEqual(["final"])
  expect(await checkConsistency(rig.service.ctx, rig.network.chainId)).toEqual([])
  // Anyone has the signature now.
  const [payout] = await rig.payouts()
  const again = { account: rig.anvil.accounts[3], to: payout?.to_address as Hex, data: payout?.data as Hex }
  await expect(rig.anvil.client.call(again)).rejects.toThrow("reverted")
})

it("by the signature of a contract wallet (ERC-1271)", async () => {
  const [, , , , , , , , key] = rig.anvil.accounts
  const wallet = await deployContractWallet(rig.anvil.client, key.address)
  await settings({ payoutAddress: wallet })
  const id = await waiting()
  const to = recipient(6)
  const { body } = await giveBack(id, { address: to })
  const before = await rig.balanceOf(to)
  const signed = await approvalOf(body.details[0].typedData, key)
  const stranger = await approvalOf(body.details[0].typedData)
  expect((await giveBack(id, { address: to, approval: stranger })).body.details[0].path).toBe("approval.signature")
  expect((await giveBack(id, { address: to, approval: signed })).status).toBe(200)
  await lifeOf(rig).settle()
  expect(await rig.balanceOf(to)).toBe(before + 200_000n)
})

it("refuses what the contract would refuse, and writes nothing: the money still waits for the merchant", async () => {
  const { client } = rig.anvil
  const to = recipient(6)
  const isRefused = async (id: string, answer: { error: string; path?: string }) => {
    const { body } = await giveBack(id, { address: to })
    const { status, body: refused } = await giveBack(id, {
      address: to,
      approval: await approvalOf(body.details[0].typedData),
    })
    expect([status, refused.error, refused.details?.[0].path]).toEqual([
      answer.path ? 400 : 409,
      answer.error,
      answer.path,
    ])
    expect(await rig.payouts()).toEqual([])
    expect((await db().selectFrom("payments").selectAll().where("id", "=", id).executeTakeFirstOrThrow()).status).toBe(
      "open",
    )
  }
  const signature = { error: "VALIDATION_ERROR", path: "approval.signature" }
  const id = await waiting()
  // An account whose key delegates to code without ERC-1271 (EIP-7702): the contract asks the code, not the key.
  try {
    await client.setCode({ address: merchant.address, bytecode: `0xef0100${rig.token.slice(2)}` })
    await isRefused(id, signature)
  } finally {
    await client.setCode({ address: merchant.address, bytecode: "0x" })
  }
  // A contract wallet that says yes after a loop of 580,000 gas: more than the transaction has.
  const wallet = `0x${"a1".repeat(20)}` as const
  await client.setCode({
    address: wallet,
    bytecode: `0x5f5b60010180614e20116001577f1626ba7e${"0".repeat(56)}5f5260205ff3`,
  })
  await settings({ payoutAddress: wallet })
  await isRefused(await waiting(), signature)
})

it("refuses a signature for anything else, or one that has ended, and writes nothing", async () => {
  const id = await waiting()
  const other = await waiting()
  const to = recipient(5)
  const typedData = await askedOf(id, to)
  const { message, domain } = typedData
  const good = await approvalOf(typedData)
  const wrong = {
    "another deposit": await approvalOf(await askedOf(other, to)),
    "another chain": await approvalOf({ ...typedData, domain: { ...domain, chainId: 1 } }),
    "another factory": await approvalOf({ ...typedData, domain: { ...domain, verifyingContract: recipient(1) } }),
    "another token": await approvalOf({ ...typedData, message: { ...message, token: recipient(1) } }),
    "another recipient": await approvalOf({ ...typedData, message: { ...message, to: recipient(1) } }),
    "another amount": await approvalOf({ ...typedData, message: { ...message, amount: "1" } }),
    "another deadline": { ...good, deadline: good.deadline + 1 },
    "another wallet": await approvalOf(typedData, rig.anvil.accounts[3]),
    "a form that contracts refuse": { ...good, signature: malleable(good.signature) },
  }
  for (const [what, approval] of Object.entries(wrong)) {
    const { status, body } = await giveBack(id, { address: to, approval })
    expect([what, status, body.details?.[0].path]).toEqual([what, 400, "approval.signature"])
  }
  for (const seconds of [60, 40 * 86_400]) {
    const deadline = Math.floor(rig.service.ctx.now().getTime() / 1_000) + seconds
    const late = await approvalOf({ ...typedData, message: { ...message, deadline: `${deadline}` } })
    const { body } = await giveBack(id, { address: to, approval: late })
    expect(body.details[0].path).toBe("approval.deadline")
  }
  expect(await rig.payouts()).toEqual([])
  // The merchant accepts instead: its signature is worthless from then on.
  expect((await rig.service.call("POST", `/api/console/payments/${id}/accept`, {}, as)).status).toBe(200)
  expect((await giveBack(id, { address: to, approval: good })).body.error).toBe("INVALID_OPERATION")
})

/** The other form of a signature of the same key. */
function malleable(signature: Hex): Hex {
  const { r, s, yParity } = parseSignature(signature)
  const order = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n
  return serializeSignature({ r, s: `0x${(order - BigInt(s)).toString(16).padStart(64, "0")}`, yParity: 1 - yParity })
}

it("becomes final by the transaction of whoever submitted the merchant's signature, and counts once", async () => {
  const life = lifeOf(rig)
  const shop = await rig.sell()
  const id = await rig.paid(shop, 200_000n)
  const to = recipient(4)
  const approval = await approvalOf(await askedOf(id, to))
  await giveBack(id, { address: to, approval })
  const [payout] = await rig.payouts()
  const before = await rig.balanceOf(to)
  const call = { account: rig.anvil.accounts[3], to: payout?.to_address as Hex, data: payout?.data as Hex }
  const { transactionHash } = await rig.anvil.client.sendTransactionSync(call)
  await rig.round()
  expect(await rig.payouts()).toMatchObject([
    { state: "held", held_reason: "simulation", held_detail: expect.stringContaining("already used on chain") },
  ])
  await life.mine()
  expect(await life.compareLogs()).toBeNull()
  expect(await rig.payouts()).toMatchObject([
    { id: payout?.id, state: "final", nonce: null, tx_hash: transactionHash, succeeded: true, held_reason: null },
  ])
  expect(await rig.balanceOf(to)).toBe(before + 200_000n)
  expect(await shown(id)).toMatchObject({ status: "returned", return: { state: "final", txHash: transactionHash } })
  expect(await booked(shop)).toEqual({ rows: ["payment 0.20", "return 0.20"], room: 0n, balance: 0n })
  await agrees()
})

it("is cancelled where its approval's nonce was used for another amount, and the payment is returned by what moved", async () => {
  const life = lifeOf(rig)
  const shop = await rig.sell()
  const id = await rig.paid(shop, 200_000n)
  const to = recipient(4)
  const typedData = await askedOf(id, to)
  await giveBack(id, { address: to, approval: await approvalOf(typedData) })
  const transactionHash = await submit(shop, [{ ...messageOf(typedData), amount: 150_000n }])
  await life.mine()
  expect(await life.compareLogs()).toBeNull()
  expect((await rig.payouts()).map(({ state, amount }) => `${state} ${amount}`)).toEqual([
    "cancelled 200000",
    "final 150000",
  ])
  expect(await shown(id)).toMatchObject({ status: "returned", return: { state: "final", txHash: transactionHash } })
  expect(await booked(shop)).toMatchObject({ room: 50_000n, balance: 50_000n })
  await agrees()
})

it("of granted money by the merchant itself leaves the rest of its address to be swept", async () => {
  const shop = await rig.sell()
  const life = lifeOf(rig)
  await rig.paid(shop, 500_000n)
  await rig.paid(shop, 600_000n)
  await submit(shop, [ownMessage(shop, 500_000n)])
  await life.mine()
  expect(await life.compareLogs()).toBeNull()
  for (const more of [0n, 700_000n]) {
    if (more > 0n) await rig.paid(shop, more)
    await life.advance(2 * 86_400_000)
    await sweepDue(rig.service.ctx, rig.network)
    await life.settle()
    expect(await rig.balanceOf(shop.deposit.address)).toBe(0n)
  }
  expect((await rig.payouts()).map(({ state, amount }) => `${state} ${amount}`)).toEqual([
    "final 600000",
    "final 700000",
  ])
  await agrees()
})

it("that the merchant made itself ends its payment, which is neither accepted nor returned again", async () => {
  const shop = await rig.sell([50, 50])
  const life = lifeOf(rig)
  const to = recipient(5)
  const [, , , , , , other] = rig.anvil.accounts
  const ids = [await rig.paid(shop, 200_000n), await rig.paid(shop, 200_000n, other)]
  const left = await rig.paid(shop, 300_000n, rig.anvil.accounts[7])
  const messages = []
  for (const id of ids) messages.push(messageOf(await askedOf(id, to)))
  const decide = async (id: string) => [
    (await accept(id)).body.error,
    (await giveBack(id, { address: to, approval: await approvalOf(await askedOf(id, to)) })).body.error,
  ]
  // Two identical give-backs in one transaction.
  const transactionHash = await submit(shop, messages)
  // Before any comparison: a decision would spend the other buyer's money.
  for (const id of ids) expect(await decide(id)).toEqual(["INVALID_OPERATION", "INVALID_OPERATION"])
  expect(await rig.payouts()).toEqual([])
  await life.mine()
  expect(await life.compareLogs()).toBeNull()
  for (const id of ids) {
    expect(await shown(id)).toMatchObject({ status: "returned", return: { state: "final", txHash: transactionHash } })
    expect([(await accept(id)).status, (await giveBack(id, { address: to })).status]).toEqual([409, 409])
  }
  expect((await accept(left)).status).toBe(200)
  await life.settle()
  expect(await booked(shop)).toEqual({
    rows: ["payment 0.20", "payment 0.20", "payment 0.30", "return 0.20", "return 0.20", "share 0.15", "share 0.15"],
    room: 0n,
    balance: 0n,
  })
  await agrees()
})

it("that the merchant made itself is not topped up to a whole payment before anyone has noticed it", async () => {
  const shop = await rig.sell()
  const life = lifeOf(rig)
  const id = await rig.paid(shop, 499_000n)
  await submit(shop, [messageOf(await askedOf(id, recipient(5)))])
  await life.send(shop.deposit.address, 1_000n)
  for (let i = 0; i < 2; i++) {
    await life.advance(660_000)
    await life.verify()
  }
  expect(await shown(id)).toMatchObject({ status: "open", amount: "0.499" })
  await life.mine()
  expect(await life.compareLogs()).toBeNull()
  expect(await shown(id)).toMatchObject({ status: "returned", return: { state: "final" } })
  // What is sent while nothing is missing there buys it.
  await life.send(shop.deposit.address, 500_000n)
  for (let i = 0; i < 2; i++) {
    await life.advance(660_000)
    await life.verify()
  }
  const { data } = (await rig.service.call("GET", "/api/console/payments?status=granted", undefined, as)).body
  expect(data).toMatchObject([{ amount: "0.501" }])
  await agrees()
})

it("that the merchant made itself by a nonce of its own ends the one payment of its amount", async () => {
  const shop = await rig.sell()
  const life = lifeOf(rig)
  const [, , , , , , other] = rig.anvil.accounts
  const id = await rig.paid(shop, 200_000n)
  const left = await rig.paid(shop, 300_000n, other)
  const transactionHash = await submit(shop, [ownMessage(shop, 200_000n), ownMessage(shop, 50_000n, "8")])
  await life.mine()
  expect(await life.compareLogs()).toBeNull()
  expect(await shown(id)).toMatchObject({ status: "returned", return: { state: "final", txHash: transactionHash } })
  expect(await shown(left)).toMatchObject({ status: "open" })
  // A later payment of the same amount was not given back.
  const later = await rig.paid(shop, 50_000n, rig.anvil.accounts[7])
  await life.mine()
  expect(await life.compareLogs()).toBeNull()
  expect(await shown(later)).toMatchObject({ status: "open" })
  await agrees()
})

it("of a surplus that the merchant made itself ends the surplus where all of it was sent", async () => {
  const life = lifeOf(rig)
  const shops = [await rig.sell(), await rig.sell()]
  for (const { deposit } of shops) await life.send(deposit.address, 2_500_000n)
  for (let i = 0; i < 3; i++) {
    await life.advance(660_000)
    await life.verify()
  }
  const listed = (await rig.service.call("GET", "/api/console/payments", undefined, as)).body.data
  const idOf = (shop: Shop) => listed.find((row: { paywallId: string }) => row.paywallId === shop.id).id as string
  for (const [i, shop] of shops.entries()) {
    const message = messageOf(await askedOf(idOf(shop), recipient(7)))
    expect(message.amount).toBe(2_000_000n)
    await submit(shop, [{ ...message, amount: message.amount - BigInt(i) }])
  }
  await life.mine()
  expect(await life.compareLogs()).toBeNull()
  expect(await Promise.all(shops.map(shop => shown(idOf(shop))))).toMatchObject([
    { status: "granted", surplus: { amount: "2.00", status: "returned" }, return: { state: "final" } },
    { status: "granted", surplus: { amount: "2.00", status: "open" }, return: null },
  ])
  await agrees()
})

it("that the merchant made itself of one of two equal payments ends neither, and accepting draws nobody's money", async () => {
  const shop = await rig.sell([50, 50])
  const life = lifeOf(rig)
  const to = recipient(6)
  const [, , , , , , other] = rig.anvil.accounts
  const one = await rig.paid(shop, 200_000n)
  const two = await rig.paid(shop, 200_000n, other)
  await submit(shop, [ownMessage(shop, 200_000n)])
  expect((await accept(one)).body.message).toContain("Money has left this payment's receiving address")
  await life.mine()
  expect(await life.compareLogs()).toBeNull()
  for (const id of [one, two]) expect(await shown(id)).toMatchObject({ status: "open" })
  expect((await accept(one)).status).toBe(200)
  await life.settle()
  expect((await rig.payouts()).map(row => `${row.state} ${row.held_reason}`)).toEqual(["held short", "held short"])
  const before = await rig.balanceOf(to)
  const approval = await approvalOf(await askedOf(two, to))
  expect((await giveBack(two, { address: to, approval })).status).toBe(200)
  await life.settle()
  expect(await rig.balanceOf(to)).toBe(before + 200_000n)
  await agrees()
})

it.each(["wallet", "service"])(
  "is sent once, though a return of the same money was cancelled before, approved by the %s",
  async by => {
    await settings({ approver: by })
    const id = await waiting()
    const to = recipient(2)
    const approve = async () => (by === "wallet" ? { approval: await approvalOf(await askedOf(id, to)) } : {})
    const first = await giveBack(id, { address: to, ...(await approve()) })
    expect(first.body.status).toBe("returned")
    const [old] = await rig.payouts()
    await db().updateTable("payouts").set({ state: "cancelled", held_reason: null }).execute()
    rig.service.advance(60_000)
    expect((await giveBack(id, { address: to, ...(await approve()) })).body.status).toBe("returned")
    const before = await rig.balanceOf(to)
    await lifeOf(rig).settle()
    expect((await rig.states()).sort()).toEqual(["cancelled", "final"])
    // The old calldata is worthless, even with the operator's key.
    const [, operator] = rig.anvil.accounts
    const call = { account: operator, to: old?.to_address as Hex, data: old?.data as Hex }
    await expect(rig.anvil.client.call(call)).rejects.toThrow("reverted")
    expect(await rig.balanceOf(to)).toBe(before + 200_000n)
  },
)

it("is open again when the approval ended before it could be sent", async () => {
  const id = await waiting()
  const to = recipient(1)
  const { message, ...rest } = await askedOf(id, to)
  const deadline = `${Math.floor(rig.service.ctx.now().getTime() / 1_000) + 700}`
  const approval = await approvalOf({ ...rest, message: { ...message, deadline } })
  expect((await giveBack(id, { address: to, approval })).status).toBe(200)
  // The chain's newest block is later than the deadline, and its final one is not: a reorg may bring an earlier time.
  rig.service.advance(800_000)
  const timestamp = BigInt(Math.floor(rig.service.ctx.now().getTime() / 1_000))
  await rig.anvil.client.setNextBlockTimestamp({ timestamp })
  await rig.anvil.client.mine({ blocks: 1 })
  await rig.round()
  expect(await rig.payouts()).toMatchObject([
    { state: "held", held_reason: "simulation", held_detail: expect.stringContaining(`Expired(${deadline})`) },
  ])
  await lifeOf(rig).advance(3_600_000)
  await rig.round()
  expect(await rig.states()).toEqual(["cancelled"])
  expect((await db().selectFrom("payments").selectAll().executeTakeFirstOrThrow()).status).toBe("open")
  const again = await approvalOf(await askedOf(id, to))
  expect((await giveBack(id, { address: to, approval: again })).status).toBe(200)
  await lifeOf(rig).settle()
  expect((await rig.states()).sort()).toEqual(["cancelled", "final"])
})

it("does not sign a return whose calldata was altered in the database", async () => {
  await settings({ approver: "service" })
  const id = await waiting()
  const to = recipient(31)
  const thief = recipient(32)
  expect((await giveBack(id, { address: to })).status).toBe(200)
  await sql`alter table payouts disable trigger user`.execute(db())
  await sql`update payouts set data = replace(data, ${to.slice(2)}, ${thief.slice(2)})`.execute(db())
  await sql`alter table payouts enable trigger user`.execute(db())
  await rig.round()
  expect(await rig.payouts()).toMatchObject([
    { state: "held", held_detail: expect.stringContaining("was altered: the row") },
  ])
  expect(await rig.balanceOf(thief)).toBe(0n)
})

/** Signs and broadcasts a payment's return, which fails for good: anyone can still submit it; returns its calldata. */
async function makePublic(id: string): Promise<Hex> {
  const to = recipient(33)
  expect((await giveBack(id, { address: to, approval: await approvalOf(await askedOf(id, to)) })).status).toBe(200)
  await rig.anvil.client.setAutomine(false)
  await rig.round()
  await rig.anvil.client.dropAllTransactions()
  await rig.anvil.client.setAutomine(true)
  const mined = `0x${"1".repeat(64)}` as Hash
  // As if another transaction had used up its nonce so often that the service gave up.
  await db()
    .updateTable("payouts")
    .set({ state: "reverted", succeeded: false, block_number: 1n, tx_hash: mined, block_hash: mined })
    .execute()
  await db().updateTable("payments").set({ status: "open", returned_at: null, returned_to: null }).execute()
  const [payout] = await rig.payouts()
  return payout?.data as Hex
}

it("can't be accepted while the approval of a cancelled return is public and has not expired", async () => {
  const id = await waiting()
  await makePublic(id)
  expect(await accept(id)).toMatchObject({ status: 409, body: { message: expect.stringContaining("signed a return") } })
  await lifeOf(rig).advance(8 * 86_400_000)
  await lifeOf(rig).verify()
  expect((await accept(id)).status).toBe(200)
})

const standing = async () => {
  const rows = await db().selectFrom("payments").select(["status", "amount"]).orderBy("amount").execute()
  return rows.map(({ status, amount }) => `${status} ${amount}`)
}

it("grants nothing when its payer adds the rest while its approval is public: then it expires, and both are one payment", async () => {
  const shop = await rig.sell()
  await makePublic(await rig.paid(shop, 200_000n))
  await rig.paid(shop, 300_000n)
  expect(await standing()).toEqual(["open 200000", "open 300000"])
  await lifeOf(rig).advance(6 * 86_400_000)
  await lifeOf(rig).verify()
  expect(await standing()).toEqual(["open 200000", "open 300000"])
  await lifeOf(rig).advance(2 * 86_400_000)
  // The first round reads the chain's new time, the second settles.
  for (let i = 0; i < 2; i++) await lifeOf(rig).verify()
  expect(await standing()).toEqual(["granted 500000"])
  expect(await checkConsistency(rig.service.ctx, rig.network.chainId)).toEqual([])
})

it.each(["paywall", "checkout"])(
  "is returned when somebody submits its public approval after its payer has added the rest, at a %s",
  async kind => {
    const life = lifeOf(rig)
    const what = kind === "paywall" ? { name: "a", price: "0.50" } : { amount: "0.50" }
    const { body } = await rig.service.call("POST", `/api/console/${kind}s`, what, as)
    const deposit = await db().selectFrom("deposits").selectAll().executeTakeFirstOrThrow()
    const arrive = async (amount: bigint) => {
      await life.send(deposit.address, amount)
      // It is confirmed, and after ten minutes it is settled without a submitted hash.
      for (let i = 0; i < 3; i++) {
        await life.verify()
        await life.advance(300_000)
      }
      await life.verify()
    }
    await arrive(200_000n)
    const { id } = await db().selectFrom("payments").select("id").executeTakeFirstOrThrow()
    const data = await makePublic(id)
    await arrive(300_000n)
    expect(await standing()).toEqual(["open 200000", "open 300000"])
    if (kind === "checkout")
      expect((await rig.service.call("GET", `/api/pay/status/${body.id}`)).body.status).not.toBe("confirmed")
    const [, , , stranger] = rig.anvil.accounts
    await rig.anvil.client.sendTransactionSync({ account: stranger, to: rig.network.depositFactory, data })
    await life.mine()
    await life.verify()
    await rig.compareLogs()
    expect(await shown(id)).toMatchObject({ status: "returned", return: { state: "final" } })
    expect(await standing()).toEqual(["returned 200000", "open 300000"])
  },
)

it("sends fifty back in two requests: the first says what to sign", async () => {
  const ids: string[] = []
  for (let i = 0; i < 50; i++) ids.push(await waiting(10_000n))
  const to = recipient(3)
  const send = (returns: object[]) => rig.service.call("POST", "/api/console/payments/return", { returns }, as)
  const first = await send(ids.map(id => ({ id, address: to })))
  const asked = first.body.data as { id: string; error: { error: string; details: { typedData: never }[] } }[]
  expect(new Set(asked.map(each => each.error.error))).toEqual(new Set(["RETURN_APPROVAL_REQUIRED"]))
  const orders = await Promise.all(
    asked.map(async ({ id, error }) => ({ id, address: to, approval: await approvalOf(error.details[0]?.typedData) })),
  )
  // One approval is for another return; the others are sent.
  const [one, two] = orders
  if (one && two) one.approval = two.approval
  const second = await send(orders)
  const done = second.body.data as { payment: { status: string } | null; error: { error: string } | null }[]
  expect(done.filter(each => each.payment?.status === "returned").length).toBe(49)
  expect(done[0]).toMatchObject({ payment: null, error: { error: "VALIDATION_ERROR" } })
  const before = await rig.balanceOf(to)
  while ((await rig.states()).some(state => state === "queued" || state === "assigned")) await rig.round()
  expect(await rig.balanceOf(to)).toBe(before + 490_000n)
  expect((await send([...orders, ...orders])).status).toBe(400)
})

it("makes the rest of a list whose process was killed, and answers for all, under the list's Idempotency-Key", async () => {
  const ids = [await waiting(10_000n), await waiting(10_000n), await waiting(10_000n)]
  const path = "/api/console/payments/return"
  const send = (returns: object[], key: string) =>
    rig.service.call("POST", path, { returns }, { ...as, headers: { "idempotency-key": key } })
  const unsigned = ids.map(id => ({ id, address: recipient(3) }))
  const asked = (await send(unsigned, "asked")).body.data as {
    id: string
    error: { details: { typedData: never }[] }
  }[]
  const orders = await Promise.all(
    asked.map(async ({ id, error }, i) => ({
      ...unsigned[i],
      id,
      approval: await approvalOf(error.details[0]?.typedData),
    })),
  )
  const key = "k".repeat(255)
  const first = await send(orders, key)
  expect(first.body.data.map((each: { payment: { status: string } }) => each.payment.status)).toEqual(
    Array(3).fill("returned"),
  )
  const again = await send(orders, key)
  expect([again.headers["idempotent-replayed"], again.body]).toEqual(["true", first.body])
  expect(await send(unsigned, key)).toMatchObject({ status: 422, body: { error: "IDEMPOTENCY_MISMATCH" } })

  // What a killed process leaves: two returns with their answers, and a reservation whose lease has expired.
  const kept = db().updateTable("idempotency_keys").where("route", "=", `POST ${path}`).where("key", "=", key)
  const expired = { claim_id: randomUUID(), lease_until: new Date(0), status: null, answer: null }
  await kept.set(expired).execute()
  const second = await send(orders, key)
  expect([second.headers["idempotent-replayed"], second.body]).toEqual([undefined, first.body])
  expect(await db().selectFrom("payouts").select("id").where("kind", "=", "return").execute()).toHaveLength(3)
  await kept.set(expired).execute()
  const changed = [orders[1], orders[0]].filter(order => order !== undefined)
  expect(await send(changed, key)).toMatchObject({ status: 422, body: { error: "IDEMPOTENCY_MISMATCH" } })
})
