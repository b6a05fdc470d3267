/** The pages, as the sidebar and the phone's sheet list them. */
import { Link } from "@tanstack/react-router"
import { Icon } from "./icons.tsx"
import { isAt, places } from "./places.ts"

interface Shown {
  path: string
  count: number | undefined
}

export function Places({ path, count, onClick }: Shown & { onClick?: (() => void) | undefined }) {
  return places.map(({ to, name, icon, group, also = [] }, i) => (
    <div key={to}>
      {group !== undefined && places[i - 1]?.group !== group && <div className="group">{group}</div>}
      <Link to={to} className="to" aria-current={isAt(path, { to, also }) ? "page" : undefined} onClick={onClick}>
        <Icon name={icon} />
        {name}
        {icon === "needs" && count ? <span className="count">{count}</span> : null}
      </Link>
    </div>
  ))
}
