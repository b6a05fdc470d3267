// A relay that its signer did not sign in time: its payer waits no more, and is not charged later, however long the authorization is valid.
import { type Hex, toHex } from "viem"
import { mnemonicToAccount } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { until } from "../../test/e2e/program.ts"
import { type PayoutRig, startPayoutRig } from "../../test/payouts.ts"
import { relaysOn, signAuthorization } from "../../test/relays.ts"
import { type RemoteSigners, startRemoteSigners } from "../../test/remote-signers.ts"
import { type Address, checksummed } from "../chain/hex.ts"
import { remoteSigner } from "../chain/signers/remote-signer.ts"
import { payoutRound } from "./pay-out.ts"

const payTo = `0x${"5e".repeat(20)}` as Address
const HOURS_MS = 6 * 3_600_000
let rig: PayoutRig
let on: ReturnType<typeof relaysOn>
let signers: RemoteSigners
let key: string

const keyOfRelayer = (): Hex => {
  const phrase = "test test test test test test test test test test test junk"
  return toHex(mnemonicToAccount(phrase, { addressIndex: 2 }).getHdKey().privateKey ?? new Uint8Array())
}

beforeAll(async () => {
  rig = await startPayoutRig()
  on = relaysOn(rig)
  signers = await startRemoteSigners(keyOfRelayer())
  await rig.service.listen()
})
afterAll(async () => {
  await signers?.stop()
  await rig?.stop()
})
beforeEach(async () => {
  signers.fault = () => undefined
  await on.begin()
  await rig.service.merchant("shop")
  key = (await rig.service.call("POST", "/api/console/api-keys", { name: "server" }, { as: "shop" })).body.key
})

const terms = () => ({
  ...{ scheme: "exact", network: "eip155:84532", amount: "10000", asset: checksummed(rig.token), payTo },
  ...{ maxTimeoutSeconds: 2, extra: { name: "USDC", version: "2" } },
})
async function settle(signed: Awaited<ReturnType<typeof signAuthorization>>) {
  const authorization = Object.fromEntries(
    Object.entries(signed.authorization).map(([name, value]) => [name, `${value}`]),
  )
  const payload = { signature: signed.signature, authorization }
  const body = {
    x402Version: 2,
    paymentRequirements: terms(),
    paymentPayload: { x402Version: 2, accepted: terms(), payload },
  }
  return await rig.service.call("POST", "/x402/settle", body, { headers: { "x-api-key": key } })
}
const round = () => {
  const signer = remoteSigner(signers.keyOf("web3signer"), rig.relayer.address, { timeoutMs: 3_000 })
  return payoutRound(rig.service.ctx, rig.network, { lane: "relay", signer }, { resendMs: 0, replaceMs: 60_000 })
}
const attempts = () => rig.service.ctx.db.selectFrom("transaction_attempts").selectAll().orderBy("n").execute()

it.each([
  ["for a day", () => BigInt(Math.floor(Date.now() / 1_000) + 86_400)],
  ["for ever", () => 2n ** 256n - 1n],
])("with an authorization that is valid %s moves nothing, and leaves no gap", async (_what, validBefore) => {
  const before = await rig.balanceOf(payTo)
  signers.fault = () => "down"
  const buyer = await on.buyer(10_000_000n)
  const signed = await signAuthorization(buyer, rig.network, { to: payTo, value: 10_000n, validBefore: validBefore() })
  const asking = settle(signed)
  await until("the relay is written", async () => (await on.relays()).length === 1)
  await round()
  await asking
  expect((await on.relays()).map(({ state }) => state)).toEqual(["assigned"])
  rig.service.advance(HOURS_MS)
  await round()
  expect((await attempts()).map(({ n, empty, raw }) => [n, empty, raw])).toEqual([
    [0, false, null],
    [1, true, null],
  ])
  signers.fault = () => undefined
  await round()
  await rig.anvil.client.mine({ blocks: 3 })
  await round()
  expect((await on.relays()).map(({ state, succeeded }) => [state, succeeded])).toEqual([["reverted", false]])
  expect((await attempts()).map(({ raw }) => raw !== null)).toEqual([false, true])
  expect((await rig.balanceOf(payTo)) - before).toBe(0n)
  const { next_nonce } = await rig.service.ctx.db
    .selectFrom("wallets")
    .select("next_nonce")
    .where("lane", "=", "relay")
    .executeTakeFirstOrThrow()
  expect(next_nonce).toBe(BigInt(await rig.anvil.client.getTransactionCount({ address: rig.relayer.address })))
})
