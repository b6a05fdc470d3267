// A local chain for tests: the real anvil in a process of its own, and our contracts on it.

import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process"
import { once } from "node:events"
import { mkdtempSync, rmSync } from "node:fs"
import { createRequire } from "node:module"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import {
  type Abi,
  BaseError,
  ContractFunctionRevertedError,
  createTestClient,
  defineChain,
  type Hex,
  type HttpTransport,
  http,
  publicActions,
  walletActions,
} from "viem"
import { type PrivateKeyAccount, privateKeyToAccount } from "viem/accounts"
import {
  contractWalletAbi,
  contractWalletBytecode,
  depositFactoryAbi,
  depositFactoryBytecode,
  forwarderAbi,
  forwarderBytecode,
  multicall3Abi,
  multicall3Bytecode,
  otherTokenAbi,
  otherTokenBytecode,
  sanctionsListAbi,
  sanctionsListBytecode,
  testUsdcAbi,
  testUsdcBytecode,
} from "../src/platform/chain/abi.ts"
import { batchDeployment } from "../src/platform/chain/authorization-batch.ts"
import type { Address } from "../src/platform/chain/hex.ts"
import { MULTICALL3 } from "../src/platform/chain/multicall.ts"
import { anchorDeployment } from "../src/platform/chain/receipt-anchor.ts"

type Ten<T> = [T, T, T, T, T, T, T, T, T, T]

/** The last line anvil prints before it answers; with its end, as a line may come in two pieces. */
const listening = /^Listening on (\S+)\n/m

/** What `startAnvil` returns. */
export type Anvil = Awaited<ReturnType<typeof startAnvil>>

/** A viem client with the test, public and wallet actions, which signs as the first account by default. */
export type AnvilClient = Anvil["client"]

/**
 * Starts a chain of its own on a free port, with ten rich accounts; a block for each transaction, or one every
 * `blockTime` seconds. The chain ends with `stop()`, and with the test process however that ends.
 *
 * @example
 * const { client, accounts, stop } = await startAnvil()
 * const [deployer, operator] = accounts
 * const usdc = await deployTestUsdc(client)
 * const mint = { address: usdc, abi: testUsdcAbi, functionName: "mint", args: [operator.address, 5_000_000n] } as const
 * await client.writeContractSync(mint) // the receipt
 */
export async function startAnvil({
  chainId = 84532,
  blockTime,
  // `finalized` is two epochs back: with one slot in each two blocks, rather than sixty-four.
  slotsInAnEpoch = 1,
  // Of thousands of blocks, whose states would slow the chain down.
  prunesHistory = false,
}: {
  chainId?: number
  blockTime?: number
  slotsInAnEpoch?: number
  prunesHistory?: boolean
} = {}) {
  const args = ["--port", "0", "--chain-id", `${chainId}`, "--slots-in-an-epoch", `${slotsInAnEpoch}`]
  if (blockTime !== undefined) args.push("--block-time", `${blockTime}`)
  if (prunesHistory) args.push("--prune-history")
  // By default in ~/.foundry, where the states of 875 chains that were killed came to 70 GB in a day.
  const states = mkdtempSync(join(tmpdir(), "sluice-anvil-"))
  args.push("--cache-path", states)
  const child = spawnTied(anvilBinary(), args)
  const banner = await readUntil(child, listening)
  const rpcUrl = `http://${banner.match(listening)?.[1]}`
  const keys = [...banner.matchAll(/^\(\d\) (0x[0-9a-f]{64})$/gm)].map(match => match[1] as Hex)
  const accounts = keys.map(key => privateKeyToAccount(key)) as Ten<PrivateKeyAccount>
  const chain = defineChain({
    id: chainId,
    name: "anvil",
    nativeCurrency: { name: "Ether", symbol: "ETH", decimals: 18 },
    rpcUrls: { default: { http: [rpcUrl] } },
  })
  const client = createTestClient({
    mode: "anvil",
    // With the key and not only the address, because viem then asks for the gas first and so throws on a call that
    // would revert.
    account: accounts[0],
    chain,
    transport: minedHttp(rpcUrl),
    // Tests read what has just happened: nothing is cached, and a receipt is requested at once.
    cacheTime: 0,
    pollingInterval: 20,
  })
    .extend(publicActions)
    .extend(walletActions)
    .extend(({ request }) => ({
      /** Removes the last blocks, and mines as many empty ones. */
      reorg: (depth: number) => request({ method: "anvil_reorg", params: [depth, []] } as never),
      dropAllTransactions: () => request({ method: "anvil_dropAllTransactions" } as never),
    }))

  async function stop() {
    if (child.exitCode === null && child.signalCode === null) {
      const exited = once(child, "exit")
      child.stdin.end()
      await exited
    }
    rmSync(states, { recursive: true, force: true })
  }

  return { rpcUrl, client, accounts, stop }
}

/** Long enough for a busy machine; a transaction whose fee is too low for the next block waits as long. */
const MINING_POLLS = 500
const MINING_POLL_MS = 10

/**
 * Resolves when anvil has mined what it mines automatically. It answers a sent transaction before its block, so a test
 * that reads the chain next would sometimes read too early. Resolves at once where blocks are mined by hand or by the
 * clock.
 */
export async function untilMined(rpcUrl: string): Promise<void> {
  const calls = ["anvil_getAutomine", "txpool_status"].map((method, id) => ({ jsonrpc: "2.0", id, method, params: [] }))
  const request = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(calls) }
  for (let i = 0; i < MINING_POLLS; i++) {
    const [automine, pool] = (await (await fetch(rpcUrl, request)).json()) as [
      { result: boolean },
      { result: { pending: Hex } },
    ]
    if (!automine.result || Number(pool.result.pending) === 0) return
    await sleep(MINING_POLL_MS)
  }
}

