/** What is settled together at a paywall. */
import type { Group, Part } from "../../ledger/settlement/sellable.ts"
import type { Address } from "../../platform/chain/hex.ts"
import type { Row } from "../../platform/db/schema.ts"
import type { Version } from "./payment.ts"
import type { Folded } from "./read-access.ts"

/** One sender at one paywall. */
export interface AccessPart extends Part {
  paywall: Row<"paywalls">
  payer: Address
  group: Group
  versions: readonly Version[]
  /** Whether more transfers of the group may be due. */
  isMore: boolean
  /** The fold of the payer's grants before this settlement; undefined if all must be folded again. */
  folded: Folded | undefined
}
