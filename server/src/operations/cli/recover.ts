/**
 * `sluice recover`: sends the money at receiving addresses to their owners after the recovery time. The command needs
 * the addresses' terms, a node, and any account with a little gas. It does not need the service, its database or its
 * keys.
 */
import { readFileSync } from "node:fs"
import { decodeFunctionResult, encodeFunctionData, erc20Abi, formatUnits, type Hex } from "viem"
import { addressOfTerms } from "../../platform/chain/deposit-terms.ts"
import { type Address, checksummed, parseAddress, parseHash, ZERO_ADDRESS } from "../../platform/chain/hex.ts"
import { batch, type RpcCall } from "../../platform/chain/rpc.ts"
import { readBlock } from "../../platform/chain/transfers.ts"
import { httpUrl } from "../../platform/config/setting-values.ts"
import { parseCommandLine, parsedValue, runCommand, UsageError } from "./run-command.ts"
import { answerOf, askNode, firstLine, type Node, type RecoveryTerms, sendRecovery, Unmined } from "./send-recovery.ts"

const usage = `Sends the money at receiving addresses to their owners after the recovery time, without the service.

  sluice recover --rpc URL --terms FILE [--address ADDRESS]... [--key-file FILE] [--dry-run]
  sluice recover --rpc URL --factory A --salt S --owner A --approver A --payees-hash H --open-after N --token A
                 [--key-file FILE] [--dry-run]

  --rpc URL         a node of the network.
  --terms FILE      deposits.csv, as the console exports it: /api/console/deposits.csv.
  --address ADDRESS only this address; repeat the option for more addresses. By default, every address in the file that holds
                    money and is open.
  --key-file FILE   the private key of any account with a little ether, or - for the standard input. A key is never an
                    argument, because other users of the machine can read arguments.
  --token A         a token other than the one in the file; 0x and 40 zeros for ether, which needs no recovery time.
  --dry-run         shows what would be sent. It needs no key, and sends nothing.

Whoever runs this command, the money goes to the owner that the address itself names. You can safely run the command
again at any time: it skips empty addresses.

Exits with 0 when the money of every open address was sent, 1 when some was not, 2 for an invalid command line or file.
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
} as const

/** The terms that identify one deposit if no file is given. */
const TERMS = ["factory", "salt", "owner", "approver", "payees-hash", "open-after"] as const

interface RecoverableDeposit extends RecoveryTerms {
  /** The deposit's network; undefined for the node's own network. */
  chainId: number | undefined
}

type Flags = ReturnType<typeof parseCommandLine<{ options: typeof OPTIONS }>>["values"]

/** The command's environment. */
export interface Surroundings {
  say: (line: string) => void
  /** How long a transaction may stay unmined, in milliseconds. */
  patienceMs: number
}

/** The task that the arguments describe. */
interface Task {
  node: Node
  all: RecoverableDeposit[]
  named: Address[]
  /** The key that sends; undefined if nothing is sent. */
  key: Hex | undefined
}

/** Reads the arguments, and the files that they name; throws a {@link UsageError}. */
function taskOf(values: Flags): Task {
  if (!values.rpc) throw new UsageError("--rpc is missing: the URL of a node.")
  const named = (values.address ?? []).map(text => read("--address", text, parseAddress))
  const all = values.terms === undefined ? [termsOf(values)] : termsIn(values.terms, values.token)
  for (const address of named)
    if (!all.some(each => each.address === address))
      throw new UsageError(`${checksummed(address)} is not ${values.terms ? `in ${values.terms}` : "of these terms"}.`)
  const key = values["dry-run"] ? undefined : keyFrom(values["key-file"])
  return { node: { url: parsedValue("--rpc", values.rpc, httpUrl), network: "recover" }, all, named, key }
}

/**
 * Carries out what the arguments ask for, or returns the usage. Throws a {@link UsageError}, or an Error with a
 * sentence if a named deposit can't be recovered.
 */
export async function recoverDeposits(args: string[], surroundings: Surroundings): Promise<string | undefined> {
  const { say } = surroundings
  const { values } = parseCommandLine(args, { options: OPTIONS })
  if (values.help) return usage.trimEnd()
  const { node, all, named, key } = taskOf(values)
  const [chain, block] = await askNode(node, [
    { method: "eth_chainId", params: [] },
    { method: "eth_getBlockByNumber", params: ["latest", false] },
  ])
  const chainId = Number.parseInt(String(chain), 16)
  const time = readBlock(block)?.time
  if (!time) throw new Error("The node does not report its latest block.")
  const here = all.filter(each => each.chainId === undefined || each.chainId === chainId)
  if (here.length < all.length)
    say(`${all.length - here.length} addresses are on networks other than this node's (${chainId}).`)
  const chosen = named.length > 0 ? here.filter(each => named.includes(each.address)) : here
  if (named.length > chosen.length)
    throw new Error(`The node serves the network ${chainId}, but the named deposits are on another network.`)

  const balances = await balancesOf(node, chosen)
  const rich = chosen.filter((_, i) => (balances[i] ?? 0n) > 0n)
  say(`${rich.length} of ${chosen.length} addresses hold money.`)
  const money = await moneyText(node, [...new Set(rich.map(each => each.token))])
  const isOpen = ({ openAfter, token }: RecoverableDeposit) =>
    token === ZERO_ADDRESS || BigInt(Math.floor(time.getTime() / 1_000)) > openAfter
  for (const terms of rich.filter(each => !isOpen(each))) {
    const held = money(terms.token, balances[chosen.indexOf(terms)] ?? 0n)
    const words = `${checksummed(terms.address)} holds ${held} and opens after ${dateOf(terms.openAfter)}: until then only the service can send the money, to the recipients that the address names.`
    if (named.length > 0 || values.terms === undefined) throw new Error(words)
    say(words)
  }
  const open = rich.filter(isOpen).map(terms => ({ terms, held: balances[chosen.indexOf(terms)] ?? 0n }))
  await sendAll(open, { node, chainId, key, money, surroundings })
  return undefined
}

