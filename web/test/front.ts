/** What stands between a browser and a service: a proxy over http or https that records, and a site of somebody else. */
import { execFileSync } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { createServer, type IncomingMessage, type RequestListener, request, type Server } from "node:http"
import { createServer as createSecureServer } from "node:https"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"

/** A key, and a certificate that nobody signed; browsers of the tests are not to mind. */
export function newCertificate(): { key: Buffer; cert: Buffer } {
  const dir = mkdtempSync(join(tmpdir(), "sluice-front-"))
  const [key, cert] = ["key.pem", "cert.pem"].map(name => join(dir, name)) as [string, string]
  const made = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
  execFileSync("openssl", ["req", "-x509", ...made, "-keyout", key, "-out", cert, "-subj", "/CN=test"], {
    stdio: "ignore",
  })
  const pair = { key: readFileSync(key), cert: readFileSync(cert) }
  rmSync(dir, { recursive: true })
  return pair
}

export interface Site {
  port: number
  close(): Promise<void>
}

/** Serves on a free loopback port, over https where there is a certificate. */
export async function serve(answer: RequestListener, tls?: { key: Buffer; cert: Buffer }): Promise<Site> {
  const server: Server = tls ? (createSecureServer(tls, answer) as unknown as Server) : createServer(answer)
  await new Promise<void>(resolve => server.listen(0, "127.0.0.1", resolve))
  return {
    port: (server.address() as AddressInfo).port,
    close: () =>
      new Promise(resolve => {
        server.closeAllConnections()
        server.close(() => resolve())
      }),
  }
}

/** A request that passed, and its answer. */
export interface Passed {
  method: string
  path: string
  status: number
  /** Whether it had the cookie of a session. */
  hasSession: boolean
  site: string | undefined
}

/** A proxy that passes everything on to a service, with the Host as it came. */
export async function frontOf(
  target: string,
  tls?: { key: Buffer; cert: Buffer },
): Promise<Site & { passed: Passed[] }> {
  const passed: Passed[] = []
  const { hostname, port } = new URL(target)
  const note = ({ method = "", url = "", headers }: IncomingMessage, status: number) =>
    passed.push({
      method,
      path: url,
      status,
      hasSession: /(^|; )(__Host-sluice|sluice-dev)=/.test(headers.cookie ?? ""),
      site: headers["sec-fetch-site"] as string | undefined,
    })
  const site = await serve((from, to) => {
    const { method, url, headers } = from
    const onward = request({ hostname, port, method, path: url, headers }, answer => {
      const { statusCode = 0 } = answer
      note(from, statusCode)
      to.writeHead(statusCode, answer.rawHeaders)
      answer.pipe(to)
    })
    onward.on("error", () => to.destroy())
    from.pipe(onward)
  }, tls)
  return { ...site, passed }
}
