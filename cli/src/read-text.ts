/** Reads text that the command line contains, or that is in a file or comes from the standard input. */
import { readFile } from "node:fs/promises"
import { text } from "node:stream/consumers"
import { Failure } from "./failure.ts"

/** Returns the text itself, the contents of the file for `@FILE`, or the standard input for `-`. */
export async function readText(given: string): Promise<string> {
  if (given === "-") return await text(process.stdin)
  if (!given.startsWith("@")) return given
  return await readFile(given.slice(1), "utf8").catch(error => {
    throw new Failure(`${given.slice(1)} can't be read: ${(error as Error).message}`, 2)
  })
}
