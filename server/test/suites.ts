/** What `script/test NAME` runs: the folders of each suite. Of them, `*.long.ts` run with `--long`, and `*.test.ts` without. */
export const suites: Record<string, readonly string[]> = {
  cli: ["cli/test/", "cli/acceptance/"],
  console: ["web/test/console"],
  docs: ["site/"],
  receipts: [
    "server/src/ledger/receipts/",
    "verify/",
    "web/test/verify-page",
    "contracts/receipt-anchor",
    "server/test/e2e/receipts",
  ],
  sdk: ["sdk/", "examples/", "react/"],
}
