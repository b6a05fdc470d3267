import { afterAll, beforeAll, expect, it } from "vitest"
import { startService, type TestService } from "../test/service.ts"
import { localSigner } from "./platform/chain/signer.ts"
import { openLog } from "./platform/log.ts"
import { runWorker } from "./worker.ts"

let service: TestService
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service.stop())

type Keys = Pick<TestService["ctx"]["settings"], "payoutSigner" | "relaySigner">

/** What a worker warns of at its start; it is stopped at once. */
async function warningsOf(keys: Keys): Promise<string[]> {
  const lines: { level: string; msg: string }[] = []
  const log = openLog("info", { write: line => void lines.push(JSON.parse(line)) })
  const { ctx } = service
  const stop = new AbortController()
  const running = runWorker({ ...ctx, log, settings: { ...ctx.settings, ...keys }, signal: stop.signal })
  stop.abort()
  await running
  return lines.filter(({ level }) => level === "warn").map(({ msg }) => msg)
}

// That no money leaves deposits is an alarm in /readyz (tested in `cli/doctor.test.ts`) and not a log line.
it("logs that nothing is relayed without a key, and nothing with one", async () => {
  const keys = {
    payoutSigner: localSigner(`0x${"7f3a".repeat(16)}`),
    relaySigner: localSigner(`0x${"5b2c".repeat(16)}`),
  }
  expect(await warningsOf({ payoutSigner: undefined, relaySigner: undefined })).toEqual([
    "none of RELAY_PRIVATE_KEY, RELAY_KEYSTORE and RELAY_SIGNER is set: no authorizations are relayed",
  ])
  expect(await warningsOf(keys)).toEqual([])
})
