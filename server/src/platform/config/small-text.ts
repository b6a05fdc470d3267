/** Reads the files that settings name. */
import { readFileSync } from "node:fs"

const MAX_BYTES = 64 * 1024

/** The text of a small file; throws an Error whose message completes "NAME …". */
export function smallText(path: string): string {
  try {
    const bytes = readFileSync(path)
    if (bytes.length <= MAX_BYTES) return bytes.toString("utf8")
  } catch (error) {
    throw new Error(`can't be read: ${(error as NodeJS.ErrnoException).code ?? "unknown fault"}`)
  }
  throw new Error("is too large for this kind of file")
}
