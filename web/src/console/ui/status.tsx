/** One word for one state, with its tone; the API's word is under the pointer. */

export type Tone = "good" | "wait" | "bad" | "info" | "off"

const words: Record<string, readonly [Tone, string]> = {
  // Payments, and what goes out
  granted: ["good", "Paid"],
  confirmed: ["good", "Paid"],
  open: ["wait", "Needs you"],
  returned: ["off", "Returned"],
  reversed: ["bad", "Reversed by the chain"],
  authorized: ["info", "Reserved"],
  voided: ["off", "Released"],
  partially_refunded: ["off", "Partly refunded"],
  refunded: ["off", "Refunded"],
  queued: ["info", "On its way"],
  held: ["wait", "Held"],
  assigned: ["info", "Sending"],
  mined: ["info", "Confirming"],
  final: ["good", "Done"],
  reverted: ["bad", "Failed"],
  cancelled: ["off", "Canceled"],
  // Checkouts
  pending: ["off", "Waiting"],
  verifying: ["info", "Confirming"],
  failed: ["bad", "Failed"],
  expired: ["off", "Expired"],
  // Why a payment is not simply paid
  underpaid: ["wait", "Partly paid"],
  overpaid: ["wait", "Overpaid"],
  late: ["wait", "Paid late"],
  duplicate: ["wait", "Paid twice"],
  wrong_asset: ["bad", "Wrong token"],
  sanctioned: ["bad", "On a sanctions list"],
  no_buyer: ["wait", "No buyer known"],
  // Deliveries
  delivered: ["good", "Delivered"],
  skipped: ["off", "Skipped"],
  retrying: ["wait", "Trying again"],
  failing: ["bad", "Failing"],
  // Things that are sold
  on: ["good", "On"],
  off: ["off", "Off"],
  ending: ["wait", "Ends soon"],
  // Payout addresses
  missing: ["wait", "Not set"],
  changing: ["wait", "Changes soon"],
  // Refunds, subscriptions, invoices
  needs_approval: ["wait", "Needs your wallet"],
  succeeded: ["good", "Refunded"],
  active: ["good", "Active"],
  payment_due: ["wait", "Payment due"],
  past_due: ["bad", "Past due"],
  paused: ["off", "Paused"],
  canceled: ["off", "Canceled"],
  paid: ["good", "Paid"],
  unpaid: ["bad", "Unpaid"],
  void: ["off", "Void"],
  due: ["info", "Due"],
}

/** The word and tone of a state; the API's own word where we have none. */
export const stateOf = (state: string): readonly [Tone, string] =>
  words[state] ?? ["off", state.replace(/_/g, " ").replace(/^./, first => first.toUpperCase())]

/** `why` wins while the money still waits for somebody. */
export function Status({ state, why }: { state: string; why?: string | null }) {
  const [tone, word] = stateOf(why && ["open", "pending", "verifying"].includes(state) ? why : state)
  return (
    <span className={`pill ${tone}`} title={why ? `${state}, ${why}` : state}>
      {word}
    </span>
  )
}
