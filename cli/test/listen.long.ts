/**
 * `sluice listen` that is killed in the middle of a thousand events, at a service that is killed too: every event arrives, few arrive
 * twice, and what arrives again is shown as a repeat. `SEED` chooses when each is killed.
 */
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { expect, it } from "vitest"
import { newSandbox, type Run, until } from "../../server/test/e2e/program.ts"
import { openCli, type Started } from "./program.ts"

const SEED = Number(process.env.SEED ?? 6)
/** Each expires, and each change makes an event when its endpoint is added and one when it is removed. */
const CHECKOUTS = 900
const CHANGES = 50
const AT_ONCE = 10
/** What one kill may repeat: as many as are posted at a time. */
const PER_KILL = 10

/** Numbers below `below` that look random and are the same for a seed. */
function numbers(seed: number): (below: number) => number {
  let state = seed
  return below => {
    state = (state * 1_103_515_245 + 12_345) % 2 ** 31
    return Math.floor((state / 2 ** 31) * below)
  }
}

it(`loses no event of a thousand, over kills of the command line and of the service (SEED=${SEED})`, async () => {
  // A lease ends half a minute after WEBHOOK_TIMEOUT. The listener's own limit is the seed's.
  const limits = { LIMIT_CONSOLE: "0", LIMIT_MERCHANT: "0", LIMIT_CHECKOUT: "0" }
  const sandbox = await newSandbox({ ...limits, WEBHOOK_TIMEOUT: "1s" }, "migrated")
  const received: string[] = []
  const server = createServer((request, response) => {
    received.push(`${request.headers["webhook-id"]}`)
    request.resume().once("end", () => response.end("ok"))
  })
  const random = numbers(SEED)
  const printed: string[] = []
  let kills = 0
  let run: Started | undefined
  let service: Run
  try {
    service = await sandbox.start()
    const cli = await openCli(sandbox)
    await new Promise<void>(resolve => server.listen(0, "127.0.0.1", resolve))
    const to = `127.0.0.1:${(server.address() as AddressInfo).port}`
    const listen = async () => {
      const started = cli.start(["listen", "--forward-to", to, "--json"])
      run = started
      await until("it listens", () => started.seen.out.includes("\n"))
      return JSON.parse(started.seen.out.split("\n")[0] ?? "")
    }
    const kill = async () => {
      run?.child.kill("SIGKILL")
      const { out = "" } = (await run?.ended) ?? {}
      printed.push(out)
      kills++
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
    const buy = async () => {
      const { status } = await sandbox.call(
        "/api/checkouts",
        { amount: "1.00", expiresIn: 300 },
        { "x-api-key": cli.apiKey },
      )
      expect(status).toBe(201)
    }
    for (let i = 0; i < CHECKOUTS; i += AT_ONCE) await Promise.all(Array.from({ length: AT_ONCE }, buy))
    await sandbox.call("/sandbox/clock", { advance: "301s" })
    await sandbox.call("/sandbox/mine", { blocks: 12 })

    const arrived = (n: number) => until(`${n} have arrived`, () => new Set(received).size >= n, 600_000)
    const moments = Array.from({ length: 6 }, () => 20 + random(CHECKOUTS - 100)).sort((a, b) => a - b)
    for (const [i, moment] of moments.entries()) {
      await arrived(moment)
      if (i % 3 === 2) {
        await service.kill("SIGKILL")
        kills++
        service = await sandbox.start()
        continue
      }
      await kill()
      // Once it stays away for longer.
      for (let n = 0; i === 1 && n < CHANGES; n++) await change()
      expect(await listen()).toMatchObject({ listenerId, resumed: true })
    }
    await cli.json("trigger", "checkout.session.completed")

    const all = new Set<string>()
    const statuses = new Set<string>()
    let deliveryId = ""
    let eventId = ""
    const readAll = async () => {
      statuses.clear()
      for (let after = ""; ; ) {
        const path = `/api/console/deliveries?webhookId=${listenerId}&limit=100${after}`
        const { body } = await sandbox.call(path, undefined, { "x-api-key": cli.apiKey })
        for (const each of body.data) {
          all.add(each.eventId)
          statuses.add(each.status)
          ;[deliveryId, eventId] = [each.id, each.eventId]
        }
        if (!body.next) return
        after = `&after=${body.next}`
      }
    }
    await until(
      "the service knows that all have arrived",
      async () => {
        await readAll()
        return [...statuses].join() === "delivered"
      },
      600_000,
    )
    expect(all.size).toBeGreaterThanOrEqual(CHECKOUTS + 2 * CHANGES)
    expect([...all].filter(id => !received.includes(id))).toEqual([])
    const repeats = received.length - new Set(received).size
    expect(repeats).toBeLessThanOrEqual(kills * PER_KILL)

    const times = () => received.filter(id => id === eventId).length
    const before = times()
    await sandbox.call(`/api/console/deliveries/${deliveryId}/resend`, {}, authorization)
    await until("a resend arrives", () => times() > before)
    await kill()
    const shown = printed.join("").split('"repeat":true').length - 1
    // What was killed before it printed is shown by nobody.
    expect(shown).toBeGreaterThan(0)
    expect(shown).toBeLessThanOrEqual(repeats + 1)
    process.stdout.write(
      `${all.size} events, ${kills - 1} kills, ${repeats} arrived twice, ${shown} shown as repeats\n`,
    )
  } finally {
    run?.child.kill("SIGKILL")
    server.close()
    await sandbox.remove()
  }
}, 3_000_000)
