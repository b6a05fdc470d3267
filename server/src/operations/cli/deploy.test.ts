// The factory on a real chain: deployed by one command, by a second one after the first was stopped at any point, and
// never twice.
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { type Hex, parseEther, parseGwei } from "viem"
import { generatePrivateKey, privateKeyToAddress } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { type Anvil, startAnvil } from "../../../test/anvil.ts"
import { type RpcProxy, startProxy } from "../../../test/proxy.ts"
import { checkFactory } from "../../ledger/deposits/check-factory.ts"
import { refundCollectorAbi } from "../../platform/chain/abi.ts"
import { batchDeployment, hasBatch } from "../../platform/chain/authorization-batch.ts"
import { newEndpoint } from "../../platform/chain/endpoints.ts"
import { knownEscrows } from "../../platform/chain/escrow-deployments.ts"
import { type Address, checksummed } from "../../platform/chain/hex.ts"
import { anchorDeployment, hasReceiptAnchor } from "../../platform/chain/receipt-anchor.ts"
import { deploy } from "./deploy.ts"
import { UsageError } from "./run-command.ts"

const GUARDIAN = `0x${"9a".repeat(20)}`

let anvil: Anvil
let proxy: RpcProxy
let dir: string
let operator: Hex
let payer: Hex
beforeAll(async () => {
  anvil = await startAnvil()
  proxy = await startProxy(anvil.rpcUrl)
  dir = mkdtempSync(join(tmpdir(), "sluice-deploy-"))
})
afterAll(async () => {
  await Promise.all([anvil.stop(), proxy.stop()])
  rmSync(dir, { recursive: true })
})
beforeEach(async () => {
  rmSync(kept(), { force: true })
  // Another operator gives another factory.
  operator = privateKeyToAddress(generatePrivateKey())
  const key = generatePrivateKey()
  payer = privateKeyToAddress(key)
  writeFileSync(join(dir, "key"), `${key}\n`, { mode: 0o600 })
  await anvil.client.setBalance({ address: payer, value: parseEther("1") })
  await anvil.client.setAutomine(true)
  Object.assign(proxy, { swallows: false, spoil: (_method: string, _params: unknown[], result: unknown) => result })
})

/** One run of the command. When it waits for a final block, blocks are mined. */
async function run(
  args: string[] = [],
  { answer = "y", patienceMs = 60_000, env = {}, guardian = true, named = true } = {},
) {
  const said: string[] = []
  const asked: string[] = []
  const text = await deploy(
    [
      "--network",
      "base-sepolia",
      ...(guardian ? ["--guardian", GUARDIAN] : []),
      ...(named ? ["--operator", operator] : []),
      "--key-file",
      join(dir, "key"),
      "--rpc",
      proxy.url,
      ...args,
    ],
    {
      env: { DATA_DIR: join(dir, "data"), ...env },
      // The chain mines no blocks on its own.
      say: line => {
        said.push(line)
        if (line.startsWith("Waiting up to half an hour")) void anvil.client.mine({ blocks: 4 })
      },
      ask: async question => {
        asked.push(question)
        return answer
      },
      patienceMs,
    },
  ).catch((error: Error) => error)
  return {
    text: text instanceof Error ? text.message : text,
    error: text instanceof Error ? text : undefined,
    said,
    asked,
  }
}
const nonceOfPayer = () => anvil.client.getTransactionCount({ address: payer })
const kept = () => join(dir, "data", "deploy-base-sepolia.json")

it("simulates, shows the cost, asks, deploys, and prints the setting; a second run finds it and sends nothing", async () => {
  const first = await run()
  const address = /^DEPOSIT_FACTORY_BASE_SEPOLIA=(0x[0-9a-fA-F]{40})$/.exec(first.text)?.[1]?.toLowerCase() as Address
  expect(first.said.join("\n")).toMatch(
    /Operator {2}0x.*Guardian {2}0x9[aA].*Cost {6}at most 0\.\d+ ether: \d+ gas at up to .*simulation succ/s,
  )
  expect(first.said.at(-1)).toBe("The contract is final, and its code is this version's.")
  expect(first.asked).toEqual(["Deploy it on base-sepolia? [y/N] "])
  const endpoints = [newEndpoint("base-sepolia", anvil.rpcUrl)]
  const network = { name: "base-sepolia", chainId: 84532, endpoints, depositFactory: address } as const
  await checkFactory(network, { payoutWallet: operator.toLowerCase() as Address })
  expect(existsSync(kept())).toBe(false)
  const second = await run()
  expect([second.text, second.asked, await nonceOfPayer()]).toEqual([first.text, [], 1])
})

