// An endpoint whose secret was lost with SECRET_KEY: nothing is sent unsigned, and nothing is lost.
import { randomBytes } from "node:crypto"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { type DeliveryRig, startDeliveryRig } from "../../../test/deliveries.ts"
import { forgetLostSecrets } from "../../platform/db/forget-lost-secrets.ts"

let rig: DeliveryRig
beforeAll(async () => {
  rig = await startDeliveryRig()
})
afterAll(() => rig?.stop())
beforeEach(() => rig.begin())

it("skips events until the secret is rolled, and sends them, signed, when they are asked for again", async () => {
  const { ctx, call } = rig.service
  const to = await rig.receiver()
  const { id } = await rig.register(to.url)
  // The ping of its registration.
  const pings = to.received.length
  const since = ctx.now().toISOString()
  const next = [randomBytes(32)]
  await forgetLostSecrets(ctx.db, next)
  const before = ctx.settings.secretKeys
  ctx.settings.secretKeys = next
  try {
    await rig.send({ data: { amount: "5.00" } })
    await rig.deliver()
    const deliveries = ctx.db.selectFrom("deliveries").select("status")
    expect(await deliveries.execute()).toEqual([{ status: "skipped" }])
    expect(to.received).toHaveLength(pings)
    const ask = (what: string, body: object) =>
      call("POST", `/api/console/webhooks/${id}/${what}`, body, { as: "shop" })
    expect((await ask("roll-secret", {})).status).toBe(200)
    expect((await ask("recover", { since })).body).toMatchObject({ data: { recovered: 1 } })
    await rig.deliver()
    // A new secret is tried with a ping, too.
    const sent = to.received.slice(pings)
    expect(sent.filter(({ body }) => body.includes('"5.00"'))).toHaveLength(1)
    for (const { headers } of sent) expect(headers["service-signature"]).toMatch(/,v1=[0-9a-f]{64}$/)
  } finally {
    ctx.settings.secretKeys = before
    await rig.end()
  }
})
