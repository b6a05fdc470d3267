/**
 * `sluice verify-address`: computes a receiving address from its terms, and compares it with the given one. The
 * command works offline, so neither the service nor a node has to be trusted.
 */
import { readFileSync } from "node:fs"
import { factoryDeployment } from "../../ledger/deposits/factory-deployment.ts"
import { addressOfTerms, type Payee, payeesHash } from "../../platform/chain/deposit-terms.ts"
import {
  type Address,
  checksummed,
  type Hash,
  NOT_AN_ADDRESS,
  parseAddress,
  parseHash,
} from "../../platform/chain/hex.ts"
import { parseCommandLine, runCommand, UsageError } from "./run-command.ts"

const usage = `Checks offline that a receiving address belongs to these terms.

  sluice verify-address ADDRESS --factory A --salt S --owner A --approver A [--payees LIST] --open-after N
  sluice verify-address ADDRESS --terms FILE

  ADDRESS         the address that a buyer was asked to pay.
  --factory A     the contract that creates the addresses; compare it with the operator's.
  --salt S        32 bytes in hexadecimal.
  --owner A       the merchant's payout address: after the recovery time anyone can send the money there.
  --approver A    who can send money back to payers: an address that signs for it, or the factory, which stands for its operator.
  --payees LIST   the split's recipients, in their order, as "ADDRESS=PERCENT ADDRESS=PERCENT"; leave it out without a split.
  --open-after N  the recovery time in Unix seconds.
  --guardian A    with --operator A: the factory's guardian and first operator, to compare the factory with Sluice's code.
  --terms FILE    a line of deposits.csv, as the console exports it, instead of these options; - for the standard input.
  --help          this text.

Exits with 0 when the address belongs to the terms, 1 when it does not, 2 for an invalid command line or file.
`

const options = {
  factory: { type: "string" },
  salt: { type: "string" },
  owner: { type: "string" },
  approver: { type: "string" },
  payees: { type: "string" },
  "open-after": { type: "string" },
  terms: { type: "string" },
  guardian: { type: "string" },
  operator: { type: "string" },
} as const

const columns = ["factory", "salt", "owner", "approver", "payees", "openAfter"] as const

interface AddressTerms {
  factory: Address
  salt: Hash
  owner: Address
  approver: Address
  payees: Payee[]
  openAfter: bigint
}

/** Returns the output of the command, and whether the address matches the terms. Throws a {@link UsageError}. */
export function verifyAddress(args: string[], fileText: (path: string) => string): { text: string; ok: boolean } {
  const { values, positionals } = parseCommandLine(args, { options, allowPositionals: true })
  if (values.help) return { text: usage.trimEnd(), ok: true }
  const [given, ...more] = positionals
  if (given === undefined || more.length > 0) throw new UsageError("Name one address.")
  const address = part("The address", given, parseAddress, NOT_AN_ADDRESS)
  const { terms: file, help: _, guardian, operator, ...flags } = values
  if (file !== undefined && Object.keys(flags).length > 0)
    throw new UsageError("--terms can't be combined with single terms.")
  const terms =
    file === undefined
      ? termsOf({ ...flags, openAfter: flags["open-after"] }, name => `--${name.replace("openAfter", "open-after")}`)
      : termsIn(file, fileText(file), address)
  const computed = addressOfTerms(terms.factory, terms.salt, { ...terms, payeesHash: payeesHash(terms.payees) })
  if (computed !== address)
    return {
      text: `${checksummed(address)} does NOT belong to these terms: they give ${checksummed(computed)}. Because of this, do not send money to the address.`,
      ok: false,
    }
  const belongs = `${checksummed(address)} belongs to these terms.`
  const ours = isOurFactory(terms.factory, guardian, operator)
  if (ours === false)
    return {
      text: `${belongs} But the factory ${checksummed(terms.factory)} is NOT Sluice's factory with this guardian and operator: it may let anyone take the money. Because of this, do not send money to the address.`,
      ok: false,
    }
  const doubt = `This holds only if ${checksummed(terms.factory)} is Sluice's factory. To check that too, name its --guardian and its first --operator.`
  return { text: [belongs, ...whatFollows(terms), ...(ours ? [] : [doubt])].join("\n"), ok: true }
}

/** Whether this version's code with these parties results in this factory; undefined if no parties are given. */
function isOurFactory(
  factory: Address,
  guardian: string | undefined,
  operator: string | undefined,
): boolean | undefined {
  if (guardian === undefined && operator === undefined) return undefined
  const parties = {
    guardian: part("--guardian", guardian, parseAddress, NOT_AN_ADDRESS),
    operator: part("--operator", operator, parseAddress, NOT_AN_ADDRESS),
  }
  return factoryDeployment(parties).address === factory
}

