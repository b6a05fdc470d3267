/**
 * `sluice recover`: sends the money at receiving addresses to their owners after the recovery time. It needs the
 * addresses' terms, a node, and any account with a little gas, but not the service, its database or its keys.
 */
import { readFileSync } from "node:fs"
import { parseArgs } from "node:util"
import {
  createWalletClient,
  decodeFunctionResult,
  encodeFunctionData,
  erc20Abi,
  formatUnits,
  type Hex,
  http,
} from "viem"
import { privateKeyToAccount } from "viem/accounts"
import { depositFactoryAbi } from "../chain/abi.ts"
import { addressOfTerms, type TermsArgument } from "../chain/deposit-terms.ts"
import { type Address, checksummed, type Hash, parseAddress, parseHash, ZERO_ADDRESS } from "../chain/hex.ts"
import { batch, type RpcCall, RpcError, type RpcResult } from "../chain/rpc.ts"
import { readBlock, readReceipt } from "../chain/transfers.ts"

const usage = `Sends the money at receiving addresses to their owners after the recovery time, without the service.

  sluice recover --rpc URL --terms FILE [--address ADDRESS]... [--key-file FILE] [--dry-run]
  sluice recover --rpc URL --factory A --salt S --owner A --approver A --payees-hash H --open-after N --token A
                 [--key-file FILE] [--dry-run]

  --rpc URL         a node of the network.
  --terms FILE      deposits.csv, as the console exports it: /api/console/deposits.csv.
  --address ADDRESS only this one; repeat it for more. Without it: every address in the file that holds money and is open.
  --key-file FILE   the private key of any account with a little gas; - for the standard input. It is never an argument:
                    other users of the machine can read those.
  --token A         a token other than the one in the file; 0x and 40 zeros for ether, which needs no recovery time.
  --dry-run         says what would be sent, needs no key, and sends nothing.

The money goes to the owner that is part of the address, whoever sends this.
`

const OPTIONS = {
  rpc: { type: "string" },
  terms: { type: "string" },
  address: { type: "string", multiple: true },
  factory: { type: "string" },
  salt: { type: "string" },
  owner: { type: "string" },
  approver: { type: "string" },
  "payees-hash": { type: "string" },
  "open-after": { type: "string" },
  token: { type: "string" },
  "key-file": { type: "string" },
  "dry-run": { type: "boolean" },
  help: { type: "boolean" },
} as const

interface Terms extends TermsArgument {
  address: Address
  factory: Address
  salt: Hash
  /** Zero for ether. */
  token: Address
  /** Undefined: the network of the node. */
  chainId: number | undefined
}

type Say = (line: string) => void

/** Carries out the arguments. Throws a sentence where an argument is wrong, or a named deposit can't be recovered. */
async function main(say: Say): Promise<void> {
  const { values } = parseArgs({ options: OPTIONS })
  if (values.help) return say(usage.trimEnd())
  if (!values.rpc) throw new Error(`--rpc is missing: the URL of a node.\n\n${usage}`)
  const node = { url: values.rpc, network: "recover" }
  const named = (values.address ?? []).map(text => read("--address", text, parseAddress))
  const all = values.terms === undefined ? [termsOf(values)] : termsIn(values.terms, values.token)
  for (const address of named)
    if (!all.some(each => each.address === address))
      throw new Error(`${checksummed(address)} is not in ${values.terms}.`)
  const [chain, block] = await ask(node, [
    { method: "eth_chainId", params: [] },
    { method: "eth_getBlockByNumber", params: ["latest", false] },
  ])
  const chainId = Number.parseInt(String(chain), 16)
  const time = readBlock(block)?.time
  if (!time) throw new Error("The node does not report its latest block.")
  const here = all.filter(each => each.chainId === undefined || each.chainId === chainId)
  if (here.length < all.length) say(`${all.length - here.length} are on other networks than this node (${chainId}).`)
  const chosen = named.length > 0 ? here.filter(each => named.includes(each.address)) : here
  if (named.length > chosen.length)
    throw new Error(`The node serves the network ${chainId}; the named deposits are on another.`)

  const balances = await balancesOf(node, chosen)
  const rich = chosen.filter((_, i) => (balances[i] ?? 0n) > 0n)
  say(`${rich.length} of ${chosen.length} addresses hold money.`)
  const money = await moneyText(node, [...new Set(rich.map(each => each.token))])
  const isOpen = ({ openAfter, token }: Terms) =>
    token === ZERO_ADDRESS || BigInt(Math.floor(time.getTime() / 1_000)) > openAfter
  for (const terms of rich.filter(each => !isOpen(each))) {
    const held = money(terms.token, balances[chosen.indexOf(terms)] ?? 0n)
    const words = `${checksummed(terms.address)} holds ${held} and opens after ${dateOf(terms.openAfter)}: until then it leaves by the service alone, to those whom the address names.`
    if (named.length > 0 || values.terms === undefined) throw new Error(words)
    say(words)
  }
  const open = rich.filter(isOpen)
  const key = values["dry-run"] ? undefined : keyFrom(values["key-file"])
  let failed = 0
  for (const terms of open) {
    const amount = balances[chosen.indexOf(terms)] ?? 0n
    const what = `${money(terms.token, amount)} from ${checksummed(terms.address)} to its owner ${checksummed(terms.owner)}`
    if (key === undefined) {
      say(`Would send ${what}.`)
      continue
    }
    try {
      const { hash, moved } = await recover(node, chainId, key, terms, amount)
      say(
        `Sent ${money(terms.token, moved)} from ${checksummed(terms.address)} to its owner ${checksummed(terms.owner)}: ${hash}`,
      )
    } catch (error) {
      failed++
      say(`Not sent: ${what}. ${firstLine(error)}`)
    }
  }
  if (failed > 0) throw new Error(`${failed} of ${open.length} could not be recovered.`)
}

