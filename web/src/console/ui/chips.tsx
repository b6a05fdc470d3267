/** Filters as chips, one pressed at a time; the choice is in the address of the page. */
export function Chips<T extends string>({
  name,
  choices,
  value,
  set,
}: {
  name: string
  choices: readonly (readonly [T | undefined, string])[]
  value: T | undefined
  set: (value: T | undefined) => void
}) {
  return (
    <fieldset className="row chipset" aria-label={name}>
      {choices.map(([choice, words]) => (
        <button
          key={words}
          type="button"
          className="chip"
          aria-pressed={choice === value}
          onClick={() => set(choice === value ? undefined : choice)}
        >
          {words}
        </button>
      ))}
    </fieldset>
  )
}

/** One of several, as a chip that opens: for choices that need no room. */
export function PickChip<T extends string>({
  name,
  choices,
  value,
  set,
}: {
  name: string
  /** The first is what no choice means. */
  choices: readonly (readonly [T | "", string])[]
  value: T | undefined
  set: (value: T | undefined) => void
}) {
  return (
    <select
      className="chip pick"
      aria-label={name}
      data-on={value !== undefined}
      value={value ?? ""}
      onChange={({ currentTarget }) => set((currentTarget.value as T | "") || undefined)}
    >
      {choices.map(([choice, words]) => (
        <option key={choice} value={choice}>
          {words}
        </option>
      ))}
    </select>
  )
}
