/** A row of a list as its file has it: the fields of its value are columns of their own. */
export function flatValue<T extends Record<string, unknown>>({ value, ...row }: T): Record<string, unknown> {
  const { amount, currency, source, rate, rateAt } = (value ?? {}) as Record<string, string | null>
  return {
    ...row,
    value: amount ?? null,
    valueCurrency: currency ?? null,
    rate: rate ?? null,
    rateSource: source ?? null,
    rateAt: rateAt ?? null,
  }
}
