/** Fields that few need, behind a line; open as soon as one of them is at fault. */
import { type ReactNode, useState } from "react"

interface Given {
  errors: Record<string, ReactNode>
  /** The names of the fields in it. */
  of: readonly string[]
  children: ReactNode
}

/** What is in it is not there before it is opened: some of it asks the server. */
export function MoreFields({ errors, of, children }: Given) {
  const [isOpen, setOpen] = useState(false)
  const isShown = isOpen || of.some(name => errors[name])
  return (
    <details className="more-fields" open={isShown} onToggle={event => setOpen(event.currentTarget.open)}>
      <summary>Advanced</summary>
      {isShown && <div className="form">{children}</div>}
    </details>
  )
}
