/** The metrics at /metrics. Labels have few values: never an id, an address or the raw path of a request. */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client"
import type { Address } from "./chain/hex.ts"
import type { NetworkInfo } from "./chain/network-facts.ts"
import { ifKind } from "./ids.ts"
import { version } from "./version.ts"

export const registry = new Registry()
collectDefaultMetrics({ register: registry })

export const httpDuration = new Histogram({
  name: "sluice_http_request_seconds",
  help: "Time from request to answer, by route pattern and status.",
  labelNames: ["method", "route", "status"],
  buckets: [0.005, 0.02, 0.1, 0.5, 2, 10, 30],
  registers: [registry],
})

export const requestsUnlogged = new Counter({
  name: "sluice_request_log_dropped_total",
  help: "Requests missing from the request log: too many waited to be written, or the database refused them.",
  registers: [registry],
})

export const connectionsDropped = new Counter({
  name: "sluice_http_connections_dropped_total",
  help: "Connections closed by a limit: pipelined, unread, unsent, stalled, too_many or stopping.",
  labelNames: ["reason"],
  registers: [registry],
})

export const loopDuration = new Histogram({
  name: "sluice_loop_seconds",
  help: "Duration of a round of a background loop.",
  labelNames: ["loop"],
  buckets: [0.01, 0.05, 0.25, 1, 5, 15, 60, 300],
  registers: [registry],
})

export const loopRounds = new Counter({
  name: "sluice_loop_rounds_total",
  help: "Rounds of background loops, by result: done or failed.",
  labelNames: ["loop", "result"],
  registers: [registry],
})

export const rpcCalls = new Counter({
  name: "sluice_rpc_calls_total",
  help: "JSON-RPC calls, each entry of a batch counted, by the endpoint's position in the setting from 1 and by result: ok or error.",
  labelNames: ["network", "endpoint", "method", "result"],
  registers: [registry],
})

export const rpcDuration = new Histogram({
  name: "sluice_rpc_seconds",
  help: "Time from a JSON-RPC request, of one or many calls, to its answer or failure, by the endpoint's position in the setting from 1.",
  labelNames: ["network", "endpoint"],
  buckets: [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10],
  registers: [registry],
})

/** The reasons why an RPC endpoint needs a person's attention. */
export const endpointAlarmReasons = ["silent", "behind", "contradiction", "logs", "slow", "useless"] as const

export const endpointAlarms = new Gauge({
  name: "sluice_rpc_alarm",
  help: "1 while an RPC endpoint, by its position in the setting from 1, is silent, behind, slow, contradicts the others, refuses logs, or sends useless answers.",
  labelNames: ["network", "endpoint", "reason"],
  registers: [registry],
})

export const setupAlarms = new Gauge({
  name: "sluice_setup_alarm",
  help: "1 while a check of `sluice doctor`, of the settings, secrets, database, networks or address of this process, needs a person.",
  labelNames: ["part", "check"],
  registers: [registry],
})

/**
 * The new state of a payment or a reservation: `granted`, `reversed`, `returned`; of escrows `captured`, `refunded`.
 */
export type PaymentState = "granted" | "reversed" | "returned" | "captured" | "refunded"

const payments = new Counter({
  name: "sluice_payments_total",
  help: "Payments that this process recorded as granted, reversed or returned, and escrow reservations of which it recorded another capture or refund; by what was sold: paywall, checkout or call.",
  labelNames: ["network", "kind", "state"],
  registers: [registry],
})

const paymentVolume = new Counter({
  name: "sluice_payment_volume_total",
  help: "The amounts of sluice_payments_total, in whole units of the token. For charts: it is a rounded sum of this process, and the books are exact.",
  labelNames: ["network", "token", "kind", "state"],
  registers: [registry],
})

/**
 * Counts a payment's change of state, with its amount in base units. Call it after the commit
 * ({@link TxContext.onCommit}). A token other than the network's adds no volume.
 */
