/** Formats the service's answers to `sluice wallet` as plain text. Pure. */
import type { actionLog } from "../operator/log-actions.ts"
import type { heldPayouts } from "../operator/retry-payouts.ts"
import type { showWallets } from "../operator/show.ts"

type Wallet = Awaited<ReturnType<typeof showWallets>>[number]
type Held = Awaited<ReturnType<typeof heldPayouts>>[number]
type Logged = Awaited<ReturnType<typeof actionLog>>[number]

/** Formats wallets, each with its problems first. */
export const walletsText = (wallets: Wallet[]): string =>
  wallets.length === 0 ? "No wallet has been used yet." : wallets.map(walletText).join("\n\n")

function walletText(wallet: Wallet): string {
  const { chain } = wallet
  const count = (n: string | null) => n ?? "unknown"
  const waiting = Object.entries(wallet.waiting).map(([name, n]) => `${name} ${n}`)
  const reported = chain
    ? `the chain has ${count(chain.latest)}, final ${count(chain.finalized)}; gas ${count(chain.gas)} ${wallet.lane === "storage" ? "0G" : "ETH"}; base fee ` +
      `${count(chain.baseFeeGwei)} gwei; final block ${chain.finalizedBlock}`
    : "the chain can't be reached"
  const compared = wallet.booksComparedTo === null ? "" : `; books compared to block ${wallet.booksComparedTo}`
  return [
    `${wallet.lane ?? "former"} wallet ${wallet.address} on ${wallet.network}: ${wallet.status}`,
    ...(wallet.haltedReason === null ? [] : [`  halted: ${wallet.haltedReason}`]),
    ...wallet.unexplained.map(words => `  unexplained: ${words}`),
    `  next nonce ${wallet.nextNonce}; ${reported}${compared}`,
    `  waiting: ${waiting.join(", ") || "nothing"}`,
    ...(wallet.inFlight.length === 0 ? ["  nothing in flight"] : flying(wallet.inFlight).map(line => `  ${line}`)),
  ].join("\n")
}

const flying = (rows: Wallet["inFlight"]): string[] =>
  table(
    ["NONCE", "STATE", "KIND", "PAYOUT", "TRY", "MAX FEE", "TIP", "AGE", "SENT", "LAST", "HASH"],
    rows.map(row => [
      row.nonce,
      row.state,
      row.kind,
      row.payout,
      `${row.attempt}${row.empty ? " empty" : ""}`,
      row.maxFeeGwei,
      row.tipGwei,
      `${row.ageSeconds}s`,
      `${row.sends}x`,
      row.lastResult ?? "-",
      row.hash ?? "not signed yet",
    ]),
  )

/** Formats held payouts, with a paragraph for each, because their details are too long for a table. */
export const heldText = (rows: Held[]): string =>
  rows.length === 0 ? "Nothing is held." : rows.map(heldLines).join("\n\n")

function heldLines(row: Held): string {
  const { screening } = row
  return [
    `${row.id}  ${row.reason}  ${row.kind} of ${row.amount} to ${row.recipient} on ${row.network}`,
    `  merchant ${row.merchant}, payment ${row.payment ?? "-"}`,
    `  since ${row.since}, next check ${row.nextLook}, checked ${row.checks} times without success`,
    ...(row.detail === null ? [] : [`  ${row.detail}`]),
    ...(screening === null ? [] : [`  listed by ${screening.source} at ${screening.at}`]),
  ].join("\n")
}

/** Formats the log of manual actions, newest first. */
export const logText = (rows: Logged[]): string =>
  rows.length === 0
    ? "There were no manual actions."
    : rows
        .map(row =>
          [
            `${row.at}  ${row.action}  by ${row.by} on ${row.network}${row.wallet ? `, wallet ${row.wallet}` : ""}`,
            ...(row.payout === null ? [] : [`  payout ${row.payout}`]),
            ...(row.reason === null ? [] : [`  reason: ${row.reason}`]),
            `  ${JSON.stringify(row.before)} -> ${JSON.stringify(row.after)}`,
          ].join("\n"),
        )
        .join("\n\n")

/** Aligns columns, each as wide as its widest cell. */
function table(head: string[], rows: string[][]): string[] {
  const all = [head, ...rows]
  const widths = head.map((_, i) => Math.max(...all.map(row => row[i]?.length ?? 0)))
  return all.map(row =>
    row
      .map((cell, i) => cell.padEnd(widths[i] ?? 0))
      .join("  ")
      .trimEnd(),
  )
}
