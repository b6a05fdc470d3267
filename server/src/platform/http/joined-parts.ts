/**
 * Joins the parts of a stream. Node creates a Buffer of 114 bytes (measured) for each chunk that it parses, and a chunk
 * may be one byte.
 */

export interface JoinedParts {
  /**
   * Appends a copy of a part. Returns false, and copies nothing, if the parts must be taken first or the part is too
   * large.
   */
  add(part: Uint8Array): boolean
  /** Returns the bytes added since the last call; undefined for none. */
  take(): Buffer | undefined
}

/**
 * Joins parts in blocks of `blockBytes`. After a take, the same block is filled further. With a new block for each
 * read, a stream of single bytes would hold a block for each byte.
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
