/** The merchant's name at the top left, also before its menu is loaded. */
import { forwardRef } from "react"
import { useMembership } from "../api/me.ts"

export const TeamName = forwardRef<HTMLButtonElement, { className?: string }>(function TeamName(
  { className = "", ...props },
  ref,
) {
  const name = useMembership()?.name || "Your account"
  return (
    <button type="button" className={`who ${className}`} {...props} ref={ref}>
      <span className="crest" aria-hidden="true">
        {[...name][0]?.toUpperCase()}
      </span>
      <span className="cut">{name}</span>
      <span className="unseen">account menu</span>
    </button>
  )
})
