/** What is settled together at a paywall. */
import type { Address } from "../chain/hex.ts"
import type { Row } from "../db/schema.ts"
import type { Group, Part } from "../settlement/sellable.ts"
import type { Folded } from "./access.ts"
import type { Version } from "./payment.ts"

/** One sender at one paywall. */
export interface AccessPart extends Part {
  paywall: Row<"paywalls">
  payer: Address
  group: Group
  versions: readonly Version[]
  /** Whether more transfers of the group may be due. */
  isMore: boolean
  /** The fold of the payer's grants before this settlement. */
  folded: Folded | undefined
}
