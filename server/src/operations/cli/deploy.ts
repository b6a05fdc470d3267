/**
 * `sluice deploy`: deploys the deposit factory, the refund collector or a shared contract on a network. If a setting
 * must name the contract, it prints that setting.
 */
import { mkdirSync, readFileSync, statSync } from "node:fs"
import { join } from "node:path"
import { createInterface } from "node:readline/promises"
import { privateKeyToAddress } from "viem/accounts"
import { checkFactory } from "../../ledger/deposits/check-factory.ts"
import { factoryDeployment } from "../../ledger/deposits/factory-deployment.ts"
import { batchDeployment, hasBatch } from "../../platform/chain/authorization-batch.ts"
import { newEndpoint } from "../../platform/chain/endpoints.ts"
import { type Address, checksummed, NOT_AN_ADDRESS, parseAddress, parseHash } from "../../platform/chain/hex.ts"
import { noOwnerOf } from "../../platform/chain/known-contracts.ts"
import { type NetworkName, networkFacts, networkNames, networkSetting } from "../../platform/chain/network-facts.ts"
import { anchorDeployment, hasReceiptAnchor } from "../../platform/chain/receipt-anchor.ts"
import { refundCollectorDeployment } from "../../platform/chain/refund-collector.ts"
import { localSigner, type Signer } from "../../platform/chain/signer.ts"
import { readDeploySettings } from "../../platform/config/command-settings.ts"
import { gwei, httpUrl } from "../../platform/config/setting-values.ts"
import { checkRefundCollector } from "./check-refund-collector.ts"
import { type Deployment, deployContract } from "./deploy-contract.ts"
import { parseCommandLine, parsedValue, runCommand, UsageError } from "./run-command.ts"

const usage = `Deploys the deposit factory, the refund collector of the escrow, the batch of authorizations or the anchor of receipts, and
prints the setting that names it.

  sluice deploy --network ${networkNames.join("|")} --guardian ADDRESS --key-file FILE [--operator ADDRESS]
                [--rpc URL]... [--yes]
  sluice deploy --contract refund-collector --network ... --key-file FILE [--operator ADDRESS] [--rpc URL]... [--yes]
  sluice deploy --contract authorization-batch|receipt-anchor --network ... --key-file FILE [--rpc URL]... [--yes]

  --contract NAME     factory (the default), or refund-collector: it pulls refunds of payments through the network's escrow
                      (ESCROW_<NETWORK>) from merchants' wallets, and serves that escrow and its operator alone, for ever.
                      Or authorization-batch: with it, agents' payments that are due together share a transaction. It belongs
                      to nobody, is the same for everybody, and needs no setting: one deployment on a network is enough.
                      Or receipt-anchor, which RECEIPT_ANCHOR needs: the same, for the roots of receipts.
  --key-file FILE     the private key of any account with a little ether, which pays for it and has no influence on the
                      contract; - for the standard input. It is never an argument: other users of the machine can read those.
  --guardian ADDRESS  a cold account, fixed for ever: it may pause the operator and name another, and moves no money.
  --operator ADDRESS  who releases money out of deposits; by default the payout wallet of the settings.
                      Of a refund collector: who operates the escrow; by default the relay wallet of the settings.
  --rpc URL           a node of the network; by default those of RPC_<NETWORK>.
  --max-fee GWEI      the highest price for a unit of gas (20).
  --yes               does not ask before it sends.
  --help              this text.

It simulates the deployment, shows what it costs, asks, sends, waits until it is final, and compares the code with this
version's. Run it again when it was stopped: it finds the contract, or the transaction under way, and goes on. The same
accounts give the same address on every network. The setting is the only thing on the standard output.

Exits with 0 when the contract is deployed and final, 1 when it is not, 2 for a wrong command line.
`

const options = {
  contract: { type: "string", default: "factory" },
  network: { type: "string" },
  guardian: { type: "string" },
  operator: { type: "string" },
  "key-file": { type: "string" },
  rpc: { type: "string", multiple: true },
  "max-fee": { type: "string", default: "20" },
  yes: { type: "boolean" },
} as const

