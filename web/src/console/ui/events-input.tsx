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
  "settings.payout_address_changed",
  "settings.split_changed",
  "settings.webhook_changed",
]

/** Every event by its name. */
export const allEvents = [...usual, ...others]

interface Given {
  value?: string[]
  onChange?: (value: string[]) => void
  error?: string
}

export function EventsInput({ value = [], onChange, error }: Given) {
  const toggle = (name: string, is: boolean) =>
    onChange?.(is ? [...value.filter(each => each !== name), name] : value.filter(each => each !== name))
  const isUsual = value.includes("*")
  const count = new Set([...(isUsual ? usual : []), ...value.filter(name => name !== "*")]).size
  const box = (name: string, isOn = value.includes(name)) => (
    <Checkbox
      key={name}
      size="xs"
      label={<span className="mono">{name}</span>}
      checked={isOn}
      disabled={isUsual && usual.includes(name)}
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
          Each by its name: {count} of {usual.length + others.length}
        </summary>
        <div className="events">
          {usual.map(name => box(name, isUsual || value.includes(name)))}
          {others.map(name => box(name))}
        </div>
      </details>
      {error && <span className="bad">{error}</span>}
    </fieldset>
  )
}
