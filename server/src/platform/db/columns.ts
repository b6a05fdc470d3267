/** Types of columns that several tables use. */
import type { ColumnType } from "kysely"

/** Nullable, and may be left out of an insert. */
export type Optional<T> = ColumnType<T | null, T | null | undefined, T | null>

export type PaymentException = "underpaid" | "overpaid" | "late" | "duplicate" | "wrong_asset"
/** Why a payment needs a decision. The others are about its sender, and no exceptions of a checkout. */
export type WaitingFor = PaymentException | "sanctioned" | "no_buyer"

/** All of them, in the order of the documents. */
export const exceptions: WaitingFor[] = [
  "underpaid",
  "overpaid",
  "late",
  "duplicate",
  "wrong_asset",
  "sanctioned",
  "no_buyer",
]
