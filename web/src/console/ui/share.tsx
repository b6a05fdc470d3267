/** How something that is sold reaches its buyers: its address, a QR code, the code for a site. */
import { Button } from "@mantine/core"
import { useState } from "react"
import { copyText } from "./copy.tsx"
import { later } from "./later.tsx"

const Qr = later(async () => (await import("./qr.tsx")).default)

interface Given {
  url: string
  embed?: string
  title?: string
  /** What comes next where nobody has used it yet. */
  first?: string
}

export function Share({ url, embed, title = "Share", first }: Given) {
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
      {first && <p className="second">{first}</p>}
      <div className="row">
        <Button
          size="xs"
          variant={first ? "filled" : "default"}
          component="a"
          href={url}
          target="_blank"
          rel="noreferrer"
        >
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