interface Sending {
  node: Node
  chainId: number
  /** The key that sends; undefined if nothing is sent. */
  key: Hex | undefined
  money: (token: Address, amount: bigint) => string
  surroundings: Surroundings
}

/**
 * Sends the money at these addresses, one after another. Throws an Error with a sentence if the money at one of them
 * could not be sent.
 */
async function sendAll(
  open: { terms: RecoverableDeposit; held: bigint }[],
  { node, chainId, key, money, surroundings }: Sending,
): Promise<void> {
  const { say } = surroundings
  let failed = 0
  for (const [i, { terms, held }] of open.entries()) {
    const what = (amount: bigint) =>
      `${money(terms.token, amount)} from ${checksummed(terms.address)} to its owner ${checksummed(terms.owner)}`
    if (key === undefined) {
      say(`Would send ${what(held)}.`)
      continue
    }
    try {
      const { hash, moved } = await sendRecovery({ node, chainId, key, terms, held, ...surroundings })
      say(`Sent ${what(moved)}: ${hash}`)
    } catch (error) {
      if (error instanceof Unmined) {
        const rest = open.length - i - 1
        const words = `${rest} more ${rest === 1 ? "address was" : "addresses were"} not tried.`
        throw new Error(rest > 0 ? `${error.message} ${words}` : error.message)
      }
      failed++
      say(`Not sent: ${what(held)}. ${firstLine(error)}`)
    }
  }
  if (failed > 0) throw new Error(`${failed} of ${open.length} could not be recovered.`)
}

const dateOf = (seconds: bigint): string => new Date(Number.parseInt(seconds.toString(), 10) * 1_000).toISOString()

function read<T>(name: string, text: string | undefined, parse: (text: string) => T | undefined): T {
  if (text === undefined) throw new UsageError(`${name} is missing.`)
  const value = parse(text.trim())
  if (value === undefined) throw new UsageError(`${name} can't be read: ${text}.`)
  return value
}

const parseSeconds = (text: string): bigint | undefined => (/^\d{1,20}$/.test(text) ? BigInt(text) : undefined)

/**
 * Reads the terms of one deposit, from flags or from a line of the file. The deposit's address is computed, never
 * taken from the input.
 */
