/** `script/deploy`: deploys the deposit factory on a network, and prints the setting that names it. */
import { mkdirSync, readFileSync, statSync } from "node:fs"
import { join } from "node:path"
import { createInterface } from "node:readline/promises"
import { parseArgs } from "node:util"
import { privateKeyToAddress } from "viem/accounts"
import { newEndpoint } from "../chain/endpoints.ts"
import { type Address, checksummed, NOT_AN_ADDRESS, parseAddress, parseHash } from "../chain/hex.ts"
import { noOwnerOf } from "../chain/known-contracts.ts"
import { type NetworkName, networkFacts, networkNames, networkSetting } from "../chain/networks.ts"
import { localSigner, type Signer } from "../chain/signer.ts"
import { gwei, httpUrl } from "../config/setting-values.ts"
import { readDeploySettings } from "../config/settings.ts"
import { factoryDeployment } from "../deposits/factory-deployment.ts"
import { type Deployment, deployFactory } from "./deploy-factory.ts"

const usage = `Deploys the deposit factory, and prints the setting that names it.

  script/deploy --network ${networkNames.join("|")} --guardian ADDRESS --key-file FILE [--operator ADDRESS]
                [--rpc URL]... [--yes]

  --key-file FILE     the private key of any account with a little ether, which pays for it and has no influence on the
                      factory; - for the standard input. It is never an argument: other users of the machine can read those.
  --guardian ADDRESS  a cold account, fixed for ever: it may pause the operator and name another, and moves no money.
  --operator ADDRESS  who releases money out of deposits; by default the wallet of PAYOUT_PRIVATE_KEY or PAYOUT_KEYSTORE.
  --rpc URL           a node of the network; by default those of RPC_<NETWORK>.
  --max-fee GWEI      the highest price for a unit of gas (20).
  --yes               does not ask before it sends.
  --help              this text.

It simulates the deployment, shows what it costs, asks, sends, waits until it is final, and compares the code with this
version's. Run it again when it was stopped: it finds the factory, or the transaction under way, and goes on. The same
guardian and operator give the same address on every network. The setting is the only thing on the standard output.

Exits with 0 when the factory is deployed and final, 1 when it is not, 2 for a wrong command line.
`

/** The command line is wrong. */
export class UsageError extends Error {}

const options = {
  network: { type: "string" },
  guardian: { type: "string" },
  operator: { type: "string" },
  "key-file": { type: "string" },
  rpc: { type: "string", multiple: true },
  "max-fee": { type: "string", default: "20" },
  yes: { type: "boolean" },
  help: { type: "boolean" },
} as const

/** What the command needs of the outside. */
export interface Surroundings {
  env?: Record<string, string | undefined>
  say: (line: string) => void
  /** Undefined: nobody can be asked. */
  ask: ((question: string) => Promise<string>) | undefined
  patienceMs: number
}

/** Deploys, and returns what belongs on the standard output; throws a {@link UsageError} or an Error with a sentence. */
export async function deploy(args: string[], { env, say, ask, patienceMs }: Surroundings): Promise<string> {
  const flags = read(args)
  if (flags.help) return usage.trimEnd()
  const name = networkOf(flags.network)
  const settings = readDeploySettings(name, env)
  const urls = flags.rpc?.map(url => parsed("--rpc", url, httpUrl)) ?? settings.rpcUrls
  if (urls.length === 0) throw new UsageError(`Name a node with --rpc, or set ${networkSetting("RPC", name)}.`)
  const operator = flags.operator === undefined ? settings.payoutWallet : accountOf("--operator", flags.operator)
  if (!operator)
    throw new UsageError("Name the operator with --operator, or set PAYOUT_PRIVATE_KEY or PAYOUT_KEYSTORE.")
  const guardian = guardianOf(flags.guardian, operator)
  const cap = parsed("--max-fee", flags["max-fee"], gwei)
  const signer = signerIn(flags["key-file"])
  const { to, data, address } = factoryDeployment({ guardian, operator })
  mkdirSync(settings.dataDir, { recursive: true, mode: 0o700 })
  const deployment: Deployment = {
    network: { name, chainId: networkFacts[name].chainId },
    endpoints: urls.map(url => newEndpoint(name, url)),
    ...{ signer, to, data, address, operator, cap, patienceMs, say },
    facts: [
      `Network   ${name} (chain ${networkFacts[name].chainId})`,
      `Factory   ${checksummed(address)}, the same on every network`,
      `Operator  ${checksummed(operator)}, who releases money out of deposits`,
      `Guardian  ${checksummed(guardian)}, who may pause the operator and name another`,
    ],
    keptFile: join(settings.dataDir, `deploy-${name}.json`),
    confirm: async question => {
      if (flags.yes) return true
      if (!ask) throw new Error("Nobody can be asked here: run it in a terminal, or with --yes. Nothing was sent.")
      return /^y(es)?$/i.test((await ask(`${question} [y/N] `)).trim())
    },
  }
  await deployFactory(deployment)
  return `${networkSetting("DEPOSIT_FACTORY", name)}=${checksummed(address)}`
}

