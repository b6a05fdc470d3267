// The whole program pays out: shares to all recipients and a sweep to the merchant, once, though it is killed in between;
// and carries out what a buyer has signed.
import { createPublicClient, erc20Abi, type Hex, http, parseAbiItem } from "viem"
import { privateKeyToAccount } from "viem/accounts"
import { afterAll, beforeAll, expect, it } from "vitest"
import { bodyOf, signAuthorization } from "../relays.ts"
import { newSandbox, type Run, type Sandbox, until } from "./program.ts"

let sandbox: Sandbox
let run: Run
beforeAll(async () => {
  sandbox = await newSandbox({ LIMIT_CONSOLE: "0", LIMIT_PUBLIC: "0" }, "migrated")
  run = await sandbox.start()
})
afterAll(() => sandbox?.remove())

const A = `0x${"a1".repeat(20)}` as Hex
const B = `0x${"b2".repeat(20)}` as Hex

it("pays shares and sweeps to the smallest unit, once, through a kill", async () => {
  const { merchants, token, rpcUrl } = sandbox.file()
  const headers = { authorization: `Bearer ${merchants[0].accessToken}` }
  const post = async (path: string, body: object) => {
    const answer = await sandbox.call(path, body, headers)
    expect(answer.status, JSON.stringify(answer.body)).toBeLessThan(300)
    return answer.body
  }
  const get = async (path: string) => (await sandbox.call(path, undefined, headers)).body
  const balance = (address: Hex) =>
    createPublicClient({ transport: http(rpcUrl, { timeout: 120_000 }) }).readContract({
      address: token.address,
      abi: erc20Abi,
      functionName: "balanceOf",
      args: [address],
    })
  const owner = merchants[0].payoutAddress
  const recipients = [
    { address: A, percent: 33.3333 },
    { address: B, percent: 66.6667 },
  ]
  const { id: splitId } = await post("/api/console/splits", { name: "Two", recipients })
  const divided = await post("/api/console/paywalls", { name: "Divided", price: "1.000001", splitId })
  const whole = await post("/api/console/paywalls", { name: "Whole", price: 12 })
  for (const { id, price } of [divided, whole]) {
    const { payTo } = await get(`/api/paywalls/${id}`)
    const { txHash } = await post("/sandbox/pay", { to: payTo, amount: price })
    await post(`/api/paywalls/${id}/pay`, { txHash, address: sandbox.file().buyers[0].address })
  }
  const grants = async () => (await get(`/api/console/paywalls/${divided.id}/grants`)).data
  await until("the payment is granted", async () => (await grants()).length === 1)
  const [{ paymentId }] = await grants()
  await run.kill("SIGKILL")
  run = await sandbox.start()

  const shares = async () => (await get(`/api/console/payments/${paymentId}/shares`)).data
  const states = async () => (await shares()).map((share: { state: string }) => share.state)
  await until("all shares are final", async () => (await states()).every((state: string) => state === "final"))
  expect(await shares()).toMatchObject([
    { amount: "0.333333", percent: 33.3333 },
    { amount: "0.666668", percent: 66.6667 },
  ])
  await until("the sweep has come", async () => (await balance(owner)) > 0n)
  expect([await balance(A), await balance(B), await balance(owner)]).toEqual([333_333n, 666_668n, 12_000_000n])
})

it("pays a checkout by a buyer's signature alone, once, though it is killed as soon as it has answered", async () => {
  const { merchants, buyers, token, rpcUrl, chainId } = sandbox.file()
  const client = createPublicClient({ transport: http(rpcUrl, { timeout: 120_000 }) })
  const buyer = privateKeyToAccount(buyers[3].privateKey)
  const ether = await client.getBalance({ address: buyer.address })
  const headers = { "x-api-key": merchants[0].apiKey }
  const { body: session } = await sandbox.call("/api/checkouts", { amount: "7.25" }, headers)
  const to = session.payTo.toLowerCase()
  const signed = await signAuthorization(buyer, { token, chainId }, { to, value: 7_250_000n })
  const submit = () => sandbox.call("/api/pay/authorize", bodyOf(session.id, signed))
  const first = await submit()
  expect(first).toEqual({ status: 200, body: { status: "verifying", sessionId: session.id, txHash: null } })
  await run.kill("SIGKILL")
  run = await sandbox.start()
  expect((await submit()).status).toBe(200)
  const status = async () => (await sandbox.call(`/api/pay/status/${session.id}?wait=25`)).body
  await until("it is confirmed", async () => (await status()).status === "confirmed")
  const { txHash } = await status()
  expect((await submit()).body).toEqual({ status: "confirmed", sessionId: session.id, txHash })
  const event = parseAbiItem("event Transfer(address indexed from, address indexed to, uint256 value)")
  const logs = await client.getLogs({ address: token.address, event, args: { to }, fromBlock: 0n, strict: true })
  expect(logs.map(({ args, transactionHash }) => [args.from, args.value, transactionHash])).toEqual([
    [buyer.address, 7_250_000n, txHash],
  ])
  expect(await client.getBalance({ address: buyer.address })).toBe(ether)
  const { wallets } = sandbox.file()
  expect((await client.getTransaction({ hash: txHash })).from).toBe(wallets.relay.toLowerCase())
})
