/**
 * A merchant's logo: a small bitmap, recognised by its bytes. SVG is refused, because it can contain scripts and
 * addresses of other servers. Pure.
 */
import { hash } from "node:crypto"

const MAX_BYTES = 65_536
/**
 * The largest width and height. An image of a few bytes can claim a billion pixels, for which a payer's browser would
 * allocate memory.
 */
const MAX_PIXELS_PER_SIDE = 2_048

export interface Logo {
  bytes: Buffer
  type: "image/png" | "image/jpeg" | "image/webp"
  /** SHA-256 in base64url. */
  hash: string
}

interface Size {
  width: number
  height: number
}

/** Reads the image in a `data:` URL, or returns what is wrong in words that complete "must be …". */
export function readLogo(url: string): Logo | string {
  const [, type, text] = /^data:(image\/(?:png|jpeg|webp));base64,([A-Za-z0-9+/]+={0,2})$/.exec(url) ?? []
  if (type === undefined || text === undefined) return "must be a PNG, JPEG or WebP image as a data: URL in base64"
  const bytes = Buffer.from(text, "base64")
  if (bytes.length > MAX_BYTES) return "must be an image of at most 64 KB"
  const reader = readers[type as Logo["type"]]
  const size = reader(bytes)
  if (!size) return `must match its type, ${type}, and must not be animated`
  const sides = [size.width, size.height]
  if (sides.some(side => side < 1 || side > MAX_PIXELS_PER_SIDE))
    return `must be an image of at most ${MAX_PIXELS_PER_SIDE} pixels per side`
  return { bytes, type: type as Logo["type"], hash: hash("sha256", bytes, "base64url") }
}

/**
 * Functions that read the size from a file's header; undefined for another format, a truncated file or an animation.
 */
const readers: Record<Logo["type"], (bytes: Buffer) => Size | undefined> = {
  "image/png": pngSize,
  "image/jpeg": jpegSize,
  "image/webp": webpSize,
}

const PNG = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])
const HEAD_BYTES = 13

/**
 * Walks all chunks to the end, because a file with only a header would show an empty space above the merchant's name.
 */
function pngSize(bytes: Buffer): Size | undefined {
  if (bytes.length < 33 || !bytes.subarray(0, 8).equals(PNG)) return undefined
  if (bytes.readUInt32BE(8) !== HEAD_BYTES || bytes.toString("latin1", 12, 16) !== "IHDR") return undefined
  let hasPixels = false
  for (let at = 33; at + 12 <= bytes.length; at += 12 + bytes.readUInt32BE(at)) {
    const type = bytes.toString("latin1", at + 4, at + 8)
    // This chunk makes a PNG an animation, which people who look at the page can't stop.
    if (type === "acTL") return undefined
    hasPixels ||= type === "IDAT" && bytes.readUInt32BE(at) > 0
    if (type === "IEND")
      return hasPixels ? { width: bytes.readUInt32BE(16), height: bytes.readUInt32BE(20) } : undefined
  }
  return undefined
}

/** The marker after which a JPEG's pixels start. */
const SCAN = Buffer.from([0xff, 0xda])

/** Reads the frame header: the first segment from C0 to CF that is neither a table (C4, CC) nor reserved (C8). */
function jpegSize(bytes: Buffer): Size | undefined {
  if (bytes.length < 4 || bytes.readUInt16BE(0) !== 0xff_d8) return undefined
  for (let at = 2; at + 9 <= bytes.length; at += 2 + bytes.readUInt16BE(at + 2)) {
    if (bytes[at] !== 0xff) return undefined
    const marker = bytes[at + 1] ?? 0
    // Either a fill byte (ITU T.81, B.1.1.2), which decoders skip, or a marker without a length, which does not occur
    // before the frame. Reading a length here would miss the true size.
    if (marker === 0xff || marker <= 0x01 || (marker >= 0xd0 && marker <= 0xd9)) return undefined
    if (marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker) && bytes.includes(SCAN, at))
      return { height: bytes.readUInt16BE(at + 5), width: bytes.readUInt16BE(at + 7) }
  }
  return undefined
}

const ANIMATED = 0x02

function webpSize(bytes: Buffer): Size | undefined {
  const text = (from: number, to: number) => bytes.toString("latin1", from, to)
  if (bytes.length < 30 || text(0, 4) !== "RIFF" || text(8, 12) !== "WEBP") return undefined
  switch (text(12, 16)) {
    case "VP8 ":
      return { width: bytes.readUInt16LE(26) & 0x3fff, height: bytes.readUInt16LE(28) & 0x3fff }
    case "VP8L": {
      const bits = bytes.readUInt32LE(21)
      return { width: (bits & 0x3fff) + 1, height: ((bits >>> 14) & 0x3fff) + 1 }
    }
    case "VP8X": {
      // The flag may be wrong. In an animation, the images are inside the frames, so there is no picture chunk here.
      const chunks = webpChunks(bytes)
      const hasPicture = chunks.includes("VP8 ") || chunks.includes("VP8L")
      if (((bytes[20] ?? 0) & ANIMATED) !== 0 || !hasPicture) return undefined
      return { width: bytes.readUIntLE(24, 3) + 1, height: bytes.readUIntLE(27, 3) + 1 }
    }
    default:
      return undefined
  }
}

/** The names of a WebP's chunks, each of which is padded to an even length. */
function webpChunks(bytes: Buffer): string[] {
  const names: string[] = []
  for (let at = 12; at + 8 <= bytes.length; ) {
    names.push(bytes.toString("latin1", at, at + 4))
    const length = bytes.readUInt32LE(at + 4)
    at += 8 + length + (length % 2)
  }
  return names
}
