/**
 * Answers on the API's port from the first second of a start until the API itself listens. Migrating a big database
 * takes minutes, and a liveness probe without an answer would kill the process in the middle.
 */
import { randomUUID } from "node:crypto"
import { errorTable } from "../errors.ts"
import { connectionsDropped } from "../metrics.ts"
import { boundedConnections, KEEP_ALIVE_MS, REQUEST_TIMEOUT_MS } from "./connections.ts"
import type { Bounds } from "./held-connections.ts"

export interface StartupServer {
  /** Sets what the start is waiting for, as a clause after "Not ready: ". */
  setPhase(phase: string): void
  /** Frees the port for the API. Connections may be refused for the few milliseconds until the API listens. */
  close(): Promise<void>
}

/**
 * Listens on the API's address, or on that of HEALTH_PORT. `setting` is the name of the port's setting. `GET /healthz`
 * is answered with 200, everything else with 503 `NOT_READY` with `Retry-After`. Callers are limited as in the API;
 * `bounds` replace the default limits. Rejects with an error for the operator if the port can't be used.
 */
export async function openStartupServer(
  { host, port }: { host: string; port: number },
  setting = "PORT",
  bounds?: Bounds,
): Promise<StartupServer> {
  let phase = "the process is starting"
  const connections = boundedConnections(reason => connectionsDropped.inc({ reason }), bounds)
  const timeouts = { requestTimeout: REQUEST_TIMEOUT_MS, keepAliveTimeout: KEEP_ALIVE_MS }
  const server = connections.open((request, response) => {
    const alive = (request.method === "GET" || request.method === "HEAD") && request.url?.split("?")[0] === "/healthz"
    const requestId = randomUUID()
    const { status } = errorTable.NOT_READY
    const body = alive ? { status: "ok" } : { error: "NOT_READY", message: `Not ready: ${phase}.`, requestId }
    response.writeHead(alive ? 200 : status, {
      "content-type": "application/json; charset=utf-8",
      "x-request-id": requestId,
      // The API opens the port afterwards, so no connection may outlive its answer.
      connection: "close",
      ...(alive ? {} : { "retry-after": "1" }),
    })
    response.end(JSON.stringify(body))
  }, timeouts)
  await new Promise<void>((resolve, reject) => server.once("error", reject).listen(port, host, resolve)).catch(
    error => {
      if (error.code === "EADDRINUSE")
        throw new Error(
          `Port ${port} is in use. Stop the program that uses it, or choose another port with ${setting}.`,
        )
      throw new Error(`Can't listen on ${host}:${port}: ${error.message}`)
    },
  )
  return {
    setPhase: next => {
      phase = next
    },
    close: () =>
      new Promise(resolve => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}
