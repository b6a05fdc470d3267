/**
 * Reads JSON from bytes in slices. A large answer never blocks the process for long or grows to many times its size in
 * memory. An RPC endpoint may send anything as its answer. Measured: 90 packed bytes became 32 MB of `{},{},…` and half
 * a gigabyte of objects. One `JSON.parse` of 32 MB blocks a process for a third of a second.
 *
 * Containers larger than a slice are assembled from parts, each parsed by `JSON.parse`; small ones are parsed whole.
 * Equal strings in large answers are shared, because thousands of logs repeat the same addresses and hashes.
 */
import { setImmediate as nextTurn } from "node:timers/promises"

/** Bytes that are parsed in one step, which takes well under a millisecond. */
const SLICE_BYTES = 64 * 1024
/** The longest stretch of work before other work gets a turn. */
const TURN_MS = 8
/** No answer of a node nests deeper than ten. */
const MAX_DEPTH = 32
/**
 * An object takes at least 56 bytes in memory, however short it is in the answer. A log has two objects in 500 bytes.
 */
const BYTES_PER_CONTAINER = 64
/** A value takes 8 bytes or more. The shortest values that nodes send in large numbers take 20 bytes of the answer. */
const BYTES_PER_VALUE = 8
/** The maximum number of members of an object, and of bytes in a name: far more than any node sends. */
const MAX_MEMBERS = 1_000
const MAX_NAME_BYTES = 1_000
/** This many containers or values are accepted in any answer. */
const FREE = 4_096
/** The maximum length of a string that is shared, and the maximum number of such strings. */
const SHARED_LENGTH = 80
const MAX_SHARED = 100_000

/** The answer has a shape that no node sends, and that only serves to fill memory. */
export class UselessAnswer extends Error {}

/** The answer is not JSON, or is incomplete: a maintenance page, or an answer that was cut off. */
class NotJson extends Error {}

/** An array or object that is being read. */
interface Frame {
  isArray: boolean
  /** The position of its opening bracket. */
  start: number
  /** The position after the last comma, or after the opening bracket. */
  member: number
  /** How many commas it has. */
  commas: number
  /** Undefined while the container is small: its bytes are then kept and parsed whole. */
  value: unknown[] | Record<string, unknown> | undefined
  /** Whether the member before this position is already in `value`, so that only a comma can follow. */
  isAttached: boolean
  /** In an opened object: the key of the opened child. */
  key: string
}

/**
 * Reads one JSON value from chunks of bytes, giving other work a turn every few milliseconds. Throws
 * {@link UselessAnswer} for a shape that only fills memory, and another error for anything that is not JSON.
 */
export async function readJson(chunks: Iterable<Uint8Array> | AsyncIterable<Uint8Array>): Promise<unknown> {
  const reader = jsonReader()
  let since = performance.now()
  for await (const chunk of chunks)
    for (let at = 0; at < chunk.length; at += SLICE_BYTES) {
      reader.add(chunk.subarray(at, at + SLICE_BYTES))
      if (performance.now() - since < TURN_MS) continue
      await nextTurn()
      since = performance.now()
    }
  return reader.end()
}

const QUOTE = 0x22
const BACKSLASH = 0x5c
const COMMA = 0x2c
const OPEN_ARRAY = 0x5b
const CLOSE_ARRAY = 0x5d
const OPEN_OBJECT = 0x7b
const CLOSE_OBJECT = 0x7d

