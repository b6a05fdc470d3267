/** Fields that few need, behind a line; open as soon as one of them is at fault. */
import type { ReactNode } from "react"

interface Given {
  errors: Record<string, ReactNode>
  /** The names of the fields in it. */
  of: readonly string[]
  children: ReactNode
}

export const MoreFields = ({ errors, of, children }: Given) => (
  <details className="more-fields" open={of.some(name => errors[name]) || undefined}>
    <summary>More</summary>
    <div className="form">{children}</div>
  </details>
)
