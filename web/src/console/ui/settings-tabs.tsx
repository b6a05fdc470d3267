/** The pages of the settings, beside each other. */
import { Link, useRouterState } from "@tanstack/react-router"
import { useEffect, useRef } from "react"

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
  const nav = useRef<HTMLElement>(null)
  // On a phone the tabs are wider than the screen.
  useEffect(() => {
    nav.current?.querySelector(`[href$="${path}"]`)?.scrollIntoView({ block: "nearest", inline: "nearest" })
  }, [path])
  return (
    <nav className="tabs" aria-label="Settings" ref={nav}>
      {tabs.map(([to, name]) => (
        <Link key={to} to={to} aria-current={path === to ? "page" : undefined}>
          {name}
        </Link>
      ))}
    </nav>
  )
}
