/**
 * The size of the pay page and of the console as they are sent (brotli): HTML with styles, and scripts. Fails above the limits, which a
 * slow phone loads within a second or two.
 */
import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { brotliCompressSync } from "node:zlib"
import { catalogues } from "../../web/src/i18n/all.ts"
import { translator } from "../../web/src/i18n/words.ts"
import type { CheckoutPage } from "../../web/src/page-data.ts"
import { accentStyle } from "../src/products/pages/accent.ts"
import { readAssets } from "../src/products/pages/assets.ts"
import { payBody } from "../src/products/pages/bodies.ts"
import { documentOf } from "../src/products/pages/html.ts"

const LIMITS = { page: 14 * 1024, script: 40 * 1024 }

const hex = (letter: string, digits: number) => `0x${letter.repeat(digits)}`
const page: CheckoutPage = {
  kind: "checkout",
  lang: "en",
  merchant: "Blue Bottle Books",
  brand: { logo: `/logo/${"k".repeat(43)}`, accentColor: "#b4451f", allowedOrigins: ["https://shop.example"] },
  sandbox: true,
  network: { chainId: 84532, title: "Base Sepolia", rpcUrl: "https://sepolia.base.org", explorer: null },
  token: { address: hex("a1", 20), symbol: "USDC", decimals: 6, name: "USDC", version: "2" },
  description: "Order 1001: three books, and a lamp to read them by. Delivered within two weeks.",
  status: {
    sessionId: "cs_tz4a98xxat96iws9zmbrgj3a",
    status: "pending",
    exception: null,
    message: "Send 19.90 USDC.",
    amount: "19.90",
    amountReceived: "0.00",
    arriving: "0.00",
    missing: "19.90",
    payTo: hex("e5", 20),
    paused: false,
    stale: false,
    relaying: false,
    gasless: true,
    redirectUrl: "https://shop.example/orders/1001/thanks",
    txHashes: [],
    waiting: [],
    expiresAt: "2026-01-31T12:00:00.000Z",
    over: false,
    payerFields: ["name", "email"],
    confirmations: 0,
    requiredConfirmations: 3,
    submission: null,
  },
}

const assets = readAssets()
const entry = assets.entryOf("src/pay/main.tsx", "src/i18n/en.ts")
if (!entry) throw new Error("The pages were not built.")
const text = documentOf({
  lang: "en",
  title: "Pay",
  entry,
  body: payBody(translator(catalogues.en), page),
  style: accentStyle(page.brand.accentColor),
  data: page,
})
const sent = (path: string) => assets.files.get(path.slice("/assets/".length))?.compressed?.length ?? Number.NaN
const sum = (paths: string[]) => paths.reduce((total, path) => total + sent(path), 0)
const sizes = {
  page: brotliCompressSync(text).length + sum(entry.styles),
  script: sum([entry.script, ...entry.preload]),
}
const build = new URL("../../web/dist/current/assets/", import.meta.url).pathname
const outside = readdirSync(build)
  .filter(name => /\.(js|css)$/.test(name))
  .filter(name => /url\(["']?https?:|@import|from"https?:/.test(readFileSync(join(build, name), "utf8")))
const words = `pay page: HTML and styles ${sizes.page} bytes of ${LIMITS.page}, scripts ${sizes.script} of ${LIMITS.script} (brotli)`
if (!(sizes.page <= LIMITS.page && sizes.script <= LIMITS.script) || outside.length > 0) {
  process.stderr.write(`${words}\n${outside.map(name => `${name} loads from elsewhere\n`).join("")}`)
  process.exit(1)
}
const tooLarge = consoleFaults()
if (tooLarge.length > 0) {
  process.stderr.write(`${tooLarge.join("\n")}\n`)
  process.exit(1)
}
if (process.argv.includes("--verbose")) process.stdout.write(`${words}\n`)

interface Built {
  script: string
  styles: string[]
  preload: string[]
  files: Record<string, { bytes: number; imports: string[]; entry?: string }>
}

/**
 * What of the console is larger than it may be. A page is what its chunk loads that the first load has not: Home's without the chart,
 * which comes after it.
 */
function consoleFaults(): string[] {
  const limits = { first: 160 * 1024, page: 40 * 1024, chart: 24 * 1024, styles: 36 * 1024 }
  const manifest = new URL("../../web/dist/console/current/manifest.json", import.meta.url).pathname
  const { script, styles, preload, files }: Built = JSON.parse(readFileSync(manifest, "utf8"))
  const bytesOf = (names: Iterable<string>) => [...names].reduce((sum, name) => sum + (files[name]?.bytes ?? 0), 0)
  const first = new Set([script, ...preload])
  const found: string[] = []
  const check = (what: string, bytes: number, limit: number): void => {
    const words = `console, ${what}: ${bytes} bytes of ${limit} (brotli)`
    if (bytes > limit) found.push(words)
    if (process.argv.includes("--verbose")) process.stdout.write(`${words}\n`)
  }
  check("first load", bytesOf(first), limits.first)
  check("styles", bytesOf(styles), limits.styles)
  for (const [name, { entry }] of Object.entries(files)) {
    if (entry === undefined || name === script) continue
    const own = new Set<string>()
    const load = (each: string): void => {
      if (first.has(each) || own.has(each)) return
      own.add(each)
      for (const next of files[each]?.imports ?? []) load(next)
    }
    load(name)
    check(entry, bytesOf(own), entry.endsWith("chart.tsx") ? limits.chart : limits.page)
  }
  return found
}
