// `sluice receipts` as an operator runs it, beside a service with receipts in both stores.
import { execFile } from "node:child_process"
import { join } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { plainEnv, root } from "../../../test/e2e/program.ts"
import { type StorageRig, startStorageRig } from "../../../test/storage.ts"
import { PRICE } from "../../../test/zerog.ts"
import { openAdmin } from "../operator/open-admin.ts"
import { serveOnSocket } from "../operator/socket.ts"

let on: StorageRig
let stop: () => Promise<void>
beforeAll(async () => {
  on = await startStorageRig()
  const { ctx } = on.rig.service
  stop = await serveOnSocket(openAdmin(ctx), on.dataDir, ctx.log)
})
afterAll(async () => {
  await stop?.()
  await on?.stop()
})
beforeEach(() => on.empty())

const sluice = (...args: string[]) =>
  promisify(execFile)(process.execPath, [join(root, "server/src/operations/cli/sluice.ts"), "receipts", ...args], {
    env: { ...plainEnv(), DATA_DIR: on.dataDir },
  }).then(
    ({ stdout, stderr }) => ({ code: 0, text: `${stderr}${stdout}` }),
    ({ code, stdout, stderr }) => ({ code, text: `${stderr}${stdout}` }),
  )

it("says what storage has cost, and what the rest takes", async () => {
  await on.batched()
  const [{ size } = { size: 0 }] = await on.batches()
  const fee = Number(BigInt(size / 256) * PRICE) / 1e18
  expect((await sluice("cost")).text).toContain("In 0G: 0 (receipts: 0).")
  expect(JSON.parse((await sluice("cost", "--json")).text)).toMatchObject({ files: 1, unpaid: 1 })
  await on.round()
  await on.carryOut()
  await on.round()
  const { code, text } = await sluice("cost")
  expect([code, text]).toEqual([0, expect.stringContaining("Files: 1 (receipts: 1). In 0G: 1 (receipts: 1).")])
  expect(text).toContain(`Paid: ${fee.toFixed(18).replace(/0+$/, "")} for storage`)
})

it("waits until 0G has the files from before, whose receipts stay as they are", async () => {
  const { settings } = on.rig.service.ctx
  const { zerog } = settings.receipts
  settings.receipts.zerog = undefined
  await on.batched()
  await on.batched()
  const before = (await on.batches()).map(({ root }) => root)
  expect(await sluice("migrate", "--to", "0g")).toMatchObject({
    code: 1,
    text: expect.stringMatching(/^RECEIPT_STORE is file/),
  })
  settings.receipts.zerog = zerog
  const migrating = sluice("migrate", "--to", "0g")
  await on.round()
  await on.carryOut()
  await on.round()
  expect(await migrating).toMatchObject({ code: 0, text: expect.stringMatching(/0G has 2 of 2 files\.\n$/) })
  expect((await on.batches()).map(({ root }) => root)).toEqual(before)
  expect((await on.submitted()).slice(-2)).toEqual(before)
})

it("refuses what it does not have, and leaves merchants' commands to them", async () => {
  expect(await sluice("migrate")).toMatchObject({ code: 2, text: expect.stringContaining("needs --to 0g") })
  expect(await sluice("cost", "--to", "0g")).toMatchObject({
    code: 2,
    text: expect.stringContaining("cost has no --to"),
  })
  expect(await sluice("rotate-key")).toMatchObject({ code: 2, text: expect.stringContaining("--reason is required") })
  expect((await sluice("list", "--help")).text).toContain("--json")
})
