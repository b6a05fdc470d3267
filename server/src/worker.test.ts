import { afterAll, beforeAll, expect, it } from "vitest"
import { startService, type TestService } from "../test/service.ts"
import { localSigner } from "./chain/signer.ts"
import { openLog } from "./log.ts"
import { runWorker } from "./worker.ts"

let service: TestService
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service.stop())

/** What a worker warns of at its start; it is stopped at once. */
async function warningsOf(payoutSigner: ReturnType<typeof localSigner> | undefined): Promise<string[]> {
  const lines: { level: number; msg: string }[] = []
  const log = openLog("info", { write: line => void lines.push(JSON.parse(line)) })
  const { ctx } = service
  const stop = new AbortController()
  const running = runWorker({ ...ctx, log, settings: { ...ctx.settings, payoutSigner }, signal: stop.signal })
  stop.abort()
  await running
  return lines.filter(({ level }) => level === 40).map(({ msg }) => msg)
}

it("says that payouts don't run without a key, and nothing of it with one", async () => {
  expect(await warningsOf(undefined)).toEqual([
    "neither PAYOUT_PRIVATE_KEY nor PAYOUT_KEYSTORE is set: no money moves out of deposits",
  ])
  expect(await warningsOf(localSigner(`0x${"7f3a".repeat(16)}`))).toEqual([])
})
