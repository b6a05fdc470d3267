/** `sluice-verify`: verifies a receipt, a link to one, or a merchant's file, and prints the findings in seven lines. */
import { readFileSync } from "node:fs"
import { parseArgs } from "node:util"
import { describe } from "./describe.ts"
import { type Holding, readHolding, readLinked, verifyHolding } from "./file.ts"
import { fetchLinked } from "./link.ts"
import { openNode } from "./rpc.ts"
import { fetchStored } from "./storage.ts"
import { questions } from "./verify.ts"

const usage = `Verifies receipts, without asking the service that made them.

  sluice-verify FILE|LINK [--rpc URL]... [--indexer URL] [--key-file FILE] [--factory ADDRESS] [--ask LINES] [--json]

  FILE               a receipt that was saved (receipt-….json), or a merchant's receipts (receipts.ndjson); - for the input
  LINK               the address of a receipt, with what follows its #; its bytes are fetched from there within a
                     minute, and no redirect is followed. Or a place in 0G's storage, 0g://ROOT?o=OFFSET&l=LENGTH with its key and
                     --indexer URL. - reads it from the input, too
  --indexer URL      an indexer of 0G's storage, from which the bytes are fetched instead: needs no service. It names nodes;
                     those at addresses that are not public are asked only if the indexer is in a private network
  --batch FILE       the bytes that the link names, where they are kept elsewhere
  --key-file FILE    the key of a receipt in 0G's storage, k= in its link; - for the input
  --key KEY          the same key. Other users of this machine can see it, as they can a LINK: prefer --key-file, and - for a LINK
  --rpc URL          a node of the chain; one for each chain. Ask one that you trust: it says what is on the chain
  --factory ADDRESS  the factory of the service, for receipts of escrows, which name none
  --ask LINES        the lines that must hold, such as 1,3 or 1-7; by default 1-6, and of a merchant's file 1-7
  --json             prints JSON

Exits with 0 when each line that was asked for holds, 1 when one does not or was not checked, 2 for an invalid command line.
`

class UsageError extends Error {}

const options = {
  rpc: { type: "string", multiple: true },
  factory: { type: "string" },
  batch: { type: "string" },
  indexer: { type: "string" },
  key: { type: "string" },
  "key-file": { type: "string" },
  ask: { type: "string" },
  json: { type: "boolean" },
  help: { type: "boolean" },
} as const

async function main(args: string[]): Promise<number> {
  const { values, positionals } = parse(args)
  if (values.help) {
    process.stdout.write(usage)
    return 0
  }
  const [what, ...more] = positionals
  if (what === undefined || more.length > 0) throw new UsageError("Name one file or link.")
  const asked = linesIn(values.ask)
  const nodes = new Map((await Promise.all((values.rpc ?? []).map(named))).map(([id, node]) => [id, node]))
  const holding = await read(what, values)
  const factory = values.factory?.toLowerCase()
  if (factory !== undefined && !/^0x[0-9a-f]{40}$/.test(factory)) throw new UsageError("--factory must be an address.")
  const found = await verifyHolding(holding, { nodes, factory })
  const must = asked ?? (holding.isFile ? [1, 2, 3, 4, 5, 6, 7] : [1, 2, 3, 4, 5, 6])
  const holds = must.every(n => found.lines[n - 1]?.isSo === true)
  const bodies = found.verified.map(({ body }) => body ?? null)
  process.stdout.write(
    values.json
      ? `${JSON.stringify({ holds, asked: must, lines: found.lines, receipts: bodies })}\n`
      : textOf(holding, found, holds),
  )
  return holds ? 0 : 1
}

function parse(args: string[]) {
  try {
    return parseArgs({ args, options, allowPositionals: true })
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : "The command line can't be read.")
  }
}

/** Reads `1,3-5`. */
function linesIn(text: string | undefined): number[] | undefined {
  if (text === undefined) return undefined
  return text.split(",").flatMap(part => {
    const [, from, to = from] = /^([1-7])(?:-([1-7]))?$/.exec(part.trim()) ?? []
    if (from === undefined) throw new UsageError("--ask must name lines from 1 to 7, such as 1,3 or 1-6.")
    return [1, 2, 3, 4, 5, 6, 7].filter(n => n >= Number(from) && n <= Number(to))
  })
}

