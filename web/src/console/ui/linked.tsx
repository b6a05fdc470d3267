/** A hash or an address, and beside it the way to the block explorer where there is one. */
import { explorerUrl } from "../api/facts.ts"
import { Hash } from "./copy.tsx"

export function Linked({ chain, kind, value }: { chain: string; kind: "tx" | "address"; value: string }) {
  const url = explorerUrl(chain, kind, value)
  return (
    <span className="row end" style={{ gap: 6 }}>
      <Hash value={value} what={kind === "tx" ? "Hash" : "Address"} dot={kind === "address"} />
      {url && (
        <a href={url} target="_blank" rel="noreferrer" aria-label="Open in the block explorer">
          ↗
        </a>
      )}
    </span>
  )
}
