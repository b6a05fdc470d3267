/** How something that is sold reaches its buyers: its address, a QR code, the code for a site. */
import { Button } from "@mantine/core"
import { useState } from "react"
import { encode } from "uqr"
import { copyText } from "./copy.tsx"

/** A QR code as one path; black on white in the dark too, as cameras want it. */
function Qr({ text }: { text: string }) {
  const { data, size } = encode(text, { border: 0 })
  const path = data.flatMap((row, y) => row.flatMap((isDark, x) => (isDark ? `M${x} ${y}h1v1h-1z` : [])))
  return (
    <svg className="qr" viewBox={`-1 -1 ${size + 2} ${size + 2}`} role="img" aria-label="QR code of the address">
      <path d={path.join("")} fill="#000" shapeRendering="crispEdges" />
    </svg>
  )
}

export function Share({ url, embed, title = "Share" }: { url: string; embed?: string; title?: string }) {
  const [isQr, setQr] = useState(false)
  return (
    <section className="card pad stack tight">
      <h2>{title}</h2>
      <div className="row" style={{ flexWrap: "nowrap" }}>
        <a className="mono cut" href={url} target="_blank" rel="noreferrer" style={{ flex: 1 }}>
          {url.replace(/^https?:\/\//, "")}
        </a>
        <Button size="xs" onClick={() => copyText(url, "Address")}>
          Copy
        </Button>
      </div>
      <div className="row">
        <Button size="xs" component="a" href={url} target="_blank" rel="noreferrer">
          Open as a payer
        </Button>
        <Button size="xs" onClick={() => setQr(!isQr)} aria-expanded={isQr}>
          {isQr ? "Hide the QR code" : "QR code"}
        </Button>
        {embed && (
          <Button size="xs" onClick={() => copyText(embed, "Embed code")}>
            Copy embed code
          </Button>
        )}
      </div>
      {isQr && <Qr text={url} />}
    </section>
  )
}
