/**
 * `sluice wallet`: shows the service's wallets to an operator and acts on them, through requests to the running
 * service.
 */
import { gweiForm, hashForm, nonceForm, payoutIdForm } from "../operator/argument-forms.ts"
import { askService, plain } from "./ask-service.ts"
import { heldText, logText, walletsText } from "./print-wallets.ts"
import { parseCommandLine, runCommand, UsageError } from "./run-command.ts"

const usage = `Shows, halts and repairs the wallets that the running service pays from.

  sluice wallet show [--network N]        the state of each wallet, and its transactions in flight
  sluice wallet held                      the payouts that are held, and why
  sluice wallet log                       manual actions: what, by whom and why
  sluice wallet halt WALLET --reason R    stops signing and sending immediately
  sluice wallet resume WALLET --reason R [--books-compared] [--nothing-paid]
                                          lets the wallet sign and send again; refused while a nonce on the chain is unexplained
  sluice wallet adopt HASH [--payout ID]  adopts one of our transactions that the database does not know
  sluice wallet adopt --all WALLET        finds what the wallet sent that the database does not know, and adopts it
  sluice wallet adopt HASH --foreign --reason R
                                          the same for a transaction that pays none of our payouts
  sluice wallet unstick WALLET NONCE --reason R [--max-fee GWEI]
                                          sends an empty transfer in place of a transaction that can't be mined
  sluice wallet retry PAYOUT [--reason R]
                                          retries a held payout now; it must still pass every check
  sluice wallet retry --all [--held WHY] [--reason R]
                                          retries all held payouts now, or only those held for one reason
  sluice wallet cancel PAYOUT --reason R  cancels a payout that has no nonce; its money stays in its deposit

  WALLET             payout, relay, storage, or an address; with --network N if several wallets match (0g for the storage wallet)
  --books-compared   you have compared what left the deposits so far with the payouts
  --nothing-paid     you have made sure that no other earlier transaction of the wallet paid a waiting payout
  --json             the service's answer as JSON
  --help             this text

It needs the DATA_DIR of the service and permission to open admin.sock in it. docs/operators/wallet.md says when to use
each command.
Exits with 0 when it was done, 1 when it was refused, 2 for an invalid command line, 3 when the service can't be reached.
`

const options = {
  network: { type: "string" },
  reason: { type: "string" },
  payout: { type: "string" },
  foreign: { type: "boolean" },
  all: { type: "boolean" },
  held: { type: "string" },
  "max-fee": { type: "string" },
  "books-compared": { type: "boolean" },
  "nothing-paid": { type: "boolean" },
  json: { type: "boolean" },
} as const

type Flags = ReturnType<typeof parseCommandLine<{ options: typeof options }>>["values"]

/** The form that some arguments and flags must have. */
const forms: Record<string, { pattern: string; words: string }> = {
  PAYOUT: payoutIdForm,
  HASH: hashForm,
  NONCE: nonceForm,
  "--payout": payoutIdForm,
  "--max-fee": gweiForm,
}

/** A command: the names of its arguments, its flags, whether it needs a reason, and its request. */
interface Command {
  takes: string[]
  flags: (keyof Flags)[]
  needsReason?: boolean
  /** What the command becomes with --all. */
  all?: Command
  ask: (given: string[], flags: Flags) => { path: string; body?: object }
  // biome-ignore lint/suspicious/noExplicitAny: the data in the service's answer.
  print?: (data: any) => string
}

