/** Text of the command line that may be in a file or come from the standard input. */
import { readFile } from "node:fs/promises"
import { text } from "node:stream/consumers"
import { Failure } from "./failure.ts"

/** The text itself; of `@FILE` the file's, of `-` the standard input's. */
export async function readText(given: string): Promise<string> {
  if (given === "-") return await text(process.stdin)
  if (!given.startsWith("@")) return given
  return await readFile(given.slice(1), "utf8").catch(error => {
    throw new Failure(`${given.slice(1)} can't be read: ${(error as Error).message}`, 2)
  })
}
