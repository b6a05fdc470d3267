/** The pages of the settings, beside each other. */
import { Link, useRouterState } from "@tanstack/react-router"

const tabs = [
  ["/payout-address", "Where money goes"],
  ["/settings", "Account and look"],
  ["/notifications", "Mail"],
  ["/sessions", "Signed-in browsers"],
  ["/audit", "Audit log"],
  ["/erasure", "Customers' data"],
] as const

export function SettingsTabs() {
  const path = useRouterState({ select: ({ location }) => location.pathname })
  return (
    <nav className="tabs" aria-label="Settings">
      {tabs.map(([to, name]) => (
        <Link key={to} to={to} aria-current={path === to ? "page" : undefined}>
          {name}
        </Link>
      ))}
    </nav>
  )
}