function read(args: string[]) {
  try {
    return parseArgs({ args, options }).values
  } catch (error) {
    throw new UsageError((error as Error).message)
  }
}

function networkOf(name: string | undefined): NetworkName {
  const known = networkNames.find(each => each === name)
  if (!known) throw new UsageError(`--network must be one of: ${networkNames.join(", ")}.`)
  return known
}

function parsed<T>(flag: string, text: string, parse: (text: string) => T): T {
  try {
    return parse(text)
  } catch (error) {
    throw new UsageError(`${flag} ${(error as Error).message}.`)
  }
}

function accountOf(flag: string, text: string): Address {
  const address = parseAddress(text)
  const fault = address ? noOwnerOf(address) : NOT_AN_ADDRESS
  if (!address || fault) throw new UsageError(`${flag} ${fault}.`)
  return address
}

function guardianOf(text: string | undefined, operator: Address): Address {
  if (text === undefined)
    throw new UsageError(
      "Name a cold account with --guardian: alone it can stop a stolen operator's key, and it can't be changed later.",
    )
  const guardian = accountOf("--guardian", text)
  if (guardian === operator)
    throw new UsageError(
      "--guardian must be another account than the operator: it is there for when that key is stolen.",
    )
  return guardian
}

/** The key never appears in a message. */
function signerIn(path: string | undefined): Signer {
  if (path === undefined) throw new UsageError("--key-file is missing: the file with the key of the account that pays.")
  const text = keyText(path)
  const key = parseHash(text.trim())
  try {
    if (key && privateKeyToAddress(key)) return localSigner(key)
  } catch {
    // Below: the library's own error would repeat the key.
  }
  throw new Error(`--key-file ${path} does not hold a private key: 0x and 64 hexadecimal digits.`)
}

function keyText(path: string): string {
  if (path === "-") return readFileSync(0, "utf8")
  try {
    if ((statSync(path).mode & 0o077) !== 0)
      throw new Error(`--key-file ${path} can be read by other users: run \`chmod 600 ${path}\`.`)
    return readFileSync(path, "utf8")
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw code === undefined ? error : new Error(`--key-file ${path} can't be read: ${code}.`)
  }
}

/** How long a transaction may be in no block: every network here has one each two seconds. */
const PATIENCE_MS = 120_000

async function ask(question: string): Promise<string> {
  const terminal = createInterface({ input: process.stdin, output: process.stderr })
  return await terminal.question(question).finally(() => terminal.close())
}

if (import.meta.main)
  deploy(process.argv.slice(2), {
    say: line => void process.stderr.write(`${line}\n`),
    ask: process.stdin.isTTY ? ask : undefined,
    patienceMs: PATIENCE_MS,
  }).then(
    text => {
      process.stdout.write(`${text}\n`)
      process.exit()
    },
    (error: Error) => {
      const isUsage = error instanceof UsageError
      process.stderr.write(`${error.message}${isUsage ? "\nRun `script/deploy --help` for its usage." : ""}\n`)
      process.exit(isUsage ? 2 : 1)
    },
  )