/** Finds the brackets, commas and strings among the bytes, and counts the objects and values that they will become. */
function jsonReader() {
  const waiting = waitingBytes()
  const builder = valueBuilder(waiting)
  let at = 0
  let isInString = false
  let containers = 0
  let values = 0

  function add(chunk: Uint8Array): void {
    waiting.add(chunk)
    while (at < waiting.end()) {
      if (isInString && !leaveString()) break
      step(waiting.byteAt(at))
      at++
    }
    if (containers > FREE + at / BYTES_PER_CONTAINER || values > FREE + at / BYTES_PER_VALUE)
      throw new UselessAnswer("the answer has more values than its size explains")
    waiting.drop(builder.parsedTo())
  }

  /** Goes to the quote that ends the string; false if it has not arrived. */
  function leaveString(): boolean {
    for (let quote = waiting.find(QUOTE, at); quote >= 0; quote = waiting.find(QUOTE, quote + 1)) {
      let escapes = 0
      while (waiting.byteAt(quote - 1 - escapes) === BACKSLASH) escapes++
      if (escapes % 2 === 1) continue
      at = quote + 1
      isInString = false
      return at < waiting.end()
    }
    // The last bytes may escape a quote that comes next, so they are kept until the string has ended.
    at = waiting.end()
    return false
  }

  function step(byte: number): void {
    if (byte === QUOTE) isInString = true
    else if (byte === OPEN_ARRAY || byte === OPEN_OBJECT) {
      containers++
      builder.begin(at, byte === OPEN_ARRAY)
    } else if (byte === COMMA) {
      values++
      builder.comma(at)
    } else if (byte === CLOSE_ARRAY || byte === CLOSE_OBJECT) builder.close(at, byte === CLOSE_ARRAY)
  }

  const end = (): unknown => {
    if (isInString || builder.isOpen()) throw new NotJson("the answer is cut off")
    const root = builder.root()
    return root ? root.value : parse(waiting.text(0, waiting.end()))
  }
  return { add, end }
}

/** Assembles the value from the positions of its brackets and commas. */
function valueBuilder(waiting: WaitingBytes) {
  const frames: Frame[] = []
  /** How many frames are opened, counted from the outermost. */
  let opened = 0
  /** Everything up to this position is in the value of an opened frame. */
  let parsedTo = 0
  let root: { value: unknown } | undefined
  const share = sharedStrings()

  function begin(at: number, isArray: boolean): void {
    if (root) throw new NotJson("the answer is not JSON")
    if (frames.length >= MAX_DEPTH) throw new UselessAnswer("the answer is nested too deeply")
    frames.push({ isArray, start: at, member: at + 1, commas: 0, value: undefined, isAttached: false, key: "" })
  }

  function comma(at: number): void {
    const frame = frames.at(-1)
    if (!frame) throw new NotJson("the answer is not JSON")
    countName(frame)
    if (frame.value) {
      if (frame.isAttached || at - parsedTo > SLICE_BYTES) takeMembers(frame, at)
    } else if (at - frame.start > SLICE_BYTES) {
      open()
      takeMembers(frame, at)
    }
    frame.member = at + 1
  }

  /** Opens all frames that are not open yet. In each frame, the members before its child are complete. */
  function open(): void {
    for (; opened < frames.length; opened++) {
      const frame = frames[opened] as Frame
      const parent = frames[opened - 1]
      if (parent) {
        if (parent.member > parsedTo) takeMembers(parent, parent.member - 1)
        const before = waiting.text(parsedTo, frame.start).trim()
        if (!parent.isArray) parent.key = keyIn(before)
        else if (before !== "") throw new NotJson("the answer is not JSON")
      }
      frame.value = frame.isArray ? [] : {}
      parsedTo = frame.start + 1
    }
  }

  /** Parses the members of an opened frame up to a comma or its end, and moves past that. */
  function takeMembers(frame: Frame, to: number): void {
    const text = waiting.text(parsedTo, to)
    parsedTo = to + 1
    const { isAttached } = frame
    frame.isAttached = false
    if (!isAttached) addMembers(frame.value, text, share)
    else if (text.trim() !== "") throw new NotJson("the answer is not JSON")
  }

  function close(at: number, isArray: boolean): void {
    const frame = frames.pop()
    if (!frame || frame.isArray !== isArray) throw new NotJson("the answer is not JSON")
    if (!frame.value) {
      if (frames.length === 0) root = { value: parse(waiting.text(frame.start, at + 1)) }
      return
    }
    takeMembers(frame, at)
    opened--
    const parent = frames.at(-1)
    if (!parent) root = { value: frame.value }
    else addChild(parent, frame.value)
  }

  return { begin, comma, close, isOpen: () => frames.length > 0, root: () => root, parsedTo: () => parsedTo }
}

