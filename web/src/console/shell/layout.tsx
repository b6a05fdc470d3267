/** Around each page: the sidebar (a bottom bar on phones), the dialogs, the keys. */
import { Link, Outlet, useNavigate, useRouter, useRouterState } from "@tanstack/react-router"
import { useEffect, useRef, useState } from "react"
import { askedNow } from "../api/asked.ts"
import { signedOut } from "../api/client.ts"
import { isSandbox } from "../api/facts.ts"
import { useMembership } from "../api/me.ts"
import { useNeedsCount } from "../api/needs.ts"
import { useZoneOf } from "../api/zone.ts"
import { later } from "../ui/later.tsx"
import { sureNow } from "../ui/sure.ts"
import { FindLater } from "./find-later.tsx"
import { openFind } from "./find-store.ts"
import { Icon } from "./icons.tsx"
import { useKeys } from "./keys.ts"
import { Paused } from "./paused.tsx"
import { exactly, Places } from "./place-list.tsx"
import { inner, isAt, places } from "./places.ts"
import { TeamName } from "./team-name.tsx"

// What most visits never open is loaded when it is.
const NoMerchant = later(async () => (await import("../pages/no-merchant.tsx")).default)
const Help = later(async () => (await import("./help.tsx")).default)
const SureDialog = later(async () => (await import("../ui/sure-dialog.tsx")).default)
const SignedOutDialog = later(async () => (await import("./signed-out.tsx")).default)
const WalletDialog = later(async () => (await import("./wallet-dialog.tsx")).default)
const MoreSheet = later(async () => (await import("./more-sheet.tsx")).default)
const TeamSwitch = later(async () => (await import("./team-switch.tsx")).default, <TeamName />)

const isMac = /Mac|iPhone|iPad/.test(navigator.platform)

export function Layout() {
  const membership = useMembership()
  useZoneOf(membership)
  const isOut = signedOut.use()
  const asked = askedNow.use()
  const isAsked = sureNow.use() !== undefined
  return (
    <>
      {membership ? <Shell /> : <NoMerchant />}
      {isOut && <SignedOutDialog />}
      {asked && <WalletDialog />}
      {isAsked && <SureDialog />}
    </>
  )
}

function Shell() {
  const path = useRouterState({ select: ({ location }) => location.pathname })
  const count = useNeedsCount()
  const navigate = useNavigate()
  const router = useRouter()
  const [isHelping, setHelping] = useState(false)
  const main = useRef<HTMLElement>(null)
  const keys = Object.fromEntries([...places, ...inner].map(({ key, to }) => [`g ${key}`, () => void navigate({ to })]))
  useKeys({
    ...keys,
    "/": openFind,
    "?": () => setHelping(true),
    c: () => void navigate({ to: "/checkouts/new" }),
    Escape: () => path.split("/").length > 2 && router.history.back(),
  })
  // A screen reader begins at the new page.
  const first = useRef(path)
  useEffect(() => {
    if (first.current === path) return
    first.current = path
    main.current?.focus({ preventScroll: true })
  }, [path])
  return (
    <div className="app">
      <a className="skip" href="#main">
        Skip to the page
      </a>
      <nav className="side" aria-label="Pages">
        <TeamSwitch />
        <button type="button" className="find" onClick={openFind}>
          Find anything <kbd>{isMac ? "⌘K" : "Ctrl K"}</kbd>
        </button>
        <Places path={path} count={count} />
        <div className="foot">{isSandbox && <span className="mode">Sandbox: no real money</span>}</div>
      </nav>
      {isSandbox && (
        <aside className="phone-mode" aria-label="Mode">
          Sandbox: no real money
        </aside>
      )}
      <main className="main" id="main" tabIndex={-1} ref={main}>
        <Paused />
        <Outlet />
      </main>
      <BottomBar path={path} count={count} />
      <FindLater />
      {isHelping && <Help opened close={() => setHelping(false)} />}
    </div>
  )
}

function BottomBar({ path, count }: { path: string; count: number | undefined }) {
  const [isOpen, setOpen] = useState(false)
  const shown = places.filter(({ icon }) => ["home", "payments", "needs", "checkouts"].includes(icon))
  const isHere = shown.some(({ to }) => isAt(path, { to }))
  return (
    <nav className="bottom" aria-label="Pages">
      {shown.map(({ to, name, icon }) => (
        <Link key={to} to={to} activeOptions={exactly} aria-current={isAt(path, { to }) ? "page" : undefined}>
          <Icon name={icon} />
          {name}
          {icon === "needs" && count ? <span className="count">{count}</span> : null}
        </Link>
      ))}
      <button
        type="button"
        onClick={() => setOpen(true)}
        aria-expanded={isOpen}
        aria-current={isHere ? undefined : "true"}
      >
        <Icon name="more" />
        More
      </button>
      {isOpen && <MoreSheet path={path} count={count} close={() => setOpen(false)} />}
    </nav>
  )
}
