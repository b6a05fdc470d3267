// With the limit that every key begins with, ten checkouts a minute, a burst of thirty is made whole by the queue: it takes two minutes.
import { expect, it } from "vitest"
import { readSettings } from "../../server/src/platform/config/read-settings.ts"
import { startService } from "../../server/test/service.ts"
import { Sluice } from "../src/index.ts"

it("makes thirty checkouts of a burst of thirty", async () => {
  const service = await startService({ settings: { limits: readSettings({}).limits } })
  await service.merchant("shop")
  const { body } = await service.call("POST", "/api/console/api-keys", { name: "sdk" }, { as: "shop" })
  const sluice = new Sluice({ baseUrl: await service.listen(), apiKey: body.key, queue: true })
  const orders = Array.from({ length: 30 }, (_, order) => sluice.checkouts.create({ amount: "5", metadata: { order } }))
  const ids = (await Promise.all(orders)).map(({ id }) => id)
  const rows = await service.ctx.db.selectFrom("checkout_sessions").select("id").execute()
  expect(rows.map(({ id }) => id).sort()).toEqual(ids.sort())
  expect(rows).toHaveLength(30)
  await service.stop()
})
