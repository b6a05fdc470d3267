/** A QR code as a picture of squares. */
import { encode } from "uqr"

/** The code of a text. `label` describes its content to a screen reader. */
export function Qr({ text, label }: { text: string; label: string }) {
  const { data, size } = encode(text, { ecc: "M", border: 2 })
  let path = ""
  for (const [y, row] of data.entries()) for (const [x, on] of row.entries()) if (on) path += `M${x} ${y}h1v1h-1z`
  return (
    <svg class="qr" viewBox={`0 0 ${size} ${size}`} role="img" aria-label={label} shape-rendering="crispEdges">
      <rect width={size} height={size} fill="#fff" />
      <path d={path} fill="#000" />
    </svg>
  )
}
