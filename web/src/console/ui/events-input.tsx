/** Which events an endpoint gets: the usual ones together, the others by name. */
import { Checkbox } from "@mantine/core"

const usual = [
  "checkout.session.completed",
  "payment.refunded",
  "subscription.renewal.created",
  "checkout.session.reversed",
  "paywall.reversed",
]
const others = [
  "payment.exception",
  "paywall.granted",
  "checkout.confirmed",
  "checkout.failed",
  "checkout.expired",
  "checkout.authorized",
  "checkout.voided",
  "subscription.past_due",
  "subscription.canceled",
  "subscription.resumed",
]
/** What each endpoint gets, whatever it asks for. */
const always = ["settings.payout_address_changed", "settings.split_changed", "settings.webhook_changed"]

/** Every event by its name. */
export const allEvents = [...usual, ...others, ...always]

/** What an endpoint with these subscriptions gets. */
const gotten = (events: readonly string[]): Set<string> =>
  new Set([...(events.includes("*") ? usual : []), ...always, ...events.filter(each => each !== "*")])

/** What an endpoint gets, in a few words. */
export function eventsText(events: readonly string[]): string {
  const { size } = gotten(events)
  const more = size - usual.length - always.length
  if (!events.includes("*")) return `${size} events`
  return more === 0 ? "usual events" : `usual events + ${more} more`
}

interface Given {
  value?: string[]
  onChange?: (value: string[]) => void
  error?: string
}

export function EventsInput({ value = [], onChange, error }: Given) {
  const toggle = (name: string, is: boolean) =>
    onChange?.(is ? [...value.filter(each => each !== name), name] : value.filter(each => each !== name))
  const isUsual = value.includes("*")
  const isFixed = (name: string) => always.includes(name) || (isUsual && usual.includes(name))
  const box = (name: string) => (
    <Checkbox
      key={name}
      size="xs"
      label={<span className="mono">{name}</span>}
      checked={isFixed(name) || value.includes(name)}
      disabled={isFixed(name)}
      onChange={({ currentTarget }) => toggle(name, currentTarget.checked)}
    />
  )
  return (
    <fieldset className="chipset stack tight">
      <legend className="legend">Events</legend>
      <Checkbox
        size="xs"
        label="What most shops need: paid, refunded, renewed, reversed"
        checked={isUsual}
        onChange={({ currentTarget }) => toggle("*", currentTarget.checked)}
      />
      <details>
        <summary className="quiet">
          Each by its name: {gotten(value).size} of {allEvents.length}
        </summary>
        <p className="quiet">Every endpoint gets the changes of settings.</p>
        <div className="events">{allEvents.map(box)}</div>
      </details>
      {error && <span className="bad">{error}</span>}
    </fieldset>
  )
}
