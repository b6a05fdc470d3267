/** The rows of the scan of a network, and of what it shows about the endpoints. */
import type { Generated } from "kysely"
import type { Hash } from "../chain/hex.ts"
import type { Optional } from "./columns.ts"

export interface Cursors {
  chain_id: number
  block_number: bigint
  block_hash: Hash
  /** When that block was made; null until the first round after an upgrade. */
  block_time: Optional<Date>
  finalized_number: bigint
  looked_at: Optional<Date>
  run_at: Date
  claim_id: Optional<string>
  lease_until: Optional<Date>
  /** How many blocks the logs are behind the head; the lowest value since the scan fell behind, and when that was. */
  lag_blocks: Generated<bigint>
  lag_low: Optional<bigint>
  lag_low_at: Optional<Date>
  /** How often the worker that ended the last round makes one, in milliseconds. */
  interval_ms: Generated<number>
}

/** An endpoint, by its position in the setting from 0, that differs from the others, lags, or does not respond. */
export interface EndpointTroubles {
  chain_id: number
  position: number
  kind: "silent" | "behind" | "contradiction" | "logs" | "slow" | "useless"
  since: Date
  last_at: Date
  is_alarm: boolean
  /** What it said, without what may be a key. */
  answer: Optional<string>
}
