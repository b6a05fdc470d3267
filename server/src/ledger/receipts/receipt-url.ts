/** The page of a receipt. Like every page for payers, the page can be read by anyone who has its address. */
import type { Settings } from "../../platform/config/settings.ts"

/** Returns the address of the receipt of a checkout, or of a payment that is reported like a checkout. */
export const receiptUrl = ({ settings: { baseUrl } }: { settings: Pick<Settings, "baseUrl"> }, id: string): string =>
  `${baseUrl}/receipt/${id}`
