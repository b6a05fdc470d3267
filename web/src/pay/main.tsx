/** The script of the payers' pages: reads the data that the server wrote into the page, and takes the page over. */
import { render } from "preact"
import "../ui/pages.css"
import { loadCatalogue } from "../i18n/load.ts"
import { translator } from "../i18n/words.ts"
import type { PageData } from "../page-data.ts"
import { WordsContext } from "../ui/context.ts"
import { Checkout } from "./checkout.tsx"
import { answerSite } from "./embedded.ts"
import { Foot } from "./foot.tsx"
import { Link } from "./link.tsx"
import { Return } from "./return.tsx"

async function start(): Promise<void> {
  const root = document.getElementById("app")
  const text = document.getElementById("data")?.textContent
  if (!root || !text) return
  const page = JSON.parse(text) as PageData
  if (page.kind !== "subscriptions") answerSite(page.brand.allowedOrigins)
  if (page.kind === "ended") return
  // A separate chunk, which payers need not load.
  const Subscriptions =
    page.kind === "subscriptions" ? (await import("../subscriptions/subscriptions.tsx")).Subscriptions : undefined
  const t = translator(await loadCatalogue(page.lang))
  root.replaceChildren()
  render(
    <WordsContext.Provider value={{ t, lang: page.lang }}>
      {page.kind === "subscriptions" ? (
        Subscriptions && <Subscriptions page={page} />
      ) : page.kind === "link" ? (
        <Link page={page} />
      ) : page.kind === "return" ? (
        <Return page={page} />
      ) : (
        <Checkout page={page} />
      )}
      <Foot />
    </WordsContext.Provider>,
    root,
  )
}

void start()
