/**
 * `sluice deploy`: deploys the deposit factory, the refund collector or a shared contract on a network. If a setting
 * must name the contract, the command prints that setting.
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

const usage = `Deploys the deposit factory, the refund collector of the escrow, the batch contract for authorizations or the anchor contract
for receipts, and prints the setting that names it.

  sluice deploy --network ${networkNames.join("|")} --guardian ADDRESS --key-file FILE [--operator ADDRESS]
                [--rpc URL]... [--yes]
  sluice deploy --contract refund-collector --network ... --key-file FILE [--operator ADDRESS] [--rpc URL]... [--yes]
  sluice deploy --contract authorization-batch|receipt-anchor --network ... --key-file FILE [--rpc URL]... [--yes]

  --contract NAME     factory: the deposit factory (the default).
                      refund-collector: pulls refunds of escrow payments (ESCROW_<NETWORK>) from merchants' wallets. It
                      permanently serves only this escrow and its operator.
                      authorization-batch: lets agents' payments that are due together share a transaction. It has no owner,
                      and needs no setting: one deployment on a network serves everybody.
                      receipt-anchor: stores the roots of receipts, for RECEIPT_ANCHOR. It has no owner either.
  --key-file FILE     the private key of any account with a little ether, or - for the standard input. The account pays for
                      the deployment and has no power over the contract. A key is never an argument, because other users of
                      the machine can read arguments.
  --guardian ADDRESS  a cold account that never changes: it can pause the operator and name another, but can't move money.
  --operator ADDRESS  for a factory, the account that releases money from deposits; by default the payout wallet of the settings.
                      For a refund collector, the escrow's operator; by default the relay wallet of the settings.
  --rpc URL           a node of the network; by default the nodes of RPC_<NETWORK>.
  --max-fee GWEI      the highest price for a unit of gas (20).
  --yes               sends without asking.
  --help              this text.

It simulates the deployment, shows the cost, asks for confirmation, sends the transaction, waits until it is final, and
compares the code with this version's. If the command was stopped, run it again: it finds the contract or the pending
transaction, and continues. The same accounts give the same address on every network. Only the setting goes to the
standard output.

Exits with 0 when the contract is deployed and final, 1 when it is not, 2 for an invalid command line.
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
  /** Asks a question; undefined if there is nobody to ask. */
  ask: ((question: string) => Promise<string>) | undefined
  patienceMs: number
}

/**
 * Deploys a contract, and returns the text for the standard output. Throws a {@link UsageError} or an Error with a
 * sentence.
 */
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
      if (!ask)
        throw new Error(
          "There is no terminal to ask for confirmation: run this command in a terminal, or with --yes. Nothing was sent.",
        )
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

/** A contract that is the same on every network and for everybody. */
interface SharedContract extends Pick<Contract, "to" | "data" | "address" | "noun"> {
  name: string
  /** The wallet of the service that calls the contract. */
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
    throw new UsageError(`--guardian and --operator are for other contracts: the ${noun} has no owner.`)
  return {
    ...deployment,
    setting: undefined,
    // The wallet that calls the contract must not pay for it, because the service halts a wallet that sends a
    // transaction the service did not sign.
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
      `Operator  ${checksummed(operator)}, who releases money from deposits`,
      `Guardian  ${checksummed(guardian)}, who can pause the operator and name another`,
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
  if (!escrow) throw new UsageError(`Set ${networkSetting("ESCROW", network.name)} to the address of the escrow.`)
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
      "Name a cold account with --guardian. Only the guardian can disable a stolen operator key, and the guardian can't be changed later.",
    )
  const guardian = accountOf("--guardian", text)
  if (guardian === operator)
    throw new UsageError(
      "--guardian must differ from the operator: the guardian protects against the theft of the operator's key.",
    )
  return guardian
}

/** Reads the key that pays. The key never appears in a message. */
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

/** How long a transaction may stay unmined, in milliseconds. Every network here produces a block every two seconds. */
const PATIENCE_MS = 120_000

async function ask(question: string): Promise<string> {
  const terminal = createInterface({ input: process.stdin, output: process.stderr })
  return await terminal.question(question).finally(() => terminal.close())
}

/** Runs the command with the arguments of the process, then exits. */
export const run = (): Promise<void> => runCommand("deploy", args => deploy(args, ofTheProcess()), { exits: true })

const ofTheProcess = (): Surroundings => ({
  say: line => void process.stderr.write(`${line}\n`),
  ask: process.stdin.isTTY ? ask : undefined,
  patienceMs: PATIENCE_MS,
})
