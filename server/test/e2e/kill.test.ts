import { setTimeout as sleep } from "node:timers/promises"
import { afterEach, describe, expect, it } from "vitest"
import { isTaken, newSandbox, type Sandbox, until } from "./program.ts"

let sandbox: Sandbox
afterEach(() => sandbox.remove())

const portsFree = () =>
  until("both ports are free", async () => !(await isTaken(sandbox.port)) && !(await isTaken(sandbox.rpcPort)))

/** Makes a paywall and pays it; what is answered here must survive everything. */
async function sell() {
  const { merchants, buyers } = sandbox.file()
  const auth = { authorization: `Bearer ${merchants[0].accessToken}` }
  const made = await sandbox.call("/api/console/paywalls", { name: "Film", price: 5 }, auth)
  expect(made.status).toBe(201)
  const { payTo } = (await sandbox.call(`/api/paywalls/${made.body.id}`)).body
  const { txHash } = (await sandbox.call("/sandbox/pay", { to: payTo, amount: 5, buyer: 1 })).body
  const address = buyers[1].address
  return {
    submit: async () =>
      expect((await sandbox.call(`/api/paywalls/${made.body.id}/pay`, { txHash, address })).status).toBe(200),
    granted: async () => {
      const state = () => sandbox.call(`/api/paywalls/${made.body.id}/payments/${txHash}?address=${address}&wait=25`)
      await until("it is granted", async () => (await state()).body.status === "granted")
      expect((await state()).body).toMatchObject({ status: "granted", txHash })
      const access = await sandbox.call(`/api/paywalls/${made.body.id}/verify?address=${address}`)
      expect(access.body).toMatchObject({ hasAccess: true, txHash })
      const grants = await sandbox.call(`/api/console/paywalls/${made.body.id}/grants`, undefined, auth)
      expect(grants.body.total).toBe(1)
    },
  }
}

/** Starts a checkout whose events go to the sandbox's inbox, and pays it. */
async function checkOut(name: string) {
  const { merchants } = sandbox.file()
  const key = { "x-api-key": merchants[0].apiKey }
  const callbackUrl = `${sandbox.url}/sandbox/inbox/${name}`
  const made = await sandbox.call("/api/checkouts", { amount: 5, callbackUrl }, key)
  expect(made.status).toBe(201)
  const { txHash } = (await sandbox.call("/sandbox/pay", { to: made.body.payTo, amount: 5, buyer: 2 })).body
  return {
    confirm: () => sandbox.call("/api/pay/confirm", { sessionId: made.body.id, txHash }),
    notified: async () => {
      const status = () => sandbox.call(`/api/pay/status/${made.body.id}?wait=25`)
      await until("it is confirmed", async () => (await status()).body.status === "confirmed")
      expect((await sandbox.call("/api/pay/confirm", { sessionId: made.body.id, txHash })).status).toBe(409)
      const received = async () =>
        (await sandbox.call("/sandbox/inbox")).body.data.filter((each: { name: string }) => each.name === name)
      await until("the inbox got the event", async () => (await received()).length > 0)
      // A delivery whose answer was lost in a kill comes again, as the same.
      const [first, ...more] = await received()
      for (const each of more) expect(each.headers["idempotency-key"]).toBe(first.headers["idempotency-key"])
      const auth = { authorization: `Bearer ${merchants[0].accessToken}` }
      const events = await sandbox.call("/api/console/events?type=checkout.session.completed", undefined, auth)
      expect(
        events.body.data.filter((each: { body?: unknown }) => JSON.stringify(each).includes(made.body.id)).length,
      ).toBe(1)
    },
  }
}

describe("SIGKILL", () => {
  it("at any time of the first start: the next start completes it", async () => {
    sandbox = await newSandbox()
    // From before anything is spawned to after all is up; the start takes some three seconds.
    for (const ms of [100, 400, 600, 800, 1_000, 1_300, 1_700, 2_200, 2_800]) {
      const run = sandbox.spawn()
      await sleep(ms)
      await run.kill("SIGKILL")
    }
    await sandbox.start()
    const { submit, granted } = await sell()
    await submit()
    await granted()
  })

  it("with a payment and a checkout sent, submitted, or confirmed: one is granted, one notified, each once", async () => {
    sandbox = await newSandbox({}, "migrated")
    let run = await sandbox.start()
    const sales: Awaited<ReturnType<typeof sell>>[] = []
    const checkouts: Awaited<ReturnType<typeof checkOut>>[] = []
    for (const stage of ["sent", "submitted", "confirmed"] as const) {
      const checkout = await checkOut(stage)
      if (stage !== "sent") expect((await checkout.confirm()).status).toBe(200)
      // The checkout is about to be notified, and the payment is half confirmed.
      if (stage === "confirmed") await sandbox.call("/sandbox/mine", { blocks: 2 })
      const sale = await sell()
      if (stage !== "sent") await sale.submit()
      if (stage === "confirmed") await sandbox.call("/sandbox/mine", { blocks: 1 })
      await run.kill("SIGKILL")
      await portsFree()
      run = await sandbox.start()
      if (stage === "sent") await sale.submit()
      sales.push(sale)
      checkouts.push(checkout)
    }
    for (const sale of sales) await sale.granted()
    for (const checkout of checkouts) await checkout.notified()
  })
})