function termsOf(texts: Record<string, unknown>, where = ""): RecoverableDeposit {
  const text = (name: string) => texts[name] as string | undefined
  const missing = where === "" ? [...TERMS, "token"].find(flag => text(flag) === undefined) : undefined
  if (missing)
    throw new UsageError(`--${missing} is missing. Name all terms of one deposit, or a file with --terms FILE.`)
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

function termsIn(file: string, token: string | undefined): RecoverableDeposit[] {
  const [head, ...lines] = textOf(file, file).trim().split(/\r?\n/)
  const names = head?.split(",") ?? []
  for (const needed of [...COLUMNS, ...(token ? [] : ["token"])])
    if (!names.includes(needed))
      throw new UsageError(`${file} has no column ${needed}; it must be the console's deposits.csv.`)
  return lines.map((line, i) => {
    const cells = Object.fromEntries(line.split(",").map((cell, at) => [names[at] ?? "", cell]))
    const where = `line ${i + 2} of ${file}`
    const terms = termsOf({ ...cells, ...(token === undefined ? {} : { token }) }, where)
    if (terms.address !== read(`address in ${where}`, cells.address, parseAddress))
      throw new UsageError(
        `In ${where} the terms do not belong to the address: they give ${checksummed(terms.address)}.`,
      )
    return { ...terms, chainId: Number.parseInt(cells.chainId ?? "", 10) }
  })
}

function keyFrom(file: string | undefined): Hex {
  if (file === undefined) throw new UsageError("Sending needs a key: --key-file. With --dry-run nothing is sent.")
  const key = textOf(file === "-" ? 0 : file, `--key-file ${file}`).trim()
  if (!/^0x[0-9a-fA-F]{64}$/.test(key)) throw new UsageError("The key must be 0x and 64 hexadecimal digits.")
  return key as Hex
}

function textOf(file: string | 0, name: string): string {
  try {
    return readFileSync(file, "utf8")
  } catch (error) {
    throw new UsageError(`${name} can't be read: ${(error as NodeJS.ErrnoException).code}.`)
  }
}

const viewOf = (to: Address, data: Hex): RpcCall => ({ method: "eth_call", params: [{ to, data }, "latest"] })

async function balancesOf(node: Node, terms: readonly RecoverableDeposit[]): Promise<bigint[]> {
  const calls = terms.map(({ token, address }) =>
    token === ZERO_ADDRESS
      ? { method: "eth_getBalance", params: [address, "latest"] }
      : viewOf(token, encodeFunctionData({ abi: erc20Abi, functionName: "balanceOf", args: [address] })),
  )
  return (await askNode(node, calls)).map((word, i) => {
    if (terms[i]?.token !== ZERO_ADDRESS && !/^0x[0-9a-f]{64}$/i.test(String(word)))
      throw new Error(`${checksummed(terms[i]?.token ?? ZERO_ADDRESS)} is not a token on this network.`)
    return BigInt(word as Hex)
  })
}

/** Returns a function that formats amounts for people; in base units if the token does not report its decimals. */
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
      const symbol = answerOf(reported[at]) as Hex
      const decimals = answerOf(reported[at + 1]) as Hex
      const name = decodeFunctionResult({ abi: erc20Abi, functionName: "symbol", data: symbol })
      return `${formatUnits(amount, decodeFunctionResult({ abi: erc20Abi, functionName: "decimals", data: decimals }))} ${name}`
    } catch {
      return `${amount} of ${checksummed(token)}`
    }
  }
}

/** Runs the command with the arguments of the process. */
export const run = (): Promise<void> =>
  runCommand("recover", args => recoverDeposits(args, { say: printed, patienceMs: PATIENCE_MS }), { clean })

/** How long a transaction may stay unmined, in milliseconds. Every network here produces a block every two seconds. */
const PATIENCE_MS = 120_000

const printed = (line: string): void => void process.stdout.write(`${clean(line)}\n`)

/** Replaces control characters, because a token's symbol can be any text. */
const clean = (text: string): string => text.replace(/(?!\n)\p{C}/gu, "\ufffd")
