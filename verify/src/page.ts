/** The script of the page `/verify`, which does the same as the command line. */
import { describe } from "./describe.ts"
import { type Holding, readHolding, readLinked, verifyHolding } from "./file.ts"
import { openNode } from "./rpc.ts"
import { questions } from "./verify.ts"

const byId = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T

/** The link's receipt. Its key leaves the address bar, so that neither the history nor a screenshot shows it. */
const linked = new URLSearchParams(location.hash.slice(1))
if (linked.has("k")) {
  history.replaceState(null, "", location.pathname + location.search)
  byId("linked").hidden = false
}

async function holding(): Promise<Holding> {
  const file = byId<HTMLInputElement>("file").files?.[0]
  if (file) return readHolding(await file.text())
  const [key, root, o, l] = ["k", "root", "o", "l"].map(name => linked.get(name))
  if (!key || !root || !o || !l) throw new Error("Choose the file of a receipt.")
  const response = await fetch(`/receipts/${encodeURIComponent(root)}`)
  if (!response.ok) throw new Error("The bytes of this receipt are not here. Choose its file.")
  const link = { key, root, offset: Number(o), length: Number(l) }
  return readLinked(new Uint8Array(await response.arrayBuffer()), link)
}

async function run(): Promise<void> {
  const url = byId<HTMLInputElement>("rpc").value
  const node = url === "" ? undefined : openNode(url)
  const held = await holding()
  const nodes = new Map(node ? [[await node.chainId(), node] as const] : [])
  const { lines, verified } = await verifyHolding(held, { nodes })
  const [only] = verified
  const said = byId("said")
  said.hidden = held.receipts.length !== 1 || !only?.body
  if (!said.hidden && only?.body) said.textContent = describe(only.body, held.receipts[0])
  byId("lines").replaceChildren(
    ...lines.map(({ n, isSo, words }) => {
      const row = document.createElement("li")
      const mark = document.createElement("b")
      mark.textContent = isSo === undefined ? "·" : isSo ? "✔" : "✗"
      mark.className = isSo === undefined ? "" : isSo ? "yes" : "no"
      const text = document.createElement("div")
      const reason = document.createElement("span")
      reason.textContent = words
      text.append(`${n}. ${questions[n - 1]}`, document.createElement("br"), reason)
      row.append(mark, text)
      return row
    }),
  )
}

byId("form").addEventListener("submit", event => {
  event.preventDefault()
  const state = byId("state")
  state.textContent = "Verifying …"
  run().then(
    () => {
      state.textContent = ""
    },
    (error: Error) => {
      state.textContent = error.message
    },
  )
})
