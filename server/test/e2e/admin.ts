/** What `script/wallet` asks, without a process for each question: a condition is asked for again and again. */
import { request } from "node:http"
import { text } from "node:stream/consumers"
import { socketPath } from "../../src/operations/operator/socket.ts"

/** What the service of a data folder answers on its socket: `/wallets` or `/held`. Throws where there is none. */
// biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects, and fails when it is not there.
export async function askAdmin(dataDir: string, path: "/wallets" | "/held"): Promise<any[]> {
  const answer = await new Promise<NodeJS.ReadableStream>((resolve, reject) =>
    request({ socketPath: socketPath(dataDir), path }, resolve)
      .once("error", reject)
      .end(),
  )
  return JSON.parse(await text(answer)).data
}
