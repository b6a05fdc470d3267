/** The recipients of a split. It always adds up to 100: the marked row gets what the others leave. */
import { Button, TextInput } from "@mantine/core"
import { fromUnits } from "../../ui/amounts.ts"
import { facts } from "../api/facts.ts"
import { divide, percentE4, percentText, restOf } from "./split-math.ts"

export interface RecipientText {
  address: string
  percent: string
  label: string
}

export interface SplitValue {
  recipients: RecipientText[]
  /** Which of them gets the rest. */
  rest: number
}

export const emptySplit: SplitValue = {
  recipients: [
    { address: "", percent: "", label: "" },
    { address: "", percent: "50", label: "" },
  ],
  rest: 0,
}

/** Each with its percentage, the rest computed. */
const filled = ({ recipients, rest }: SplitValue): RecipientText[] => {
  const left = restOf(
    recipients.map(({ percent }) => percent),
    rest,
  )
  return recipients.map((each, i) => (i === rest ? { ...each, percent: left > 0 ? percentText(left) : "" } : each))
}

/** What the API takes, or what is wrong in words. */
export function recipientsOf(value: SplitValue) {
  const all = filled(value)
  const [unread] = all.filter(({ percent }) => !percentE4(percent))
  if (all.some(({ address }) => !/^0x[0-9a-fA-F]{40}$/.test(address.trim())))
    return "Each recipient needs an address: 0x and 40 digits."
  if (
    restOf(
      all.map(({ percent }) => percent),
      -1,
    ) !== 0 ||
    unread
  )
    return "The other recipients take 100 % or more: leave something for the marked row, and give each recipient a share."
  return all.map(({ address, percent, label }) => ({
    address: address.trim(),
    percent: Number(percent.replace(",", ".")),
    label: label.trim() || null,
  }))
}

const EXAMPLE = 10n
const MOST = 50

export function SplitEditor({ value, onChange }: { value: SplitValue; onChange: (value: SplitValue) => void }) {
  const shown = filled(value)
  const { symbol, decimals } = facts.networks[0]?.token ?? { symbol: "USDC", decimals: 6 }
  const percents = shown.map(({ percent }) => percentE4(percent) ?? 0)
  const isWhole = percents.every(each => each > 0) && percents.reduce((sum, each) => sum + each, 0) === 1_000_000
  const parts = isWhole ? divide(EXAMPLE * 10n ** BigInt(decimals), percents) : undefined
  const set = (i: number, more: Partial<RecipientText>) =>
    onChange({ ...value, recipients: value.recipients.map((each, at) => (at === i ? { ...each, ...more } : each)) })
  const remove = (i: number) => {
    const recipients = value.recipients.filter((_, at) => at !== i)
    onChange({ recipients, rest: value.rest > i ? value.rest - 1 : Math.min(value.rest, recipients.length - 1) })
  }
  return (
    <fieldset className="split">
      <legend className="unseen">Recipients</legend>
      {shown.map((each, i) => (
        <div key={i} className="split-row">
          <TextInput
            label={`Recipient ${i + 1}`}
            placeholder="0x…"
            classNames={{ input: "mono" }}
            value={each.address}
            onChange={event => set(i, { address: event.currentTarget.value })}
          />
          <TextInput
            label="Name"
            placeholder="Author"
            value={each.label}
            onChange={event => set(i, { label: event.currentTarget.value })}
          />
          <TextInput
            label="Percent"
            classNames={{ input: "num strong" }}
            inputMode="decimal"
            value={each.percent}
            readOnly={i === value.rest}
            data-rest={i === value.rest || undefined}
            rightSection={<span className="quiet">%</span>}
            onChange={event => set(i, { percent: event.currentTarget.value })}
          />
          <label className="gets-rest">
            <input
              type="radio"
              name="rest"
              checked={i === value.rest}
              onChange={() => onChange({ recipients: shown, rest: i })}
            />
            <span>gets the rest</span>
          </label>
          <button
            type="button"
            className="remove"
            aria-label={`Remove recipient ${i + 1}`}
            disabled={shown.length <= 2}
            onClick={() => remove(i)}
          >
            ✕
          </button>
        </div>
      ))}
      <div className="row between">
        <Button
          size="xs"
          disabled={shown.length >= MOST}
          onClick={() =>
            onChange({ ...value, recipients: [...value.recipients, { address: "", percent: "", label: "" }] })
          }
        >
          Add a recipient
        </Button>
        <span className="num quiet">{isWhole ? "100 % in all" : "The percentages do not add up to 100 % yet"}</span>
      </div>
      <div className="example" aria-live="polite">
        <div className="label">
          Of {String(EXAMPLE)} {symbol}
        </div>
        {parts ? (
          parts.map((part, i) => (
            <div key={i} className="row between">
              <span className="second">{shown[i]?.label || `Recipient ${i + 1}`}</span>
              <span className="num strong">
                {fromUnits(part, decimals)} <span className="quiet">{symbol}</span>
              </span>
            </div>
          ))
        ) : (
          <div className="quiet">Shown when the percentages add up.</div>
        )}
      </div>
    </fieldset>
  )
}
