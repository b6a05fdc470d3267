/**
 * The euro reference rates of the European Central Bank: its XML (one day, 90 days or all), and its CSV of all days.
 * https://www.ecb.europa.eu/stats/policy_and_exchange_rates/euro_reference_exchange_rates/html/index.en.html
 */

/** One day's rates as the ECB published them: how much of each currency one euro was worth. */
export interface EcbDay {
  /** YYYY-MM-DD. */
  date: string
  perEuro: Record<string, string>
}

const DAY = /<Cube\s+time=["'](\d{4}-\d{2}-\d{2})["']\s*>([\s\S]*?)<\/Cube>/g
const RATE = /<Cube\s+currency=["']([A-Z]{3})["']\s+rate=["'](\d{1,9}(?:\.\d{1,9})?)["']\s*\/>/g
const NUMBER = /^\d{1,9}(\.\d{1,9})?$/

/**
 * Returns the days of an ECB file, oldest first. Throws an Error with a sentence for any other file. Also throws for a
 * day without the US dollar, because everything else is computed from that rate.
 */
export function parseEcb(file: string): EcbDay[] {
  const days = file.trimStart().startsWith("<") ? parseXml(file) : parseCsv(file)
  if (days.length === 0) throw new Error("The file is neither the XML nor the CSV of the ECB's euro reference rates.")
  const faulty = days.find(day => !isPositive(day.perEuro.USD))
  if (faulty) throw new Error(`The file's rates of ${faulty.date} do not include the US dollar.`)
  return days.toSorted((a, b) => (a.date < b.date ? -1 : 1))
}

const isPositive = (rate: string | undefined) => rate !== undefined && NUMBER.test(rate) && Number(rate) > 0

const parseXml = (file: string): EcbDay[] =>
  [...file.matchAll(DAY)].map(([, date = "", cubes = ""]) => ({
    date,
    perEuro: Object.fromEntries(
      [...cubes.matchAll(RATE)].flatMap(([, currency = "", rate = ""]) => (isPositive(rate) ? [[currency, rate]] : [])),
    ),
  }))

/** Parses `Date,USD,JPY,…` with one line for each day, and `N/A` where a currency has no rate. */
function parseCsv(file: string): EcbDay[] {
  const [header = "", ...lines] = file.split(/\r?\n/)
  const [first, ...currencies] = header.split(",").map(name => name.trim())
  if (first !== "Date") return []
  return lines.flatMap(line => {
    const [date = "", ...rates] = line.split(",").map(cell => cell.trim())
    if (!/^\d{4}-\d{2}-\d{2}$/.test(date)) return []
    const named = currencies.map((currency, i) => [currency, rates[i] ?? ""] as const)
    return [
      {
        date,
        perEuro: Object.fromEntries(named.filter(([name, rate]) => /^[A-Z]{3}$/.test(name) && isPositive(rate))),
      },
    ]
  })
}
