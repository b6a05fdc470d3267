/** `sluice wallet`: shows an operator the service's wallets and acts on them, by requests to the running service. */
import { request } from "node:http"
import { userInfo } from "node:os"
import { parseArgs } from "node:util"
import { readDataDir } from "../config/data-dir.ts"
import { socketPath } from "../operator/socket.ts"
import { heldText, logText, walletsText } from "./print-wallets.ts"

const usage = `Shows, halts and repairs the wallets that the running service pays from.

  sluice wallet show [--network N]        the state of each wallet, and its transactions in flight
  sluice wallet held                      the payouts that are held, and why
  sluice wallet log                       manual actions: what, by whom and why
  sluice wallet halt WALLET --reason R    stops signing and sending at once
  sluice wallet resume WALLET --reason R [--books-compared] [--nothing-paid]
                                          lets it sign and send again; refused while a nonce on the chain is unexplained
  sluice wallet adopt HASH [--payout ID]  adopts a transaction of ours that the database does not know
  sluice wallet adopt --all WALLET        finds what the wallet sent that the database does not know, and adopts it
  sluice wallet adopt HASH --foreign --reason R
                                          the same for a transaction that pays nothing of ours
  sluice wallet unstick WALLET NONCE --reason R [--max-fee GWEI]
                                          replaces a nonce that can't be mined by an empty transfer
  sluice wallet retry PAYOUT [--reason R]
                                          retries a held payout now; it still has to pass every check
  sluice wallet retry --all [--held WHY] [--reason R]
                                          retries all held payouts now, or those held for one reason
  sluice wallet cancel PAYOUT --reason R  cancels a payout that has no nonce; its money stays in its deposit

  WALLET             payout, relay, or an address; with --network N where there are several
  --books-compared   you have compared what left the deposits so far with the payouts
  --nothing-paid     you have made sure that no other earlier transaction of the wallet paid a payout that waits here
  --json             the service's answer as JSON
  --help             this text

It needs the DATA_DIR of the service and permission to open admin.sock in it. docs/wallet.md says when to use what.
Exits with 0 when it was done, 1 when it was refused, 2 for a wrong command line, 3 when the service can't be reached.
`

/** The command line is wrong. */
class UsageError extends Error {}
/** No service answers on the socket. */
class Unreachable extends Error {}

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
  help: { type: "boolean" },
} as const

type Flags = ReturnType<typeof parsed>["values"]

const parsed = (args: string[]) => parseArgs({ args, options, allowPositionals: true })

/** A command: the names of its arguments, the flags that it takes, and its request. */
interface Command {
  takes: string[]
  flags: (keyof Flags)[]
  /** The command's form with --all. */
  all?: Command
  ask: (given: string[], flags: Flags) => { path: string; body?: object }
  // biome-ignore lint/suspicious/noExplicitAny: what the service answers, which prints itself.
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
    ask: ([wallet], { network, reason }) => ({ path: "/halt", body: { wallet, network, reason } }),
  },
  resume: {
    takes: ["WALLET"],
    flags: ["network", "reason", "books-compared", "nothing-paid"],
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
    ask: ([payout], { reason }) => ({ path: "/cancel", body: { payout: payout?.toLowerCase(), reason } }),
  },
}

async function main(): Promise<string> {
  const { positionals, values: flags } = read(process.argv.slice(2))
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
  const { path, body } = command.ask(given, flags)
  const answer = await call(path, body)
  if (flags.json) return JSON.stringify(answer, undefined, 2)
  return command.print ? command.print(answer.data) : String(answer.said)
}

function read(args: string[]) {
  try {
    return parsed(args)
  } catch (error) {
    throw new UsageError((error as Error).message)
  }
}

/**
 * Sends a request to the service and returns its JSON answer; undefined fields are left out of the request. Throws an
 * Error with the service's message when it refuses.
 */
async function call(path: string, body: object | undefined): Promise<Record<string, unknown>> {
  const socket = socketPath(readDataDir())
  const { status, text } = await exchange(socket, path, body && JSON.stringify({ ...body, by: userInfo().username }))
  const answer = JSON.parse(text)
  if (status < 300) return answer
  const details: { path: string; message: string }[] = answer.details ?? []
  throw new Error([answer.message, ...details.map(({ message }) => `  ${message}`)].join("\n"))
}

function exchange(socketPath: string, path: string, body?: string): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const sent = request(
      {
        socketPath,
        path,
        method: body === undefined ? "GET" : "POST",
        headers: body === undefined ? {} : { "content-type": "application/json" },
      },
      async response => {
        let text = ""
        for await (const chunk of response) text += chunk
        resolve({ status: response.statusCode ?? 0, text })
      },
    )
    sent.once("error", (error: NodeJS.ErrnoException) =>
      reject(
        new Unreachable(
          error.code === "EACCES"
            ? `You may not open ${socketPath}. Run this as the user of the service.`
            : `No service answers at ${socketPath} (${error.code}). Is it running, with this DATA_DIR?`,
        ),
      ),
    )
    sent.end(body)
  })
}

/** A contract's reason for a failure can be any text. It must not move the cursor, or colour other output. */
const plain = (text: string): string => text.replace(/(?!\n)\p{C}/gu, "\ufffd")

/** Runs the command with the arguments of the process. */
export const run = (): Promise<void> =>
  main().then(
    said => void process.stdout.write(`${plain(said)}\n`),
    (error: Error) => {
      const help = error instanceof UsageError ? "\nRun `sluice wallet --help` for its usage." : ""
      process.stderr.write(`${plain(error.message)}${help}\n`)
      process.exitCode = error instanceof UsageError ? 2 : error instanceof Unreachable ? 3 : 1
    },
  )
