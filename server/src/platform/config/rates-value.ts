/** Parses RATES: the source of currency rates. */

/**
 * `ecb`: the European Central Bank's file, read from RATES_URL. `fixed`: the value of one unit in US dollars, as
 * decimal text by unit.
 */
export type Rates = "ecb" | { fixed: Readonly<Record<string, string>> }

const UNIT = /^([A-Z][A-Z0-9]{2,9})=(\d{1,9}(?:\.\d{1,12})?)$/

/** Reads `ecb` or `fixed:EUR=1.08,USDC=0.9998`. */
export function rates(value: string): Rates {
  if (value === "ecb") return "ecb"
  const [kind, list] = value.split(/:(.*)/s, 2)
  const pairs = (list ?? "").split(",").map(each => UNIT.exec(each.trim()))
  const fixed = Object.fromEntries(pairs.flatMap(pair => (pair && Number(pair[2]) > 0 ? [[pair[1], pair[2]]] : [])))
  if (kind !== "fixed" || Object.keys(fixed).length !== pairs.length || "USD" in fixed)
    throw new Error(
      "must be ecb, or fixed: followed by what one unit of each currency is worth in US dollars, such as fixed:EUR=1.08,GBP=1.27",
    )
  return { fixed }
}
