/** The page of a receipt. Whoever has its address can read the receipt, as with every page for payers. */
import type { Settings } from "../../platform/config/settings.ts"

/** The address of the receipt of a checkout, or of a payment that is reported as one. */
export const receiptUrl = ({ settings: { baseUrl } }: { settings: Pick<Settings, "baseUrl"> }, id: string): string =>
  `${baseUrl}/receipt/${id}`
