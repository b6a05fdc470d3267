/** A QR code as one path; black on white in the dark too, as cameras want it. */
import { encode } from "uqr"

export default function Qr({ text }: { text: string }) {
  const { data, size } = encode(text, { border: 0 })
  const path = data.flatMap((row, y) => row.flatMap((isDark, x) => (isDark ? `M${x} ${y}h1v1h-1z` : [])))
  return (
    <svg className="qr" viewBox={`-1 -1 ${size + 2} ${size + 2}`} role="img" aria-label="QR code of the address">
      <path d={path.join("")} fill="#000" shapeRendering="crispEdges" />
    </svg>
  )
}