async function named(url: string) {
  const node = openNode(url)
  return [await node.chainId(), node] as const
}

const LINK = /^(https?|0g):\S+$/

async function read(said: string, from: From): Promise<Holding> {
  if (said === "-" && from["key-file"] === "-") throw new UsageError("Only one of them can be the input.")
  const text = LINK.test(said) ? said : textAt(said)
  const what = text.trim()
  if (!LINK.test(what)) return readHolding(text)
  const { key, root, offset, length } = what.startsWith("0g:") ? placeOf(what, keyOf(from)) : linkOf(what)
  return readLinked(await bytesOf(what, root, from), { key, root, offset, length })
}

/** A file's text, or the input's. */
const textAt = (path: string): string => readFileSync(path === "-" ? 0 : path, "utf8")

function keyOf({ key, "key-file": file }: From): string | undefined {
  if (key !== undefined && file !== undefined) throw new UsageError("Name --key or --key-file, not both.")
  return file === undefined ? key : textAt(file).trim()
}

interface From {
  batch?: string
  indexer?: string
  key?: string
  "key-file"?: string
}

const wholeNumber = (text: string | null): number => (/^\d{1,9}$/.test(text ?? "") ? Number(text) : Number.NaN)

interface Place {
  key: string
  root: string
  offset: number
  length: number
}

function linkOf(what: string): Place {
  const said = new URLSearchParams(new URL(what).hash.slice(1))
  const [key, root, o, l] = ["k", "root", "o", "l"].map(name => said.get(name))
  if (!key || !root || !o || !l) throw new UsageError("The link has no receipt after its #.")
  return { key, root, offset: Number(o), length: Number(l) }
}

/** Reads what an event calls `storageUri`. */
function placeOf(what: string, key: string | undefined): Place {
  const [, root = "", query = ""] = /^0g:\/\/(0x[0-9a-f]{64})\?(.*)$/.exec(what) ?? []
  const said = new URLSearchParams(query)
  const [offset = Number.NaN, length = Number.NaN] = ["o", "l"].map(name => wholeNumber(said.get(name)))
  if (Number.isNaN(offset + length)) throw new UsageError("A place in 0G's storage is 0g://ROOT?o=OFFSET&l=LENGTH.")
  if (key === undefined) throw new UsageError("--key-file is missing: the key of the receipt, k= in its link.")
  return { key, root, offset, length }
}

async function bytesOf(what: string, root: string, { batch, indexer }: From): Promise<Uint8Array> {
  if (batch !== undefined) return readFileSync(batch)
  if (indexer !== undefined) return await fetchStored(indexer, root)
  if (what.startsWith("0g:")) throw new UsageError("--indexer is missing: an indexer of 0G's storage.")
  return await fetchLinked(`${new URL(what).origin}/receipts/${root}`)
}

function textOf(
  { receipts }: Holding,
  { lines, verified }: Awaited<ReturnType<typeof verifyHolding>>,
  holds: boolean,
): string {
  const [only] = verified
  const said = receipts.length === 1 && only?.body ? `${describe(only.body, receipts[0])}\n\n` : ""
  const rows = lines.map(({ n, isSo, words, failing }) => {
    const mark = isSo === undefined ? "·" : isSo ? "✔" : "✗"
    const which =
      failing.length > 0 && receipts.length > 1
        ? ` (line ${failing
            .slice(0, 5)
            .map(i => i + 1)
            .join(", ")} of the file)`
        : ""
    return `${mark} ${n} ${questions[n - 1]}: ${words}${which}`
  })
  return `${said}${rows.join("\n")}\n${holds ? "" : "\nNot everything that was asked holds.\n"}`
}

main(process.argv.slice(2)).then(
  code => {
    process.exitCode = code
  },
  (error: Error) => {
    process.stderr.write(`${error.message}\n`)
    process.exitCode = error instanceof UsageError ? 2 : 1
  },
)