/** The command's environment. */
export interface Surroundings {
  env?: Record<string, string | undefined>
  say: (line: string) => void
  /** Undefined if there is nobody to ask. */
  ask: ((question: string) => Promise<string>) | undefined
  patienceMs: number
}

/** Deploys, and returns the text for the standard output. Throws a {@link UsageError} or an Error with a sentence. */
export async function deploy(args: string[], { env, say, ask, patienceMs }: Surroundings): Promise<string> {
  const { values: flags } = parseCommandLine(args, { options })
  if (flags.help) return usage.trimEnd()
  const name = networkOf(flags.network)
  const settings = readDeploySettings(name, env)
  const urls = flags.rpc?.map(url => parsedValue("--rpc", url, httpUrl)) ?? settings.rpcUrls
  if (urls.length === 0) throw new UsageError(`Name a node with --rpc, or set ${networkSetting("RPC", name)}.`)
  const endpoints = urls.map(url => newEndpoint(name, url))
  const network = { name, chainId: networkFacts[name].chainId }
  const contract = contractOf(flags, { network, endpoints, settings })
  const cap = parsedValue("--max-fee", flags["max-fee"], gwei)
  const signer = signerIn(flags["key-file"])
  mkdirSync(settings.dataDir, { recursive: true, mode: 0o700 })
  await deployContract({
    ...contract,
    network,
    endpoints,
    signer,
    cap,
    patienceMs,
    say,
    facts: [`Network   ${name} (chain ${network.chainId})`, ...contract.facts],
    confirm: async question => {
      if (flags.yes) return true
      if (!ask) throw new Error("Nobody can be asked here: run it in a terminal, or with --yes. Nothing was sent.")
      return /^y(es)?$/i.test((await ask(`${question} [y/N] `)).trim())
    },
  })
  if (!contract.setting) return `# ${checksummed(contract.address)} needs no setting.`
  return `${networkSetting(contract.setting, name)}=${checksummed(contract.address)}`
}

type Flags = ReturnType<typeof parseCommandLine<{ options: typeof options }>>["values"]
type Site = Pick<Deployment, "network" | "endpoints"> & { settings: ReturnType<typeof readDeploySettings> }

/** A contract to deploy, how to check it, and the setting that names it. */
type Contract = Pick<Deployment, "noun" | "to" | "data" | "address" | "operator" | "check" | "facts" | "keptFile"> & {
  setting: "DEPOSIT_FACTORY" | "REFUND_COLLECTOR" | undefined
}

function contractOf(flags: Flags, site: Site): Contract {
  if (flags.contract === "factory") return factory(flags, site)
  if (flags.contract === "refund-collector") return refundCollector(flags, site)
  const shared = sharedContracts[flags.contract]
  if (shared) return sharedContract(flags, site, shared)
  throw new UsageError(
    `--contract must be one of: factory, refund-collector, ${Object.keys(sharedContracts).join(", ")}.`,
  )
}

/** The facts that are the same on every network and for everybody, by the contract's name on the command line. */
interface SharedContract extends Pick<Contract, "to" | "data" | "address" | "noun"> {
  name: string
  /** The wallet that calls it. */
  wallet: "payoutWallet" | "relayWallet"
  isThere: (endpoints: Deployment["endpoints"]) => Promise<boolean>
}

const sharedContracts: Record<string, SharedContract | undefined> = {
  "authorization-batch": {
    ...batchDeployment,
    name: "authorization-batch",
    wallet: "relayWallet",
    noun: "batch of authorizations",
    isThere: hasBatch,
  },
  "receipt-anchor": {
    ...anchorDeployment,
    name: "receipt-anchor",
    wallet: "payoutWallet",
    noun: "anchor of receipts",
    isThere: hasReceiptAnchor,
  },
}

