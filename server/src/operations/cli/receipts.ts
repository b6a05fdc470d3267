/**
 * `sluice receipts`: shows what storing receipts on 0G costs, waits until 0G has all of them, or makes a new signing
 * key.
 */
import { setTimeout as sleep } from "node:timers/promises"
import type { showStorage } from "../operator/show-storage.ts"
import { askService, plain } from "./ask-service.ts"
import { parseCommandLine, runCommand, UsageError } from "./run-command.ts"

const usage = `Prints what storing receipts on 0G costs, waits until 0G has all of them, and replaces the key that signs
receipts. \`sluice receipts list\` and \`export\` are merchants' commands.

  sluice receipts cost            the files of receipts, what their storage has cost, and what the rest will cost at today's price
  sluice receipts migrate --to 0g waits until 0G has every file, including those from before RECEIPT_STORE=0g, and prints how
                                  many it has
  sluice receipts rotate-key [--network N] --reason R
                                  makes a new key that signs receipts. The previous key signs until the new one is registered on the
                                  chain. The previous key is revoked there when everything that it signed is written

  --json   the service's answer as JSON
  --help   this text

The running service pays and uploads. This command asks the service, so it needs the service's DATA_DIR. A file stays in
DATA_DIR, and its root is the same in both stores: no receipt, link or anchor changes.
Exits with 0 when the command succeeded, 1 when the service refused, 2 for an invalid command line, 3 when the service
can't be reached.
`

type Shown = Awaited<ReturnType<typeof showStorage>>

/** The options of each command, except --json. */
const commands = new Map([
  ["cost", [] as string[]],
  ["migrate", ["to"]],
  ["rotate-key", ["network", "reason"]],
])

/** The interval between requests to the service while files wait. */
const EVERY_MS = 2_000

async function main(args: string[]): Promise<string> {
  const text = { type: "string" } as const
  const options = { to: text, network: text, reason: text, json: { type: "boolean" } } as const
  const { positionals, values: flags } = parseCommandLine(args, { options, allowPositionals: true })
  if (flags.help) return usage.trimEnd()
  const [name, ...more] = positionals
  if (name === undefined) throw new UsageError("Name a command.")
  const takes = commands.get(name)
  if (!takes) throw new UsageError(`There is no command ${name}.`)
  if (more.length > 0) throw new UsageError(`${name} takes no argument.`)
  const stray = Object.keys(flags).find(flag => flag !== "json" && !takes.includes(flag))
  if (stray) throw new UsageError(`${name} has no --${stray}.`)
  if (name === "rotate-key") return await rotated(flags)
  if (name === "migrate" && flags.to !== "0g")
    throw new UsageError("migrate needs --to 0g: all files stay in DATA_DIR in any case.")
  const shown = name === "migrate" ? await migrated() : await ask()
  return flags.json ? JSON.stringify(shown, undefined, 2) : name === "migrate" ? progress(shown) : costs(shown)
}

async function rotated({
  network,
  reason,
  json,
}: {
  network?: string | undefined
  reason?: string | undefined
  json?: boolean | undefined
}): Promise<string> {
  if (!reason) throw new UsageError("--reason is required: why you do this, for the log.")
  const { status, answer } = await askService("/rotate-receipt-key", { network, reason })
  if (status > 299) throw new Error(answer.message)
  return json ? JSON.stringify(answer, undefined, 2) : answer.said
}

async function ask(): Promise<Shown> {
  const { status, answer } = await askService("/storage")
  if (status > 299) throw new Error(answer.message)
  return answer.data
}

/** Returns the service's figures once 0G has every file, and prints each change until then. */
async function migrated(): Promise<Shown> {
  for (let before = ""; ; await sleep(EVERY_MS)) {
    const shown = await ask()
    if (shown.store !== "0g")
      throw new Error(
        "RECEIPT_STORE is file. Set it to 0g, with ZEROG_RPC, ZEROG_FLOW, ZEROG_INDEXER and a key, and restart the service: it then stores all existing receipts.",
      )
    if (shown.stored === shown.files) return shown
    const now = progress(shown)
    if (now !== before) process.stderr.write(`${plain(now)}\n`)
    before = now
  }
}

function progress({ files, stored, held }: Shown): string {
  const reasons = Object.entries(held).map(([reason, n]) => `${n} ${reason}`)
  return `0G has ${stored} of ${files} files.${reasons.length > 0 ? ` Held: ${reasons.join(", ")}.` : ""}`
}

function costs(shown: Shown): string {
  const { store, files, receipts, stored, storedReceipts, calls, fees, gas, each, price, unpaid, unpaidFees } = shown
  return [
    `Files: ${files} (receipts: ${receipts}). In 0G: ${stored} (receipts: ${storedReceipts}).`,
    `Paid: ${fees} for storage and ${gas} for gas, in ${calls} ${calls === 1 ? "call" : "calls"}${each === null ? "" : `; together ${each} a receipt`}.`,
    ...(store === "file" ? ["RECEIPT_STORE is file: nothing is paid."] : []),
    ...(store === "0g" && unpaid > 0
      ? [
          unpaidFees === null
            ? `Not paid for: ${unpaid}. 0G's nodes do not report the price.`
            : `Not paid for: ${unpaid}, which will cost ${unpaidFees} at today's price, plus gas.`,
        ]
      : []),
    ...(price === null ? [] : [`0G's price for 256 bytes is ${price}.`]),
    ...(store === "0g" ? ["All amounts are in 0G's native token."] : []),
  ].join("\n")
}

/** Runs the command with the arguments of the process. */
export const run = (): Promise<void> => runCommand("receipts", main, { clean: plain })