it("deploys the refund collector of the network's escrow for its operator, whom nobody can replace", async () => {
  const args = ["--contract", "refund-collector", "--operator", operator]
  const refused = await run([...args], {})
  expect(refused.text).toMatch(/^--guardian is for a factory/)
  const unguarded = (more: string[], env = {}) => run([...args, ...more], { env, guardian: false })
  expect((await unguarded([], { ESCROW_BASE_SEPOLIA: "off" })).text).toBe(
    "Set ESCROW_BASE_SEPOLIA to the address of the escrow.",
  )
  const first = await unguarded([])
  const address = /^REFUND_COLLECTOR_BASE_SEPOLIA=(0x[0-9a-fA-F]{40})$/.exec(first.text)?.[1]?.toLowerCase() as Address
  expect(first.said.join("\n")).toMatch(/Collector 0x.*Escrow {4}0xf9681597.*Operator {2}0x.*simulation succ/s)
  const { client } = anvil
  const read = (functionName: "operator" | "authCaptureEscrow") =>
    client.readContract({ address, abi: refundCollectorAbi, functionName })
  expect(await read("operator")).toBe(operator)
  expect((await read("authCaptureEscrow")).toLowerCase()).toBe(knownEscrows[0].address)
  expect([(await unguarded([])).text, await nonceOfPayer()]).toEqual([first.text, 1])
  proxy.spoil = (method, _params, result) =>
    method === "eth_getCode" && String(result).length > 1_000 ? `${String(result).slice(0, -2)}00` : result
  expect((await unguarded([])).text).toMatch(/is not this version's refund collector for that escrow and operator/)
  expect((await unguarded(["--contract", "escrow"])).text).toBe(
    "--contract must be one of: factory, refund-collector, authorization-batch, receipt-anchor.",
  )
})

it.each([
  { name: "authorization-batch", address: batchDeployment.address, isThere: hasBatch },
  { name: "receipt-anchor", address: anchorDeployment.address, isThere: hasReceiptAnchor },
])("deploys $name, which all share and which needs no setting", async ({ name, address, isThere }) => {
  const shared = (more: object = {}) => run(["--contract", name], { guardian: false, named: false, ...more })
  expect((await shared({ named: true })).text).toMatch(/^--guardian and --operator are for other contracts/)
  expect(await isThere([newEndpoint("base-sepolia", anvil.rpcUrl)])).toBe(false)
  const first = await shared()
  expect([first.text, first.said.at(-1)]).toEqual([
    `# ${checksummed(address)} needs no setting.`,
    "The contract is final, and its code is this version's.",
  ])
  expect(await isThere([newEndpoint("base-sepolia", anvil.rpcUrl)])).toBe(true)
  expect([(await shared()).text, await nonceOfPayer()]).toEqual([first.text, 1])
})

it("a run that was stopped after it signed is continued: the same transaction, once, by another endpoint too", async () => {
  proxy.swallows = true
  const first = await run([], { patienceMs: 0 })
  expect(first.text).toMatch(/^The transaction 0x[0-9a-f]{64} is not in a block yet\. Run this command again/)
  const bytes = readFileSync(kept(), "utf8")
  expect(await nonceOfPayer()).toBe(0)
  proxy.swallows = false
  const second = await run(["--yes"])
  const hash = /0x[0-9a-f]{64}/.exec(first.text)?.[0]
  expect(second.said[0]).toBe(`Continuing with the transaction ${hash} from an earlier run.`)
  expect(second.text).toMatch(/^DEPOSIT_FACTORY_BASE_SEPOLIA=0x/)
  expect(bytes).toContain(checksummed(payer as Address).toLowerCase())
  expect(await nonceOfPayer()).toBe(1)
})

it("a run that was stopped while its transaction waits in the pool goes on, and replaces it when gas costs more", async () => {
  await anvil.client.setAutomine(false)
  expect((await run([], { patienceMs: 0 })).text).toMatch(/is not in a block yet/)
  const { maxFee } = JSON.parse(readFileSync(kept(), "utf8"))
  await anvil.client.setNextBlockBaseFeePerGas({ baseFeePerGas: BigInt(maxFee) * 2n })
  await anvil.client.mine({ blocks: 1 })
  const again = await run([], { patienceMs: 0 })
  expect(again.said.join("\n")).toMatch(/The network's gas price has risen: replacing the transaction at up to/)
  expect(again.asked).toEqual([])
  expect(JSON.parse(readFileSync(kept(), "utf8"))).toMatchObject({ nonce: 0 })
  await anvil.client.setNextBlockBaseFeePerGas({ baseFeePerGas: parseGwei("1") })
  await anvil.client.mine({ blocks: 1 })
  expect((await run()).text).toMatch(/^DEPOSIT_FACTORY/)
  expect(await nonceOfPayer()).toBe(1)
})

it("a kept transaction whose place another one took is left behind", async () => {
  proxy.swallows = true
  await run([], { patienceMs: 0 })
  proxy.swallows = false
  await anvil.client.impersonateAccount({ address: payer })
  await anvil.client.sendTransaction({ account: payer, to: payer, value: 0n, chain: null })
  const again = await run()
  expect(again.said[0]).toMatch(
    /^The earlier transaction 0x\w+ can't be mined: another transaction of the same account used its nonce/,
  )
  expect(again.text).toMatch(/^DEPOSIT_FACTORY/)
  expect(await nonceOfPayer()).toBe(2)
})

it("waits until a final block has it", async () => {
  let asked = 0
  proxy.spoil = (method, params, result) => {
    if (method !== "eth_getCode" || params[1] !== "finalized") return result
    return asked++ < 2 ? "0x" : result
  }
  expect((await run()).text).toMatch(/^DEPOSIT_FACTORY/)
  expect(asked).toBeGreaterThan(2)
})

it("refuses code that is not this version's, though it is at the right place", async () => {
  proxy.spoil = (method, _params, result) =>
    method === "eth_getCode" && String(result).length > 1_000 ? `${String(result).slice(0, -2)}00` : result
  expect((await run()).text).toMatch(/is not the deposit factory of this version of Sluice/)
})

it.each<
  [string, () => Promise<unknown> | unknown, string[], { answer?: string; env?: Record<string, string> }, RegExp]
>([
  ["no for an answer", () => {}, [], { answer: "n" }, /^Nothing was sent\.$/],
  [
    "an account without ether",
    () => anvil.client.setBalance({ address: payer, value: 1n }),
    [],
    {},
    /^0x\w+ has too little ether: send it at least 0\.\d+ ether on base-sepolia\.$/,
  ],
  [
    "gas that costs more than --max-fee",
    () => {},
    ["--max-fee", "0.000001"],
    {},
    /^Gas costs .* gwei now, but --max-fee is 0\.000001\. Wait, or raise --max-fee\.$/,
  ],
  [
    "a node of another chain",
    () => (proxy.spoil = (method, _params, result) => (method === "eth_chainId" ? "0x1" : result)),
    [],
    {},
    /serves chain 1, but base-sepolia is chain 84532\.$/,
  ],
  [
    "a network without the deployer",
    () => (proxy.spoil = (method, _params, result) => (method === "eth_getCode" ? "0x" : result)),
    [],
    {},
    /^base-sepolia has no CREATE2 deployer at 0x4e59/,
  ],
  [
    "a simulation that fails",
    () => (proxy.spoil = (method, _params, result) => (method === "eth_call" ? "0x" : result)),
    [],
    {},
    /^The simulation created the factory at 0x, not at 0x\w+\. Nothing was sent\.$/,
  ],
  [
    "an operator that sent something before, as the one who pays",
    async () => {
      operator = payer
      await anvil.client.setNonce({ address: payer, nonce: 3 })
    },
    [],
    {},
    /is the operator's wallet, which the service has already used\. The service halts/,
  ],
])("sends nothing with %s", async (_what, prepare, args, given, words) => {
  const before = proxy.calls.get("eth_sendRawTransaction") ?? 0
  await prepare()
  const { text } = await run([...args, ...(operator === payer ? ["--operator", payer] : [])], given)
  expect(text).toMatch(words)
  expect(proxy.calls.get("eth_sendRawTransaction") ?? 0).toBe(before)
  expect(existsSync(kept())).toBe(false)
})

it.each<[string, string[], RegExp]>([
  ["another network", ["--network", "ethereum"], /^--network must be one of: base, worldchain, base-sepolia\.$/],
  ["a wrong operator", ["--operator", "0x12"], /^--operator must be .*address/],
  ["an operator that nobody is", ["--operator", `0x${"0".repeat(40)}`], /^--operator can't be the zero address/],
  ["a wrong guardian", ["--guardian", "0x12"], /^--guardian must be .*address/],
  ["one account for both", ["--operator", GUARDIAN], /^--guardian must differ from the operator/],
  ["a wrong node", ["--rpc", "localhost"], /^--rpc must be an http\(s\) address\.$/],
  ["a wrong price", ["--max-fee", "x"], /^--max-fee must be/],
  ["an option that is none", ["--gas", "1"], /There is no option --gas/],
  ["an argument", ["base"], /one argument too many: base/],
])("an invalid command line: %s", async (_what, args, words) => {
  const { text, error, said } = await run(args)
  expect(text).toMatch(words)
  expect([error instanceof UsageError, said]).toEqual([true, []])
})

it("takes what it needs from the settings, says what is missing, and never repeats a key", async () => {
  const key = readFileSync(join(dir, "key"), "utf8").trim()
  const ask = undefined
  const say = () => {}
  const bare = (args: string[], env: Record<string, string>) =>
    deploy(["--network", "base-sepolia", ...args], {
      env: { DATA_DIR: join(dir, "data"), ...env },
      say,
      ask,
      patienceMs: 0,
    }).then(
      text => text,
      (error: Error) => error.message,
    )
  const rpc = { RPC_BASE_SEPOLIA: anvil.rpcUrl }
  expect(await bare([], {})).toMatch(/^Name a node with --rpc, or set RPC_BASE_SEPOLIA\.$/)
  expect(await bare([], rpc)).toMatch(/^Name the operator with --operator, or set PAYOUT_PRIVATE_KEY/)
  expect(await bare([], { ...rpc, PAYOUT_PRIVATE_KEY: key })).toMatch(/^Name a cold account with --guardian/)
  const guarded = ["--guardian", GUARDIAN]
  expect(await bare(guarded, { ...rpc, PAYOUT_PRIVATE_KEY: key })).toMatch(/^--key-file is missing/)
  expect(await bare([], { ...rpc, PAYOUT_PRIVATE_KEY: key.slice(0, -1) })).toMatch(
    /PAYOUT_PRIVATE_KEY must be a private key/,
  )
  const payout = { ...rpc, PAYOUT_PRIVATE_KEY: generatePrivateKey() }
  expect(await bare([...guarded, "--key-file", join(dir, "none")], payout)).toMatch(/none can't be read: ENOENT\.$/)
  writeFileSync(join(dir, "open"), key, { mode: 0o644 })
  expect(await bare([...guarded, "--key-file", join(dir, "open")], payout)).toMatch(
    /can be read by other users: run `chmod 600/,
  )
  writeFileSync(join(dir, "half"), key.slice(0, -1), { mode: 0o600 })
  const half = await bare([...guarded, "--key-file", join(dir, "half")], payout)
  expect(half).toMatch(/does not hold a private key/)
  expect(half).not.toContain(key.slice(2, -1))
  expect(await bare([...guarded, "--key-file", join(dir, "key")], payout)).toMatch(
    /^There is no terminal to ask for confirmation/,
  )
  expect(await nonceOfPayer()).toBe(0)
})
