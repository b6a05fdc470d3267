/** What the server wrote into the page: who is signed in, where payers go, the mode, the networks. */
import type { components } from "../../../../tools/openapi/api.d.ts"

interface Facts {
  config: components["schemas"]["ConsoleConfig"]
  me: components["schemas"]["Me"]
}

const read = (): Facts => JSON.parse(document.getElementById("facts")?.textContent ?? "null") as Facts

export const { config: facts, me: firstMe }: Facts = read()
export const isSandbox: boolean = facts.mode === "sandbox"

/** The title of a network by its name. */
export const networkTitle = (chain: string): string =>
  facts.networks.find(({ network }) => network === chain)?.title ?? chain

/** The page of a transaction or an address at the network's block explorer; undefined where there is none, as in the sandbox. */
export function explorerUrl(chain: string, kind: "tx" | "address", value: string): string | undefined {
  const explorer = facts.networks.find(({ network }) => network === chain)?.explorer
  return explorer ? `${explorer.replace(/\/$/, "")}/${kind}/${value}` : undefined
}