function sharedContract(
  flags: Flags,
  { network, endpoints, settings }: Site,
  { name, wallet, isThere, ...deployment }: SharedContract,
): Contract {
  const { noun, address } = deployment
  if (flags.guardian !== undefined || flags.operator !== undefined)
    throw new UsageError(`--guardian and --operator are for other contracts: the ${noun} obeys nobody.`)
  return {
    ...deployment,
    setting: undefined,
    // The service's wallet that calls it must not pay for it: the service halts a wallet that sends what it did not
    // sign.
    operator: settings[wallet] ?? address,
    check: async () => {
      if (!(await isThere(endpoints))) throw new Error(`No endpoint returns the code of the ${noun}.`)
    },
    facts: [`Contract  ${checksummed(address)}, the same on every network and for everybody`],
    keptFile: join(settings.dataDir, `deploy-${name}-${network.name}.json`),
  }
}

function factory(flags: Flags, { network, endpoints, settings }: Site): Contract {
  const operator = flags.operator === undefined ? settings.payoutWallet : accountOf("--operator", flags.operator)
  if (!operator)
    throw new UsageError(
      "Name the operator with --operator, or set PAYOUT_PRIVATE_KEY, PAYOUT_KEYSTORE or PAYOUT_SIGNER.",
    )
  const guardian = guardianOf(flags.guardian, operator)
  const deployment = factoryDeployment({ guardian, operator })
  const { address } = deployment
  return {
    ...deployment,
    noun: "factory",
    setting: "DEPOSIT_FACTORY",
    operator,
    check: () => checkFactory({ ...network, endpoints, depositFactory: address }, { payoutWallet: operator }),
    facts: [
      `Factory   ${checksummed(address)}, the same on every network`,
      `Operator  ${checksummed(operator)}, who releases money out of deposits`,
      `Guardian  ${checksummed(guardian)}, who may pause the operator and name another`,
    ],
    keptFile: join(settings.dataDir, `deploy-${network.name}.json`),
  }
}

function refundCollector(flags: Flags, { network, endpoints, settings }: Site): Contract {
  if (flags.guardian !== undefined)
    throw new UsageError("--guardian is for a factory: nobody can pause or change a refund collector.")
  const operator = flags.operator === undefined ? settings.relayWallet : accountOf("--operator", flags.operator)
  if (!operator)
    throw new UsageError("Name the operator with --operator, or set RELAY_PRIVATE_KEY, RELAY_KEYSTORE or RELAY_SIGNER.")
  const { escrow } = settings
  if (!escrow) throw new UsageError(`Name the escrow with ${networkSetting("ESCROW", network.name)}.`)
  const deployment = refundCollectorDeployment({ escrow, operator })
  const { address } = deployment
  return {
    ...deployment,
    noun: "refund collector",
    setting: "REFUND_COLLECTOR",
    operator,
    check: () => checkRefundCollector(endpoints, address, { escrow, operator }),
    facts: [
      `Collector ${checksummed(address)}, the same on every network`,
      `Escrow    ${checksummed(escrow)}, for which it pulls refunds from merchants' wallets`,
      `Operator  ${checksummed(operator)}, the only one whose payments it refunds`,
    ],
    keptFile: join(settings.dataDir, `deploy-refund-collector-${network.name}.json`),
  }
}

function networkOf(name: string | undefined): NetworkName {
  const known = networkNames.find(each => each === name)
  if (!known) throw new UsageError(`--network must be one of: ${networkNames.join(", ")}.`)
  return known
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
    // Handled below, because the library's own error would repeat the key.
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

/** How long a transaction may stay unmined: every network here makes a block every two seconds. */
const PATIENCE_MS = 120_000

async function ask(question: string): Promise<string> {
  const terminal = createInterface({ input: process.stdin, output: process.stderr })
  return await terminal.question(question).finally(() => terminal.close())
}

/** Runs the command with the arguments of the process, and ends it. */
export const run = (): Promise<void> => runCommand("deploy", args => deploy(args, ofTheProcess()), { exits: true })

const ofTheProcess = (): Surroundings => ({
  say: line => void process.stderr.write(`${line}\n`),
  ask: process.stdin.isTTY ? ask : undefined,
  patienceMs: PATIENCE_MS,
})
