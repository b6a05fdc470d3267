// Each event that `sluice trigger` can make happen, with ids that exist. Those that move the sandbox's clock come last.
import { afterAll, beforeAll, expect, it } from "vitest"
import { newSandbox, type Sandbox } from "../../server/test/e2e/program.ts"
import { triggered } from "../src/triggers.ts"
import { type Cli, openCli } from "./program.ts"

let sandbox: Sandbox
let cli: Cli
beforeAll(async () => {
  const limits = { LIMIT_CHECKOUT: "0", LIMIT_CONSOLE: "0", LIMIT_MERCHANT: "0" }
  sandbox = await newSandbox(limits, "migrated")
  await sandbox.start()
  cli = await openCli(sandbox, ["console", "checkouts"])
})
afterAll(() => sandbox?.remove())

const movesClock = [
  "checkout.session.reversed",
  "paywall.reversed",
  "checkout.failed",
  "checkout.expired",
  "subscription.renewal.created",
  "subscription.past_due",
]
const others = triggered.filter(name => name !== "ping" && !movesClock.includes(name))

it("captures a checkout whose money is reserved", async () => {
  const { id } = await cli.json("checkouts", "create", "--amount", "3", "--capture", "manual")
  await cli.json("trigger", "checkout.authorized", "--on", id)
  expect(await cli.json("checkouts", "get", id)).toMatchObject({ status: "authorized" })
  expect(await cli.json("trigger", "checkout.confirmed", "--on", id)).toMatchObject({ data: { id, amount: "3.00" } })
})

it("takes no payment back that is final", async () => {
  const { id } = await cli.json("checkouts", "create", "--amount", "3")
  const { txHashes } = await cli.json("pay", id)
  await sandbox.call("/sandbox/mine", { blocks: 20 })
  for (const txHash of [txHashes[0], `0x${"1".repeat(64)}`])
    expect(await sandbox.call("/sandbox/reorg", { txHash })).toMatchObject({
      status: 400,
      body: { error: "VALIDATION_ERROR" },
    })
  expect(await cli.json("checkouts", "get", id)).toMatchObject({ status: "confirmed" })
})

it.each([...others, ...movesClock])("%s", async name => {
  const event = await cli.json("trigger", name)
  expect(event).toMatchObject({ event: name, id: expect.stringMatching(/^evt_/) })
  expect(await cli.json("events", "get", event.id)).toMatchObject({ id: event.id, data: event.data })
})

it("ping, to an endpoint", async () => {
  const { id } = await cli.json(
    "webhooks",
    "create",
    "--url-value",
    `${sandbox.url}/sandbox/inbox/ping`,
    "--events",
    '["checkout.confirmed"]',
  )
  expect(await cli.json("trigger", "ping", "--on", id)).toMatchObject({ event: "ping" })
})