export function countPayment(
  { name: network, token }: Pick<NetworkInfo, "name" | "token">,
  resourceId: string,
  state: PaymentState,
  { token: address, amount }: { token: Address; amount: bigint },
): void {
  const kind = ifKind("pw", resourceId) ? "paywall" : ifKind("bdl", resourceId) ? "call" : "checkout"
  payments.inc({ network, kind, state })
  if (address !== token.address) return
  paymentVolume.inc({ network, token: token.symbol, kind, state }, Number(amount) / 10 ** token.decimals)
}

export const checkoutChanges = new Counter({
  name: "sluice_checkouts_total",
  help: "Checkouts that changed their status, by the new one.",
  labelNames: ["network", "status"],
  registers: [registry],
})

export const subscriptionChanges = new Counter({
  name: "sluice_subscriptions_total",
  help: "Subscriptions that changed their status, by the new one, and invoices of renewals (`invoiced`).",
  labelNames: ["network", "change"],
  registers: [registry],
})

export const limitsInstances = new Gauge({
  name: "sluice_limits_instances",
  help: "Processes that share the rate limits through Redis, by the last count of their heartbeats.",
  registers: [registry],
})

export const limitsAlone = new Gauge({
  name: "sluice_limits_alone",
  help: "1 while Redis fails and this process enforces its share of the rate limits on its own.",
  registers: [registry],
})

export const replicaUsed = new Gauge({
  name: "sluice_replica_used",
  help: "1 while the replica of DATABASE_REPLICA_URL serves reads, 0 while it is left out; absent if none is set.",
  registers: [],
})

export const replicaLag = new Gauge({
  name: "sluice_replica_lag_seconds",
  help: "How long the replica took, at the last check, to replay what the primary had written; while it is left out, how long it has been behind.",
  registers: [],
})

export const replicaReads = new Counter({
  name: "sluice_replica_reads_total",
  help: "Lists and public reads, by what served them: replica, or primary while the replica was behind.",
  labelNames: ["served"],
  registers: [],
})

/** Exposes the metrics of a replica. Call this if a replica is set. */
export function showReplica(): void {
  for (const metric of [replicaUsed, replicaLag, replicaReads] as const) registry.registerMetric(metric as Gauge)
}

export const mailsSent = new Counter({
  name: "sluice_mails_total",
  help: "Attempts to send a mail, by result: sent, retry or failed.",
  labelNames: ["result"],
  registers: [registry],
})

export const deliveryAttempts = new Counter({
  name: "sluice_webhook_attempts_total",
  help: "Attempts to deliver an event, by the resulting state of the delivery: delivered, retry or failed.",
  labelNames: ["result"],
  registers: [registry],
})

export const webhookBacklog = new Gauge({
  name: "sluice_webhook_backlog",
  help: "Deliveries that are pending, by whether they are due or wait for a retry; counted up to 100,000 of each.",
  labelNames: ["state"],
  registers: [registry],
})

export const webhookOldest = new Gauge({
  name: "sluice_webhook_oldest_due_seconds",
  help: "How long the most overdue delivery has been due; 0 if none is due.",
  registers: [registry],
})

export const deliveriesInFlight = new Gauge({
  name: "sluice_webhook_deliveries_in_flight",
  help: "Deliveries that this process is sending.",
  registers: [registry],
})

export const openPayouts = new Gauge({
  name: "sluice_payouts_open",
  help: "Pending payouts and relays, by wallet (payout or relay) and state: queued, held, assigned or mined.",
  labelNames: ["network", "wallet", "state"],
  registers: [registry],
})

export const payoutEnds = new Counter({
  name: "sluice_payouts_total",
  help: "Payouts and relays that ended: final, reverted or cancelled.",
  labelNames: ["network", "wallet", "end"],
  registers: [registry],
})

export const heldPayouts = new Gauge({
  name: "sluice_payouts_held",
  help: "Payouts that are held, by reason.",
  labelNames: ["network", "wallet", "reason"],
  registers: [registry],
})

