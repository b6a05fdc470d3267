import { execFileSync } from "node:child_process"
import { once } from "node:events"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { createServer, type Server } from "node:tls"
import { afterAll, beforeAll, expect, it } from "vitest"
import { readSettings } from "../../platform/config/read-settings.ts"
import { checkCertificate } from "./check-certificate.ts"

const DAY_MS = 86_400_000
const never = new AbortController().signal
let dir: string
const servers: Server[] = []

/** The address of a server whose certificate is valid for so many days from now on. */
async function serverOf(days: number): Promise<string> {
  const [key, cert] = ["key", "pem"].map(end => join(dir, `${days}.${end}`)) as [string, string]
  const ec = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
  const args = ["req", "-x509", ...ec, "-days", `${days}`, "-keyout", key, "-out", cert, "-subj", "/CN=localhost"]
  execFileSync("openssl", args, { stdio: "ignore" })
  const server = createServer({ key: readFileSync(key), cert: readFileSync(cert) }, socket =>
    socket.on("error", () => {}),
  )
  servers.push(server)
  await once(server.listen(0, "127.0.0.1"), "listening")
  return `https://127.0.0.1:${(server.address() as AddressInfo).port}`
}

const found = async (baseUrl: string, inDays: number) =>
  (await checkCertificate({ ...readSettings({}), baseUrl }, () => new Date(Date.now() + inDays * DAY_MS), never)).map(
    ({ level, message }) => `${level}: ${message}`,
  )

beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), "sluice-certificate-"))
})
afterAll(() => {
  for (const server of servers) server.close()
  rmSync(dir, { recursive: true })
})

const fine = "ok: the certificate of BASE_URL is valid for long enough"

it("is an alarm where what renews it should have done so long ago, whatever its life is", async () => {
  const long = await serverOf(90)
  expect(await found(long, 0)).toEqual([fine])
  // With a third of its time left it is renewed, as a rule; that may take a while.
  expect(await found(long, 62)).toEqual([fine])
  expect(await found(long, 77)).toEqual(["alarm: the certificate of BASE_URL expires in 12 days"])
  expect(await found(long, 91)).toEqual(["alarm: the certificate of BASE_URL has expired"])
  const short = await serverOf(6)
  expect(await found(short, 4)).toEqual([fine])
  expect(await found(short, 5)).toEqual([expect.stringMatching(/^alarm: .* expires in 2[34] hours$/)])
})

it("says nothing where there is no certificate, or nobody answers", async () => {
  expect(await found("http://127.0.0.1:1", 0)).toEqual([])
  expect(await found("https://127.0.0.1:1", 0)).toEqual([])
})
