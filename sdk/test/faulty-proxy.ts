/** A proxy before the service that loses requests or answers, for the paths that a test names. */
import { request as forward, type IncomingHttpHeaders, type IncomingMessage } from "node:http"
import { buffer } from "node:stream/consumers"
import { startServer } from "../../server/test/local-server.ts"

/** What happens to a request: it is lost, its answer is lost, or it is answered 500; undefined: nothing. */
export type Fault = "lost" | "answer lost" | "500" | undefined

/** Starts one; `faultOf` is asked for each request. */
export async function startFaultyProxy(target: string, faultOf: (path: string, headers: IncomingHttpHeaders) => Fault) {
  return await startServer((incoming, answer) => {
    const { method, headers, url = "" } = incoming
    const fault = faultOf(url, headers)
    if (fault === "lost") return void incoming.socket.destroy()
    if (fault === "500") return void answer.writeHead(500, { "content-type": "text/html" }).end("<h1>No</h1>")
    const pass = async (response: IncomingMessage) => {
      const whole = await buffer(response)
      if (fault === "answer lost") return void incoming.socket.destroy()
      answer.writeHead(response.statusCode ?? 500, response.headers).end(whole)
    }
    const onward = forward(target + url, { method, headers }, response => void pass(response))
    onward.on("error", () => incoming.socket.destroy())
    incoming.pipe(onward)
  })
}