/** Sentences that say who can ever get the money at an address. */
function whatFollows({ factory, owner, approver, payees, openAfter }: AddressTerms): string[] {
  const opens = new Date(Number.parseInt(openAfter.toString(), 10) * 1_000)
  const date = Number.isNaN(opens.getTime()) ? `Unix second ${openAfter}` : opens.toISOString()
  const shares = payees.map(({ address, percentE4 }) => `${checksummed(address)} (${percentE4 / 10_000} %)`)
  return [
    shares.length === 0
      ? `The operator of the factory ${checksummed(factory)} can send the address's money only to ${checksummed(owner)}.`
      : `The operator of the factory ${checksummed(factory)} can send the address's money only to ${checksummed(owner)} and to the split's recipients: ${shares.join(", ")}.`,
    approver === factory
      ? "The operator can also send the money back to a payer, or to any address that the operator names as one, because the merchant leaves returns to the service."
      : `Only a signature of ${checksummed(approver)} can send the money anywhere else, such as back to a payer.`,
    `After ${date} anyone can send what is left to ${checksummed(owner)}.`,
  ]
}

function part<T>(name: string, text: string | undefined, parse: (text: string) => T | undefined, fault: string): T {
  if (text === undefined) throw new UsageError(`${name} is missing.`)
  const value = parse(text.trim())
  if (value === undefined) throw new UsageError(`${name} ${fault}.`)
  return value
}

const MAX_SECONDS = 2n ** 64n - 1n

function secondsIn(text: string): bigint | undefined {
  const seconds = /^\d{1,20}$/.test(text) ? BigInt(text) : undefined
  return seconds !== undefined && seconds <= MAX_SECONDS ? seconds : undefined
}

/** Parses recipients in the format of deposits.csv; undefined for any other text. */
function payeesIn(text: string): Payee[] | undefined {
  const payees = text.split(/\s+/).flatMap(each => (each === "" ? [] : [payeeIn(each)]))
  return payees.every(each => each !== undefined) ? payees : undefined
}

function payeeIn(text: string): Payee | undefined {
  const [, to, whole, part = ""] = /^(0x[0-9a-fA-F]{40})=(\d{1,3})(?:\.(\d{1,4}))?$/.exec(text) ?? []
  const address = parseAddress(to ?? "")
  return address && { address, percentE4: Number.parseInt(`${whole}${part.padEnd(4, "0")}`, 10) }
}

function termsOf(
  texts: Partial<Record<(typeof columns)[number], string | undefined>>,
  name: (column: string) => string,
): AddressTerms {
  return {
    factory: part(name("factory"), texts.factory, parseAddress, NOT_AN_ADDRESS),
    salt: part(name("salt"), texts.salt, parseHash, "must be 32 bytes: 0x and 64 hexadecimal digits"),
    owner: part(name("owner"), texts.owner, parseAddress, NOT_AN_ADDRESS),
    approver: part(name("approver"), texts.approver, parseAddress, NOT_AN_ADDRESS),
    payees: part(name("payees"), texts.payees ?? "", payeesIn, 'must be a list like "ADDRESS=60 ADDRESS=40"'),
    openAfter: part(name("openAfter"), texts.openAfter, secondsIn, "must be a time in Unix seconds"),
  }
}

/** Reads the terms in the file's line for this address. The address in the line serves only to find the line. */
function termsIn(file: string, text: string, address: Address): AddressTerms {
  const [head = "", ...lines] = text.trim().split(/\r?\n/)
  const names = head.split(",")
  const missing = ["address", ...columns].find(each => !names.includes(each))
  if (missing) throw new UsageError(`${file} has no column ${missing}; it must be the console's deposits.csv.`)
  const rows = lines.map(line => Object.fromEntries(line.split(",").map((cell, i) => [names[i] ?? "", cell])))
  const row = rows.find(each => parseAddress(each.address ?? "") === address)
  if (!row) throw new UsageError(`${file} does not have the address ${checksummed(address)}.`)
  return termsOf(row, name => `${name} in ${file}`)
}

function textOf(path: string): string {
  try {
    return readFileSync(path === "-" ? 0 : path, "utf8")
  } catch (error) {
    throw new UsageError(`${path} can't be read: ${(error as NodeJS.ErrnoException).code}.`)
  }
}

async function main(args: string[]): Promise<string> {
  const { text, ok } = verifyAddress(args, textOf)
  process.exitCode = ok ? 0 : 1
  return text
}

/** Runs the command with the arguments of the process. */
export const run = (): Promise<void> => runCommand("verify-address", main)