/** HTTP to anvil, where a sent transaction is answered when its block is mined. */
function minedHttp(rpcUrl: string): HttpTransport {
  // Hundreds of blocks in one call took more than viem's ten seconds on a busy machine.
  const open = http(rpcUrl, { timeout: 120_000 })
  return options => {
    const transport = open(options)
    const request = async (...args: Parameters<typeof transport.request>) => {
      const result = await transport.request(...args)
      if (["eth_sendTransaction", "eth_sendRawTransaction"].includes(args[0].method)) await untilMined(rpcUrl)
      return result
    }
    return { ...transport, request: request as typeof transport.request }
  }
}

/** Deploys TestUsdc as the first account, which may then mint and blacklist. */
export const deployTestUsdc = (client: AnvilClient) => deploy(client, testUsdcAbi, testUsdcBytecode)

/** Deploys a DepositFactory whose releases only `operator` may ask for; its guardian is the client's account, unless given. */
export const deployDepositFactory = (client: AnvilClient, operator: Hex, guardian: Hex = client.account.address) =>
  deploy(client, depositFactoryAbi, depositFactoryBytecode, [guardian, operator])

/** Deploys a Forwarder, whose tokens anyone may spend. */
export const deployForwarder = (client: AnvilClient) => deploy(client, forwarderAbi, forwarderBytecode)

/** Deploys an OtherToken, which anyone may mint. */
export const deployOtherToken = (client: AnvilClient) => deploy(client, otherTokenAbi, otherTokenBytecode)

/** Deploys what every network has at one address: Multicall3, the batch of authorizations and the anchor of receipts. */
export async function placeSharedContracts(client: AnvilClient): Promise<void> {
  const address = await deploy(client, multicall3Abi, multicall3Bytecode)
  await client.setCode({ address: MULTICALL3, bytecode: (await client.getCode({ address })) ?? "0x" })
  for (const { to, data, address } of [batchDeployment, anchorDeployment])
    if ((await client.getCode({ address })) === undefined)
      await client.waitForTransactionReceipt({ hash: await client.sendTransaction({ to, data }) })
}

/** Deploys a SanctionsList that its client's account keeps. */
export const deploySanctionsList = (client: AnvilClient) => deploy(client, sanctionsListAbi, sanctionsListBytecode)

/** Deploys a ContractWallet that accepts the signatures of `signer` as its own (ERC-1271). */
export const deployContractWallet = (client: AnvilClient, signer: Hex) =>
  deploy(client, contractWalletAbi, contractWalletBytecode, [signer])

/**
 * Deploys any contract as the client's account and returns its address in lower case; throws when the constructor
 * reverts.
 */
export async function deploy(client: AnvilClient, abi: Abi, bytecode: Hex, args: unknown[] = []): Promise<Address> {
  const hash = await client.deployContract({ abi, bytecode, args })
  const { status, contractAddress } = await client.waitForTransactionReceipt({ hash })
  if (status !== "success" || !contractAddress) throw new Error(`deployment ${hash} reverted`)
  return contractAddress.toLowerCase() as Address
}

/**
 * What a call reverts with, a custom error written as a call or the text of a require; throws when it does not revert.
 *
 * @example
 * await revertOf(client.simulateContract({ ...factory, functionName: "release", args })) // "OnlyOperator()"
 */
export async function revertOf(call: Promise<unknown>): Promise<string | undefined> {
  const error = await call.then(
    () => new Error("the call did not revert"),
    reason => reason,
  )
  const revert = error instanceof BaseError && error.walk(cause => cause instanceof ContractFunctionRevertedError)
  if (!(revert instanceof ContractFunctionRevertedError)) throw error
  if (!revert.data || revert.data.errorName === "Error") return revert.reason
  return `${revert.data.errorName}(${revert.data.args?.join(", ") ?? ""})`
}

/** Each platform's binary is a package of its own, and only @foundry-rs/anvil, which depends on it, is sure to find it. */
function anvilBinary() {
  const anvil = createRequire(import.meta.resolve("@foundry-rs/anvil/package.json"))
  const platform = `${process.platform}-${process.arch === "x64" ? "amd64" : process.arch}`
  return join(dirname(anvil.resolve(`@foundry-rs/anvil-${platform}/package.json`)), "bin/anvil")
}

/**
 * Runs a command that dies with us. A killed process runs no exit handler, so a shell waits for the end of its input,
 * which comes with `stdin.end()` or when our side of the pipe is gone, and then kills the command.
 */
function spawnTied(command: string, args: string[]) {
  const script = `trap "" INT TERM; "$0" "$@" & exec >/dev/null; read -r _; kill -9 $!`
  return spawn("sh", ["-c", script, command, ...args])
}

/** Reads standard output until `pattern` is in it; later output is discarded so that the pipe never fills up. */
function readUntil(child: ChildProcessWithoutNullStreams, pattern: RegExp) {
  return new Promise<string>((resolve, reject) => {
    let text = ""
    let errors = ""
    child.stderr.on("data", chunk => {
      errors += chunk
    })
    child.on("error", reject)
    child.stdout.on("end", () => {
      child.stdin.end()
      reject(new Error(`anvil ended: ${errors}`))
    })
    child.stdout.on("data", function read(chunk) {
      text += chunk
      if (!pattern.test(text)) return
      child.stdout.off("data", read).resume()
      resolve(text)
    })
  })
}
