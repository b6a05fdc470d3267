/** Verifies a holder's file or link: a receipt, or a merchant's file, for which it shows that none is left out. */
import { fromUtf8 } from "./bytes.ts"
import { mayEnd } from "./end.ts"
import { type ErasedReceipt, type HeadLine, padded, readSigned, type SavedReceipt } from "./format.ts"
import { pathOf, rootOf, rootOfPart, treeOf } from "./merkle.ts"
import { type Asking, type Line, type Verified, verify } from "./verify.ts"

/** A receipt, or a merchant's file. */
export interface Holding {
  receipts: (SavedReceipt | ErasedReceipt)[]
  head: HeadLine | undefined
  /** Whether it is a merchant's file, whose chain can be followed. */
  isFile: boolean
}

/** The answer to a question, with the places of the receipts that fail it. */
export interface Found {
  lines: (Line & { failing: number[] })[]
  verified: Verified[]
}

/** Reads a file; throws a sentence if it is not one of ours. */
export function readHolding(text: string): Holding {
  const lines = text.split("\n").filter(line => line.trim() !== "")
  let parsed: unknown[]
  try {
    // A saved receipt may span several lines.
    parsed = lines[0]?.trim() === "{" ? [JSON.parse(text)] : lines.map(line => JSON.parse(line) as unknown)
  } catch {
    throw new Error("It is not a file of receipts: it is not JSON.")
  }
  const has = (name: string) => (line: unknown) => typeof line === "object" && line !== null && name in line
  const receipts = parsed.filter(has("sluiceReceipt")) as Holding["receipts"]
  const [head] = parsed.filter(has("sluiceHead")) as HeadLine[]
  if (receipts.length + (head ? 1 : 0) !== parsed.length || parsed.length === 0)
    throw new Error("It is not a file of receipts: a line of it is something else.")
  return { receipts, head, isFile: head !== undefined || receipts.length > 1 }
}

/** Reads a receipt from its batch; `link` has the part after `#` of a receipt's address. */
export function readLinked(
  batch: Uint8Array,
  link: { key: string; root: string; offset: number; length: number },
): Holding {
  const { key, root, offset, length } = link
  const tree = treeOf(batch)
  if (rootOf(tree) !== root) throw new Error(`The bytes have another root than ${root}.`)
  const jwe = fromUtf8(batch.subarray(offset, offset + length))
  const path = pathOf(tree, offset, padded(jwe).length)
  const place = { jwe, root, offset, size: batch.length, path, keyBlock: null, anchorBlock: null }
  return { receipts: [{ sluiceReceipt: 1, ...place, key, facts: [], terms: [] }], head: undefined, isFile: false }
}

/** Verifies everything in the file. */
export async function verifyHolding({ receipts, head, isFile }: Holding, asking: Asking): Promise<Found> {
  const verified: Verified[] = []
  for (const each of receipts) verified.push("erased" in each ? erased(each) : await verify(each, asking))
  // A receipt that names no factory is signed by the service's own key, if others in the file prove whose that is.
  const proven = new Map<string, string>()
  for (const { body, kid, lines } of verified)
    for (const { factory } of body?.transfers ?? [])
      if (kid && factory && [1, 2, 5, 6].every(n => lines[n - 1]?.isSo)) proven.set(kid, factory)
  for (const [i, each] of receipts.entries()) {
    const { body, kid } = verified[i] ?? {}
    const factory = proven.get(kid ?? "")
    if (!("erased" in each) && factory && body?.transfers.every(moved => moved.factory === undefined))
      verified[i] = await verify(each, { ...asking, factory })
  }
  const chain = isFile
    ? await chainOf({ receipts, head, isFile }, verified, asking)
    : { isSo: undefined, words: "not checked: it needs the merchant's file", failing: [] }
  const lines = [1, 2, 3, 4, 5, 6].map(n => together(n, verified))
  return { lines: [...lines, { n: 7, ...chain }], verified }
}

