/** The order of test files: the longest first, so that the workers end at about the same time. */
import { BaseSequencer, type TestSpecification } from "vitest/node"

/**
 * The files that take the most time, the longest first: those with programs, those on Postgres, those on both databases. Vitest knows
 * durations only from an earlier run, and a fresh clone has none: it starts the largest files first, and some of these are
 * small. The JSON report of a run has the start and the end of each file.
 */
export const longest = [
  "server/test/e2e/walkthrough.test.ts",
  "server/test/e2e/wallet.test.ts",
  "server/test/chaos/payouts.test.ts",
  "server/test/x402/clients.test.ts",
  "server/test/e2e/kill.test.ts",
  "server/test/e2e/package.test.ts",
  "server/test/e2e/payouts.test.ts",
  "server/test/e2e/workers.test.ts",
  "contracts/escrow-properties.test.ts",
  "contracts/deposit-properties.test.ts",
  "server/test/e2e/live.test.ts",
  "server/test/e2e/restore.test.ts",
  "server/test/chaos/x402.test.ts",
  "server/test/chaos/escrow.test.ts",
  "server/test/e2e/operations.test.ts",
  "server/test/e2e/go-live.test.ts",
  "server/test/e2e/limits.test.ts",
  "server/test/e2e/webhooks-kill.test.ts",
  "server/test/e2e/memory.test.ts",
  "server/test/chaos/relays.test.ts",
  "server/test/e2e/replica.test.ts",
  "server/test/e2e/subscriptions-kill.test.ts",
  "server/test/e2e/stop.test.ts",
  "web/test/checkout.test.ts",
  "server/test/bad-input.test.ts",
  "server/src/x402/agents.test.ts",
  "server/src/escrow/refunds.test.ts",
  "server/src/sandbox/local-chain.test.ts",
  "server/src/payouts/relays.test.ts",
  "server/src/scanner/faulty-endpoints.test.ts",
  "server/src/settlement/exceptions.test.ts",
  "web/test/states.test.ts",
  "server/src/escrow/escrow.test.ts",
  "server/src/escrow/budget.test.ts",
  "server/src/settlement/resolve-exception.test.ts",
  "server/src/operator/adopt.test.ts",
  "server/src/limits/failover.test.ts",
  "server/src/payouts/lying-endpoint.test.ts",
  "server/src/scanner/lying-nodes.test.ts",
  "server/src/cli/recover.test.ts",
  "server/src/scanner/networks.test.ts",
  "server/src/reconciliation/reconcile.test.ts",
  "server/src/payouts/returns.test.ts",
  "server/src/cli/invite.test.ts",
  "server/src/limits/limiter.test.ts",
  "server/src/payouts/sign-attempts.test.ts",
  "server/src/x402/facilitator.test.ts",
  "server/src/subscriptions/subscriptions.test.ts",
  "server/src/reconciliation/check-books.test.ts",
  "server/src/operator/unstick.test.ts",
  "server/src/webhooks/deliver-events.test.ts",
]

const rank = ({ moduleId }: TestSpecification): number => {
  const at = longest.findIndex(path => moduleId.endsWith(`/${path}`))
  return at === -1 ? longest.length : at
}

/** A worker sees one database: its process is used again as long as the next file is on the same one. */
const onPostgres = ({ project }: TestSpecification): number => (project.name === "postgres" ? 1 : 0)

/** Vitest's order, with the longest files of each database moved to its front, and Postgres, which has none that wait, last. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    return (await super.sort(files)).sort((a, b) => onPostgres(a) - onPostgres(b) || rank(a) - rank(b))
  }
}
