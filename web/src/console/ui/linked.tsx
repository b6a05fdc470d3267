/** What leads further: a hash or an address to the block explorer where there is one, an id of ours to its page. */
import { Link } from "@tanstack/react-router"
import { explorerUrl } from "../api/facts.ts"
import { Hash, shortId } from "./copy.tsx"

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

/** The page of a thing of ours below `to`, named by its id: a link that says "open it" says nothing of what it opens. */
export const IdLink = ({ to, id }: { to: string; id: string }) => (
  <Link to={`${to}/${id}`} className="plain-link mono over" title={id}>
    {shortId(id)}
  </Link>
)
