// `sluice listen` that is killed in the middle of a hundred events, and at a service that restarts: every event arrives.
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { expect, it } from "vitest"
import { newSandbox, until } from "../../server/test/e2e/program.ts"
import { openCli, type Started } from "./program.ts"

const CHANGES = 50
/** Each takes some seconds; to a listener their events are like any. */
const PAYMENTS = 3

it("loses no event of a hundred, over kills of the command line and a restart of the service", async () => {
  // A lease ends half a minute after WEBHOOK_TIMEOUT.
  const limits = { LIMIT_CONSOLE: "0", LIMIT_MERCHANT: "0", LIMIT_LISTENER: "0", LIMIT_CHECKOUT: "0" }
  const sandbox = await newSandbox({ ...limits, WEBHOOK_TIMEOUT: "1s" }, "migrated")
  const received: string[] = []
  const server = createServer((request, response) => {
    received.push(`${request.headers["webhook-id"]}`)
    request.resume().once("end", () => response.end("ok"))
  })
  let run: Started | undefined
  try {
    const service = await sandbox.start()
    const cli = await openCli(sandbox)
    await new Promise<void>(resolve => server.listen(0, "127.0.0.1", resolve))
    const to = `127.0.0.1:${(server.address() as AddressInfo).port}`
    const listen = async () => {
      run = cli.start(["listen", "--forward-to", to, "--json"])
      await until("it listens", () => run?.seen.out.includes("\n") === true)
      return JSON.parse(run.seen.out.split("\n")[0] ?? "")
    }
    const kill = async () => {
      run?.child.kill("SIGKILL")
      await run?.ended
    }
    const { accessToken } = sandbox.file().merchants[0]
    const authorization = { authorization: `Bearer ${accessToken}` }
    const change = async () => {
      const body = { url: `${sandbox.url}/sandbox/inbox/listen`, events: ["checkout.confirmed"] }
      const { body: made } = await sandbox.call("/api/console/webhooks", body, authorization)
      const path = `${sandbox.url}/api/console/webhooks/${made.data.id ?? made.data.webhook.id}`
      expect((await fetch(path, { method: "DELETE", headers: authorization })).status).toBe(200)
    }

    const { listenerId } = await listen()
    for (let i = 0; i < CHANGES / 2; i++) await change()
    await kill()
    for (let i = 0; i < CHANGES / 2; i++) await change()
    expect(await listen()).toMatchObject({ listenerId, resumed: true })
    for (let i = 0; i < PAYMENTS; i++) await cli.json("trigger", "checkout.confirmed")
    await service.kill("SIGTERM")
    await sandbox.start()
    await kill()
    await listen()
    await cli.json("trigger", "checkout.confirmed")

    // A webhook that is removed gets an event of its own, so those count that are for the listener.
    const all = new Set<string>()
    const statuses = new Set<string>()
    const readAll = async () => {
      statuses.clear()
      for (let after = ""; ; ) {
        const path = `/api/console/deliveries?webhookId=${listenerId}&limit=100${after}`
        const { body } = await sandbox.call(path, undefined, { "x-api-key": cli.apiKey })
        for (const { eventId, status } of body.data) {
          all.add(eventId)
          statuses.add(status)
        }
        if (!body.next) return
        after = `&after=${body.next}`
      }
    }
    await until("the service knows that all have arrived", async () => {
      await readAll()
      return [...statuses].join() === "delivered"
    })
    expect(all.size).toBeGreaterThanOrEqual(2 * CHANGES + 2 * (PAYMENTS + 1))
    expect([...all].filter(id => !received.includes(id))).toEqual([])
    const repeats = received.length - new Set(received).size
    const shown = run?.seen.out.split("\n").filter(line => line.includes('"repeat":true')).length ?? 0
    // What was posted and not reported when it was killed, at most ten each time.
    expect(repeats).toBeLessThanOrEqual(20)
    expect(shown).toBeLessThanOrEqual(repeats)
  } finally {
    run?.child.kill("SIGKILL")
    server.close()
    await sandbox.remove()
  }
})
