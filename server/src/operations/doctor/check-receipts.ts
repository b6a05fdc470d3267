/** Checks that receipts are made. Nothing else would notice missing receipts, because no payment waits for them. */
// I/O: queries the database and the endpoints, including before the service starts, when there is no context.
import { askAny, newEndpoint } from "../../platform/chain/endpoints.ts"
import { networkSetting } from "../../platform/chain/network-facts.ts"
import { anchorDeployment } from "../../platform/chain/receipt-anchor.ts"
import type { RpcResult } from "../../platform/chain/rpc.ts"
import type { Settings } from "../../platform/config/settings.ts"
import type { Query } from "./check-database.ts"
import type { NetworkCheck } from "./check-network.ts"
import { type Finding, fine } from "./finding.ts"

/** How long a receipt may wait: longer than a key needs to become final on any network. */
const WAIT_S = 3_600

const part = "database"

/**
 * Reports receipts and receipt files that have waited for more than an hour. No findings if the database can't be
 * queried.
 */
export async function checkReceipts({ receipts }: Pick<Settings, "receipts">, query: Query): Promise<Finding[]> {
  try {
    const [there] = await query("select to_regclass('receipts') is not null as installed")
    if (!there?.installed) return []
    return [await waitingReceipts(query), ...(receipts.zerog ? [await waitingFiles(query)] : [])]
  } catch {
    // Another finding reports that the database can't be queried.
    return []
  }
}

async function waitingReceipts(query: Query): Promise<Finding> {
  const check = "receipts"
  // Uses the index `receipts_waiting`. Above a thousand, the exact number does not matter.
  const [row] = await query(`select count(*)::int as n from (select from receipts
    where root is null and settled_at < now() - make_interval(secs => ${WAIT_S}) limit 1000) late`)
  if (Number(row?.n) === 0) return fine(part, check, "receipts are made")
  const message = `${row?.n} receipts have waited for more than an hour; their payments are settled`
  const todo =
    "The log says why: `a receipt can't be made`, `receipts wait`, or the error of a round. The receipts are made once the cause is fixed."
  return { part, check, level: "alarm", message, todo }
}

async function waitingFiles(query: Query): Promise<Finding> {
  const check = "receipt_files"
  // Uses the index `receipt_batches_not_uploaded`.
  const [row] = await query(`select count(*)::int as n from (select from receipt_batches
    where uploaded_at is null and created_at < now() - make_interval(secs => ${WAIT_S}) limit 1000) late`)
  if (Number(row?.n) === 0) return fine(part, check, "0G has the files of receipts")
  const message = `${row?.n} files of receipts have waited for more than an hour to be stored by 0G; they are in DATA_DIR`
  const todo =
    "Check whether the storage wallet is empty or halted. If it is neither, the log says what 0G's nodes answer."
  return { part, check, level: "alarm", message, todo }
}

/** Reports a network without the contract to which receipts are written. No findings with RECEIPT_ANCHOR=off. */
export async function checkReceiptAnchor({ network, settings, signal, faulty }: NetworkCheck): Promise<Finding[]> {
  const { name: part, rpcUrls } = network
  const check = "receipt_anchor"
  if (settings.receipts.anchorMs === undefined || faulty.has(networkSetting("RPC", part))) return []
  const calls = [{ method: "eth_getCode", params: [anchorDeployment.address, "finalized"] }]
  const endpoints = rpcUrls.map(url => newEndpoint(part, url))
  const [code] = await askAny(endpoints, calls, signal).catch((): RpcResult[] => [])
  // The findings about the endpoints give the reason.
  if (!code?.ok) return []
  if (code.value !== "0x") return [fine(part, check, "the contract that receipts are written to exists")]
  const message =
    "the contract that receipts are written to does not exist, so receipts wait: nobody could verify who signed them"
  const todo = `Run \`sluice deploy --contract receipt-anchor --network ${part}\`, or set RECEIPT_ANCHOR=off.`
  return [{ part, check, level: "alarm", message, todo }]
}
