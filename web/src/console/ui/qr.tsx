/** A QR code as one path; black on white in the dark too, as cameras want it. */
import { Button } from "@mantine/core"
import { encode } from "uqr"

/** What scanners want around the code, in its squares. */
const MARGIN = 4

export default function Qr({ text }: { text: string }) {
  const { data, size } = encode(text, { border: 0 })
  const path = data.flatMap((row, y) => row.flatMap((isDark, x) => (isDark ? `M${x} ${y}h1v1h-1z` : []))).join("")
  const side = size + 2 * MARGIN
  const file = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="-${MARGIN} -${MARGIN} ${side} ${side}" shape-rendering="crispEdges"><path fill="#fff" d="M-${MARGIN} -${MARGIN}h${side}v${side}h-${side}z"/><path d="${path}"/></svg>`
  return (
    <>
      <svg className="qr" viewBox={`-1 -1 ${size + 2} ${size + 2}`} role="img" aria-label="QR code of the address">
        <path d={path} fill="#000" shapeRendering="crispEdges" />
      </svg>
      <div className="row">
        <Button size="xs" component="a" href={`data:image/svg+xml,${encodeURIComponent(file)}`} download="qr-code.svg">
          Download as SVG
        </Button>
      </div>
    </>
  )
}
