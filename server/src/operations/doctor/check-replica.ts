/**
 * Checks the replica that serves reads: it must be reachable, be a replica of the database in use, and be up to date.
 */
// I/O: connects to both databases, including before the service starts, when there is no context.
import type { Settings } from "../../platform/config/settings.ts"
import { replicaFault } from "../../platform/db/open-replica.ts"
import type { Query } from "./check-database.ts"
import { type Finding, fine } from "./finding.ts"

const part = "database"

/** Checks whether the replica, if one is set, can serve reads. `query` queries the primary. */
export async function checkReplica({ replica }: Settings, query: Query | undefined): Promise<Finding[]> {
  if (!replica || !query) return []
  try {
    const found = await replicaFault(replica, query)
    if (found === undefined) return [fine(part, "replica", "the replica is up to date with the primary")]
    const message = `the replica serves no reads: ${found}`
    const todo =
      "Check DATABASE_REPLICA_URL, and check in the primary's pg_stat_replication whether the replica follows. Until it does, the primary serves all reads."
    return [{ part, check: "replica", level: "alarm", message, todo, isWatched: true }]
  } catch {
    // Another finding reports that the primary can't be queried.
    return []
  }
}