/** The only answer about a receipt that nobody can open: its place. */
function erased({ jwe, root, offset, size, path }: ErasedReceipt): Verified {
  const isThere = () => rootOfPart(padded(jwe), offset, size, path) === root
  let isSo: boolean
  try {
    isSo = isThere()
  } catch {
    isSo = false
  }
  const none = { isSo: undefined, words: "not checked: it was erased" }
  const batch = { isSo, words: isSo ? "it is there" : "another root follows from its bytes and path" }
  return {
    body: undefined,
    hash: undefined,
    lines: [none, none, batch, none, none, none].map((line, i) => ({ n: i + 1, ...line })),
  }
}

/** One answer for all receipts: no if any is no, not checked if none was. */
function together(n: number, verified: readonly Verified[]): Line & { failing: number[] } {
  const lines = verified.map(({ lines }) => lines[n - 1])
  const failing = lines.flatMap((line, i) => (line?.isSo === false ? [i] : []))
  const [only] = lines
  if (lines.length === 1 && only) return { ...only, failing }
  const held = lines.filter(line => line?.isSo).length
  const open = lines.filter(line => line?.isSo === undefined)
  const others = open.length === 0 ? "" : `; ${open.length} ${open[0]?.words ?? ""}`
  const first = lines[failing[0] ?? -1]
  const words =
    failing.length > 0
      ? `${failing.length} of ${lines.length}: ${first?.words ?? ""}`
      : `${held} of ${lines.length}${others}`
  // Nothing is said about the others if no receipt was checked.
  return { n, isSo: failing.length > 0 ? false : held > 0 ? true : undefined, words, failing }
}

type Chain = Pick<Line, "isSo" | "words"> & { failing: number[] }

/** Follows the places and hashes from one receipt to the next, up to the place that the service signed as the last. */
async function chainOf({ receipts, head }: Holding, verified: readonly Verified[], asking: Asking): Promise<Chain> {
  const no = (words: string, i: number): Chain => ({ isSo: false, words, failing: [i] })
  const end = head ? await readSigned(head.jws).catch(() => undefined) : undefined
  if (end?.body.type !== "head") return no("the file has no signed last line: its end may be missing", receipts.length)
  const { first, last, whole, merchant } = end.body
  if (!whole) return { isSo: undefined, words: "not checked: it is a file of one type of receipts", failing: [] }
  let before: { seq: number; hash: string | undefined } = { seq: first - 1, hash: undefined }
  let erasedOnes = 0
  for (const [i, each] of receipts.entries()) {
    const { body, hash, kid } = verified[i] ?? {}
    const seq = "erased" in each ? each.seq : body?.seq
    if (seq === undefined) return no("a receipt can't be read, so nothing shows that it follows", i)
    if (seq !== before.seq + 1)
      return no(`after the receipt ${before.seq} comes ${seq}: one is missing, or twice there`, i)
    if (body && body.merchant !== merchant) return no(`the receipt ${seq} is another merchant's`, i)
    if (body && kid && before.hash !== undefined && body.prev !== before.hash)
      return no(`the receipt ${seq} does not follow the one before it`, i)
    if (body && seq === 1 && body.prev !== null) return no("the first receipt follows another", i)
    if ("erased" in each) erasedOnes++
    before = { seq, hash: "erased" in each ? each.hash : hash }
  }
  if (before.seq !== last)
    return no(`the file ends at the receipt ${before.seq}, and the last one is ${last}`, receipts.length)
  // Of a file that nobody can open, no receipt says whose key its last line should have.
  const isOpen = erasedOnes < receipts.length
  const asOf = isOpen
    ? await mayEnd({ kid: end.kid, at: end.body.at, keyBlock: head?.keyBlock }, verified, asking)
    : undefined
  if (asOf && !asOf.isSo) return { ...asOf, failing: asOf.isSo === undefined ? [] : [receipts.length] }
  const noted = erasedOnes === 0 ? "" : `; ${erasedOnes} were erased, and only their holders can read them`
  return {
    isSo: true,
    words: `${receipts.length} receipts, ${first} to ${last}, and none is left out${asOf?.words ?? ""}${noted}`,
    failing: [],
  }
}
