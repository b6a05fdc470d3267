// Each event that `sluice trigger` can make happen, with ids that exist. Those that move the sandbox's clock come last.
import { afterAll, beforeAll, expect, it } from "vitest"
import { newSandbox, type Sandbox } from "../../server/test/e2e/program.ts"
import { triggered } from "../src/commands.ts"
import { type Cli, openCli } from "./program.ts"

let sandbox: Sandbox
let cli: Cli
beforeAll(async () => {
  const limits = { LIMIT_CHECKOUT: "0", LIMIT_CONSOLE: "0", LIMIT_MERCHANT: "0" }
  sandbox = await newSandbox(limits, "migrated")
  await sandbox.start()
  cli = await openCli(sandbox, ["read", "checkouts", "catalog", "webhooks", "money"])
})
afterAll(() => sandbox?.remove())

const movesClock = ["subscription.renewal.created", "checkout.expired"]
const others = triggered.filter(name => name !== "ping" && !movesClock.includes(name))

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