const commands: Record<string, Command> = {
  show: {
    takes: [],
    flags: ["network"],
    ask: (_given, { network }) => ({ path: `/wallets${network ? `?network=${encodeURIComponent(network)}` : ""}` }),
    print: walletsText,
  },
  held: { takes: [], flags: [], ask: () => ({ path: "/held?limit=1000" }), print: heldText },
  log: { takes: [], flags: [], ask: () => ({ path: "/log?limit=100" }), print: logText },
  halt: {
    takes: ["WALLET"],
    flags: ["network", "reason"],
    needsReason: true,
    ask: ([wallet], { network, reason }) => ({ path: "/halt", body: { wallet, network, reason } }),
  },
  resume: {
    takes: ["WALLET"],
    flags: ["network", "reason", "books-compared", "nothing-paid"],
    needsReason: true,
    ask: ([wallet], { network, reason, ...flags }) => ({
      path: "/resume",
      body: {
        wallet,
        network,
        reason,
        booksCompared: flags["books-compared"],
        nothingPaid: flags["nothing-paid"],
      },
    }),
  },
  adopt: {
    all: {
      takes: ["WALLET"],
      flags: ["network", "reason"],
      ask: ([wallet], { network, reason }) => ({ path: "/adopt-all", body: { wallet, network, reason } }),
    },
    takes: ["HASH"],
    flags: ["payout", "foreign", "reason"],
    ask: ([hash], { payout, foreign, reason }) => ({
      path: "/adopt",
      body: { hash: hash?.toLowerCase(), payout: payout?.toLowerCase(), foreign, reason },
    }),
  },
  unstick: {
    takes: ["WALLET", "NONCE"],
    flags: ["network", "reason", "max-fee"],
    needsReason: true,
    ask: ([wallet, nonce], { network, reason, ...flags }) => ({
      path: "/unstick",
      body: { wallet, network, nonce, maxFeeGwei: flags["max-fee"], reason },
    }),
  },
  retry: {
    all: {
      takes: [],
      flags: ["held", "reason"],
      ask: (_given, { held, reason }) => ({ path: "/retry-all", body: { held, reason } }),
    },
    takes: ["PAYOUT"],
    flags: ["reason"],
    ask: ([payout], { reason }) => ({ path: "/retry", body: { payout: payout?.toLowerCase(), reason } }),
  },
  cancel: {
    takes: ["PAYOUT"],
    flags: ["reason"],
    needsReason: true,
    ask: ([payout], { reason }) => ({ path: "/cancel", body: { payout: payout?.toLowerCase(), reason } }),
  },
}

async function main(args: string[]): Promise<string> {
  const { positionals, values: flags } = parseCommandLine(args, { options, allowPositionals: true })
  const [name, ...given] = positionals
  if (flags.help) return usage.trimEnd()
  const one = name === undefined ? undefined : commands[name]
  const command = (flags.all && one?.all) || one
  if (!command) throw new UsageError(name === undefined ? "Name a command." : `There is no command ${name}.`)
  if (given.length !== command.takes.length)
    throw new UsageError(`${name} takes ${command.takes.length === 0 ? "no argument" : command.takes.join(" and ")}.`)
  const stray = Object.keys(flags).find(
    flag => flag !== "json" && !(flag === "all" && one?.all) && !command.flags.includes(flag as keyof Flags),
  )
  if (stray) throw new UsageError(`${name} has no --${stray}.`)
  checkForms(command, given, flags)
  const { path, body } = command.ask(given, flags)
  const answer = await call(command, path, body)
  if (flags.json) return JSON.stringify(answer, undefined, 2)
  return command.print ? command.print(answer.data) : String(answer.said)
}

/**
 * Throws a {@link UsageError} if a reason is missing, or if an argument has a form that the service does not accept.
 */
function checkForms({ takes, needsReason }: Command, given: string[], flags: Flags): void {
  if (flags.foreign && flags.payout !== undefined)
    throw new UsageError("--payout can't be given with --foreign: a foreign transaction belongs to no payout.")
  if (needsReason && !flags.reason) throw new UsageError("--reason is required: why you do this, for the log.")
  if (flags.foreign && !flags.reason) throw new UsageError("--reason is required with --foreign, for the log.")
  const named = [
    ...takes.map((name, i) => [name, given[i]] as const),
    ...Object.entries(flags).map(([name, value]) => [`--${name}`, value] as const),
  ]
  for (const [name, value] of named) {
    const form = forms[name]
    if (form && typeof value === "string" && !new RegExp(form.pattern).test(value.toLowerCase()))
      throw new UsageError(`${name} must be ${form.words.charAt(0).toLowerCase()}${form.words.slice(1)}.`)
  }
}

/**
 * Sends a request to the service and returns its JSON answer. Undefined fields are left out. If the service refuses,
 * throws an Error with the service's message, or a {@link UsageError} if that message is about an argument.
 */
async function call(command: Command, path: string, body: object | undefined): Promise<Record<string, unknown>> {
  const { status, answer } = await askService(path, body)
  if (status < 300) return answer as Record<string, unknown>
  const details: { path: string; message: string }[] = answer.details ?? []
  if (answer.error !== "VALIDATION_ERROR" || details.length === 0) throw new Error(answer.message)
  throw new UsageError(details.map(fault => asArgument(fault, command)).join("\n"))
}

/** The sentence about a field of a request, in which the field has its name on the command line. */
function asArgument({ path, message }: { path: string; message: string }, { takes }: Command): string {
  const positional = path.toUpperCase()
  const flag = path === "maxFeeGwei" ? "--max-fee" : `--${path}`
  return message.replaceAll(`\`${path}\``, takes.includes(positional) ? positional : flag)
}

/** Runs the command with the arguments of the process. */
export const run = (): Promise<void> => runCommand("wallet", main, { clean: plain })
