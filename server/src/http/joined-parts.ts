/** The parts of a stream, joined: Node makes a Buffer of 114 bytes (measured) of each chunk that it parses, and a chunk may be one byte. */

export interface JoinedParts {
  /** Copies a part to those before it; answers false, and copies nothing, where they have to be taken first or it is too large. */
  add(part: Uint8Array): boolean
  /** What was added since the last time, or undefined for nothing. */
  take(): Buffer | undefined
}

/**
 * Joins parts in blocks of `blockBytes`. A block is filled further after it was taken from: with one for each read, a byte at a
 * time would hold a block at a time.
 *
 *     const parts = joinedParts(4)
 *     parts.add(Buffer.from("ab")) // true
 *     parts.add(Buffer.from("c")) // true
 *     parts.add(Buffer.from("de")) // false: it does not fit
 *     parts.take() // abc
 */
export function joinedParts(blockBytes: number): JoinedParts {
  let block: Buffer | undefined
  let taken = 0
  let filled = 0
  return {
    add: part => {
      if (part.length > blockBytes) return false
      if (!block || filled + part.length > blockBytes) {
        if (taken < filled) return false
        block = Buffer.allocUnsafe(blockBytes)
        taken = filled = 0
      }
      block.set(part, filled)
      filled += part.length
      return true
    },
    take: () => {
      if (taken === filled) return undefined
      const part = block?.subarray(taken, filled)
      taken = filled
      return part
    },
  }
}
