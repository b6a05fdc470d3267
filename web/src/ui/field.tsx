/** A field of a form: its label, its input, and its fault or hint. */
interface Props {
  id: string
  label: string
  value: string
  change: (value: string) => void
  /** The fault of its value. */
  fault?: string | undefined
  /** The purpose of the field, shown while nothing is wrong. */
  hint?: string
  /** Whether the fault is announced when it appears, because the focus stays elsewhere. */
  announce?: boolean
  /** Declared as the literal text, because an input of a variable type has no props type of its own. */
  type?: "text"
  name?: string
  class?: string
  autocomplete?: string
  inputMode?: "decimal"
  dir?: "ltr"
  spellcheck?: boolean
  "aria-invalid"?: boolean
}

/** The field. Its fault is the description of its input. */
export function Field({ id, label, value, change, fault, hint, announce, ...input }: Props) {
  const note = fault || hint
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input
        autocomplete="off"
        aria-invalid={Boolean(fault)}
        {...input}
        id={id}
        value={value}
        aria-describedby={note ? `${id}-note` : undefined}
        onInput={event => change(event.currentTarget.value)}
      />
      {note && (
        <p class={fault ? "fault" : "quiet"} id={`${id}-note`} role={fault && announce ? "alert" : undefined}>
          {note}
        </p>
      )}
    </div>
  )
}

/** A field for an address or a hash: left to right, without a spelling check. */
export const CodeField = (props: Props) => <Field dir="ltr" spellcheck={false} {...props} />