const dateOf = (seconds: bigint): string => new Date(Number.parseInt(seconds.toString(), 10) * 1_000).toISOString()
const firstLine = (error: unknown): string => `${(error as Error).message}`.split("\n")[0] ?? ""

function read<T>(name: string, text: string | undefined, parse: (text: string) => T | undefined): T {
  const value = text === undefined ? undefined : parse(text.trim())
  if (value === undefined) throw new Error(`${name} ${text === undefined ? "is missing" : `can't be read: ${text}`}.`)
  return value
}

const parseSeconds = (text: string): bigint | undefined => (/^\d{1,20}$/.test(text) ? BigInt(text) : undefined)

/**
 * The terms of one deposit, from flags or from a line of the file. Its address is computed, never taken from the input.
 */
function termsOf(texts: Record<string, unknown>, where = ""): Terms {
  const text = (name: string) => texts[name] as string | undefined
  const name = (flag: string) => (where === "" ? `--${flag}` : `${flag} in ${where}`)
  const factory = read(name("factory"), text("factory"), parseAddress)
  const salt = read(name("salt"), text("salt"), parseHash)
  const terms = {
    owner: read(name("owner"), text("owner"), parseAddress),
    approver: read(name("approver"), text("approver"), parseAddress),
    payeesHash: read(name("payees-hash"), text("payees-hash") ?? text("payeesHash"), parseHash),
    openAfter: read(name("open-after"), text("open-after") ?? text("openAfter"), parseSeconds),
  }
  const token = read(name("token"), text("token"), parseAddress)
  return { address: addressOfTerms(factory, salt, terms), factory, salt, ...terms, token, chainId: undefined }
}

const COLUMNS = ["address", "chainId", "factory", "salt", "owner", "approver", "payeesHash", "openAfter"]

function termsIn(file: string, token: string | undefined): Terms[] {
  const [head, ...lines] = readFileSync(file, "utf8").trim().split(/\r?\n/)
  const names = head?.split(",") ?? []
  for (const needed of [...COLUMNS, ...(token ? [] : ["token"])])
    if (!names.includes(needed))
      throw new Error(`${file} has no column ${needed}; it must be deposits.csv of the console.`)
  return lines.map((line, i) => {
    const cells = Object.fromEntries(line.split(",").map((cell, at) => [names[at] ?? "", cell]))
    const where = `line ${i + 2} of ${file}`
    const terms = termsOf({ ...cells, ...(token === undefined ? {} : { token }) }, where)
    if (terms.address !== read(`address in ${where}`, cells.address, parseAddress))
      throw new Error(`In ${where} the terms do not belong to the address: they give ${checksummed(terms.address)}.`)
    return { ...terms, chainId: Number.parseInt(cells.chainId ?? "", 10) }
  })
}

function keyFrom(file: string | undefined): Hex {
  if (file === undefined) throw new Error("A key is needed to send: --key-file. With --dry-run nothing is sent.")
  const text = readFileSync(file === "-" ? 0 : file, "utf8")
  const key = text.trim()
  if (!/^0x[0-9a-fA-F]{64}$/.test(key)) throw new Error("The key is not 0x and 64 hexadecimal digits.")
  return key as Hex
}

type Node = { url: string; network: string }

async function ask(node: Node, calls: RpcCall[]): Promise<unknown[]> {
  const results = await batch(node, calls).catch((error: Error) => {
    throw new Error(`The node at ${node.url} can't be asked: ${error.message}.`, { cause: error })
  })
  return results.map(value)
}

function value(result: RpcResult | undefined): unknown {
  if (!result?.ok) throw new RpcError(`The node answers: ${result?.error ?? "nothing"}`)
  return result.value
}

const viewOf = (to: Address, data: Hex): RpcCall => ({ method: "eth_call", params: [{ to, data }, "latest"] })

async function balancesOf(node: Node, terms: readonly Terms[]): Promise<bigint[]> {
  const calls = terms.map(({ token, address }) =>
    token === ZERO_ADDRESS
      ? { method: "eth_getBalance", params: [address, "latest"] }
      : viewOf(token, encodeFunctionData({ abi: erc20Abi, functionName: "balanceOf", args: [address] })),
  )
  return (await ask(node, calls)).map((word, i) => {
    if (terms[i]?.token !== ZERO_ADDRESS && !/^0x[0-9a-f]{64}$/i.test(String(word)))
      throw new Error(`${terms[i]?.token} is no token on this network.`)
    return BigInt(word as Hex)
  })
}

/** Formats amounts for people; in base units where the token does not report its decimals. */
async function moneyText(node: Node, tokens: Address[]): Promise<(token: Address, amount: bigint) => string> {
  const calls = tokens.flatMap(token =>
    (["symbol", "decimals"] as const).map(functionName =>
      viewOf(token, encodeFunctionData({ abi: erc20Abi, functionName })),
    ),
  )
  const reported = await batch(node, calls)
  return (token, amount) => {
    if (token === ZERO_ADDRESS) return `${formatUnits(amount, 18)} ether`
    const at = 2 * tokens.indexOf(token)
    try {
      const [symbol, decimals] = [value(reported[at]) as Hex, value(reported[at + 1]) as Hex]
      const name = decodeFunctionResult({ abi: erc20Abi, functionName: "symbol", data: symbol })
      return `${formatUnits(amount, decodeFunctionResult({ abi: erc20Abi, functionName: "decimals", data: decimals }))} ${name}`
    } catch {
      return `${amount} of ${token}`
    }
  }
}

/**
 * Simulates the recovery, sends it, and waits for its receipt; returns what moved. `held` is what the address held a
 * moment ago.
 */
async function recover(
  node: Node,
  chainId: number,
  key: Hex,
  terms: Terms,
  held: bigint,
): Promise<{ hash: Hash; moved: bigint }> {
  const { factory, salt, owner, token, address } = terms
  const account = privateKeyToAccount(key)
  const data = encodeFunctionData({
    abi: depositFactoryAbi,
    functionName: "recover",
    args: [salt, terms, token],
  })
  const [code] = await ask(node, [{ method: "eth_getCode", params: [factory, "latest"] }])
  if (code === "0x") throw new Error(`There is no factory at ${checksummed(factory)} on this network.`)
  await ask(node, [{ method: "eth_call", params: [{ from: account.address, to: factory, data }, "latest"] }])
  const chain = {
    id: chainId,
    name: "",
    nativeCurrency: { name: "", symbol: "", decimals: 18 },
    rpcUrls: { default: { http: [] } },
  }
  const client = createWalletClient({ account, chain, transport: http(node.url) })
  const hash = (await client.sendTransaction({ to: factory, data })) as Hash
  for (;;) {
    const [reported] = await ask(node, [{ method: "eth_getTransactionReceipt", params: [hash] }])
    const receipt = readReceipt(reported)
    if (!receipt) {
      await new Promise(resolve => setTimeout(resolve, 500))
      continue
    }
    if (receipt.succeeded && token === ZERO_ADDRESS) return { hash, moved: held }
    const moved = receipt.transfers.find(each => each.token === token && each.from === address && each.to === owner)
    if (!receipt.succeeded || !moved) throw new Error(`The transaction ${hash} moved nothing.`)
    return { hash, moved: moved.value }
  }
}

/** Runs the command with the arguments of the process. */
export const run = (): Promise<void> =>
  // Control characters are replaced, because a token's symbol can be any text.
  main(line => process.stdout.write(`${line.replace(/(?!\n)\p{C}/gu, "\ufffd")}\n`)).catch((error: Error) => {
    process.stderr.write(`\n${error.message}\n`)
    process.exitCode = 1
  })
