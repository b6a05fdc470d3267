/** Which events `sluice trigger` can cause, and why it can't cause the others. */

/** The events that `sluice trigger` can cause. */
export const triggered = [
  "checkout.session.completed",
  "checkout.confirmed",
  "checkout.authorized",
  "checkout.voided",
  "checkout.failed",
  "checkout.expired",
  "checkout.session.reversed",
  "payment.exception",
  "payment.refunded",
  "paywall.granted",
  "paywall.reversed",
  "subscription.renewal.created",
  "subscription.past_due",
  "subscription.canceled",
  "subscription.resumed",
  "settings.split_changed",
  "settings.webhook_changed",
  "ping",
] as const

/** The other events, each with the reason why it can't be triggered. */
export const untriggered: Record<string, string> = {
  "settings.payout_address_changed":
    "no key may change where a merchant's money goes. Change the address in the console, under Settings",
}
