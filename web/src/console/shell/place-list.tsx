/** The pages, as the sidebar and the phone's sheet list them. */
import { Link } from "@tanstack/react-router"
import { Icon } from "./icons.tsx"
import { isAt, places } from "./places.ts"

export const exactly = { exact: true, includeSearch: false } as const

interface Shown {
  path: string
  count: number | undefined
}

export function Places({ path, count, onClick }: Shown & { onClick?: (() => void) | undefined }) {
  return places.map(({ to, name, icon, group, also = [] }, i) => (
    <div key={to}>
      {group !== undefined && places[i - 1]?.group !== group && <div className="group">{group}</div>}
      {/* The router marks what the address begins with, as Payments for a checkout; only `isAt` decides. */}
      <Link
        to={to}
        activeOptions={exactly}
        className="to"
        aria-current={isAt(path, { to, also }) ? "page" : undefined}
        onClick={onClick}
      >
        <Icon name={icon} />
        {name}
        {icon === "needs" && count ? <span className="count">{count}</span> : null}
      </Link>
    </div>
  ))
}