function countName(frame: Frame): void {
  if (++frame.commas > MAX_MEMBERS && !frame.isArray) throw new UselessAnswer("the answer has too many names")
}

function addMembers(value: Frame["value"], text: string, share: (value: unknown) => unknown): void {
  if (Array.isArray(value)) for (const each of parse(`[${text}]`) as unknown[]) value.push(share(each))
  else if (value)
    for (const [key, each] of Object.entries(parse(`{${text}}`) as object)) setMember(value, key, share(each))
}

function addChild(parent: Frame, child: unknown): void {
  if (Array.isArray(parent.value)) parent.value.push(child)
  else if (parent.value) setMember(parent.value, parent.key, child)
  parent.isAttached = true
}

/** Sets a member as `JSON.parse` does; the name `__proto__`, which no node sends, is left out. */
function setMember(object: Record<string, unknown>, key: string, value: unknown): void {
  if (key !== "__proto__") object[key] = value
}

function keyIn(text: string): string {
  if (text.length > MAX_NAME_BYTES) throw new UselessAnswer("the answer has a name that is too long")
  const [, key] = /^("(?:[^"\\]|\\.)*")\s*:$/s.exec(text) ?? []
  if (key === undefined) throw new NotJson("the answer is not JSON")
  return parse(key) as string
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new NotJson("the answer is not JSON")
  }
}

type WaitingBytes = ReturnType<typeof waitingBytes>

/** Bytes that were not parsed yet, by their positions in the whole answer. */
function waitingBytes() {
  let bytes = Buffer.allocUnsafe(2 * SLICE_BYTES)
  /** The position of the first byte that is kept, where it is stored, and how many bytes are kept. */
  let first = 0
  let from = 0
  let length = 0
  return {
    end: () => first + length,
    byteAt: (at: number) => bytes[from + at - first] as number,
    find: (byte: number, at: number) => {
      const found = bytes.subarray(from, from + length).indexOf(byte, at - first)
      return found < 0 ? -1 : found + first
    },
    text: (start: number, end: number) => bytes.toString("utf8", from + start - first, from + end - first),
    drop: (before: number) => {
      const gone = Math.max(0, before - first)
      first += gone
      from += gone
      length -= gone
    },
    add: (chunk: Uint8Array) => {
      if (from + length + chunk.length > bytes.length) {
        // Doubles the buffer if less than half would be free, so that a long string is not copied for each chunk.
        const isSmall = 2 * (length + chunk.length) <= bytes.length
        const next = isSmall ? bytes : Buffer.allocUnsafe(2 * (length + chunk.length))
        bytes.copy(next, 0, from, from + length)
        bytes = next
        from = 0
      }
      bytes.set(chunk, from + length)
      length += chunk.length
    },
  }
}

/** Returns a function that replaces the strings in a value by equal ones that it has already seen. */
function sharedStrings() {
  const known = new Map<string, string>()
  const share = (value: unknown): unknown => {
    if (typeof value === "string") {
      if (value.length > SHARED_LENGTH) return value
      const same = known.get(value)
      if (same !== undefined) return same
      if (known.size < MAX_SHARED) known.set(value, value)
      return value
    }
    if (Array.isArray(value)) for (let i = 0; i < value.length; i++) value[i] = share(value[i])
    else if (typeof value === "object" && value !== null)
      for (const key of Object.keys(value))
        (value as Record<string, unknown>)[key] = share((value as Record<string, unknown>)[key])
    return value
  }
  return share
}