export const oldestQueued = new Gauge({
  name: "sluice_payouts_oldest_queued_seconds",
  help: "Age in seconds of the payout that has been queued longest; 0 when none is.",
  labelNames: ["network", "wallet"],
  registers: [registry],
})

export const walletHalted = new Gauge({
  name: "sluice_payout_wallet_halted",
  help: "1 while the wallet (payout or relay) is halted: it sends nothing until a person resumes it.",
  labelNames: ["network", "wallet"],
  registers: [registry],
})

export const walletGas = new Gauge({
  name: "sluice_payout_wallet_gwei",
  help: "The balance for gas of the wallet (payout or relay), in gwei.",
  labelNames: ["network", "wallet"],
  registers: [registry],
})

export const walletPayouts = new Gauge({
  name: "sluice_payout_wallet_payouts",
  help: "How many typical payouts the wallet's gas covers at the current price.",
  labelNames: ["network", "wallet"],
  registers: [registry],
})

export const scanLag = new Gauge({
  name: "sluice_scan_lag_blocks",
  help: "How many blocks the last certain logs are behind the head, by the last round of this process.",
  labelNames: ["network"],
  registers: [registry],
})

export const scanBehind = new Gauge({
  name: "sluice_scan_behind",
  help: "1 while the scan is behind by more blocks than MAX_SCAN_LAG.",
  labelNames: ["network"],
  registers: [registry],
})

export const scanStopped = new Gauge({
  name: "sluice_scan_stopped",
  help: "1 while no round of the network's scan ends, or its lag does not shrink, according to the database.",
  labelNames: ["network"],
  registers: [registry],
})

export const spanResults = new Counter({
  name: "sluice_trace_spans_total",
  help: "Recorded spans by result: exported, rejected by the collector, failed after all tries, or dropped because the queue was full.",
  labelNames: ["result"],
  registers: [registry],
})

/** The counts of a pool of database connections. */
interface PoolCounts {
  readonly totalCount: number
  readonly idleCount: number
  readonly waitingCount: number
}

/** The open pools of this process, by name. */
export const pools = new Map<string, PoolCounts>()

new Gauge({
  name: "sluice_db_connections",
  help: "Connections of this process to Postgres by pool (requests or background) and state: used, idle; `waiting` are callers that wait for one.",
  labelNames: ["pool", "state"],
  registers: [registry],
  collect() {
    for (const [pool, { totalCount, idleCount, waitingCount }] of pools) {
      this.set({ pool, state: "used" }, totalCount - idleCount)
      this.set({ pool, state: "idle" }, idleCount)
      this.set({ pool, state: "waiting" }, waitingCount)
    }
  },
})

new Gauge({
  name: "sluice_build_info",
  help: "1, with the version of Sluice and of Node.",
  labelNames: ["version", "node"],
  registers: [registry],
}).set({ version, node: process.version }, 1)

/** The reasons why a wallet needs a person's attention; `docs/operators/alarms.md` explains each and what to do. */
export const payoutAlarmReasons = [
  "low_gas",
  "gas_warning",
  "fee_cap",
  "gas_total",
  "rpc_unavailable",
  "send",
  "transfer",
  "foreign_nonce",
  "books",
  "stuck",
  "given_up",
  "unswept",
  "signer",
  "signature",
  "no_key",
  "unserved",
  "other_operator",
  "escrow_failed",
  "receipt_file",
] as const

export const standingAlarms = new Gauge({
  name: "sluice_payout_alarm",
  help: "1 while a wallet has an alarm that lasts until its cause is gone: low_gas, gas_warning, fee_cap, gas_total, rpc_unavailable, transfer, stuck, given_up, unswept, signer, no_key, unserved, other_operator or escrow_failed.",
  labelNames: ["network", "wallet", "reason"],
  registers: [registry],
})

export const payoutAlarms = new Counter({
  name: "sluice_payout_alarms_total",
  help: `Events that need a person's attention: ${payoutAlarmReasons.join(", ")}.`,
  labelNames: ["network", "wallet", "reason"],
  registers: [registry],
})
