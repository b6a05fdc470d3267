/** Types of `<PayButton href>` and `useCheckout(id)`. */
import type { AnchorHTMLAttributes, ReactElement } from "react"

export interface PayButtonProps extends AnchorHTMLAttributes<HTMLAnchorElement> {
  /** The address of a checkout, payment link, paywall or invoice. */
  href: string
  /** Called with the id of what was paid in the dialog. */
  onPaid?: (id: string) => void
  /** Called when the dialog was closed; null where nothing was paid in it. */
  onClose?: (id: string | null) => void
}

/** A link that opens a page for payers in a dialog of this page. */
export function PayButton(props: PayButtonProps): ReactElement

/** Whether a checkout or paywall was paid in a dialog of this page. Deliver nothing by it: your server knows for certain. */
export function useCheckout(id: string | undefined): "open" | "paid"
