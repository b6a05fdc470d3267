/** ⌘K: pages, things to create, and what the search finds. */

import { useDebouncedValue } from "@mantine/hooks"
import { Spotlight, spotlight } from "@mantine/spotlight"
import { useQuery } from "@tanstack/react-query"
import { useNavigate } from "@tanstack/react-router"
import { useEffect, useState } from "react"
import { read } from "../api/client.ts"
import { retries } from "../api/live.ts"
import { onOpenFind } from "./find-store.ts"
import { creations, inner, places } from "./places.ts"
import { signOut } from "./sign-out.ts"
import { themeChoice } from "./theme-choice.ts"

interface Found {
  type: string
  id: string
  title: string
  matched: string
  url: string
}

const FROM_CHARACTERS = 3
const WAIT_MS = 250
const idKinds: [RegExp, string][] = [
  [/^(pay|set)_[a-z0-9]{24}$/, "/payments/"],
  [/^po_[0-9a-f]{32}$/, "/payouts/"],
  [/^cs_[a-z0-9]{24}$/, "/payments/"],
  [/^pw_[a-z0-9]{24}$/, "/paywalls/"],
  [/^prod_[a-z0-9]{24}$/, "/products/"],
  [/^sub_[a-z0-9]{24}$/, "/subscriptions/"],
  [/^evt_[a-z0-9]{24}$/, "/events/"],
  [/^0x[0-9a-fA-F]{40}$/, "/payers/"],
]

/** Where an id that was pasted whole leads, without asking. */
const placeOfId = (text: string): string | undefined => {
  const kind = idKinds.find(([form]) => form.test(text))
  return kind && `${kind[1]}${text}`
}

/** The server names places below `/console`. */
const localUrl = (url: string): string => url.replace(/^(https?:\/\/[^/]+)?\/console/, "") || "/"

/** Opened as soon as it is there: it is loaded when it is first wanted. */
export default function Find() {
  useEffect(() => {
    onOpenFind(spotlight.open)
    spotlight.open()
  }, [])
  const navigate = useNavigate()
  const [typed, setTyped] = useState("")
  const [settled] = useDebouncedValue(typed.trim(), WAIT_MS)
  const search = useQuery({
    queryKey: ["search", settled],
    queryFn: ({ signal }) => read<{ data: Found[] }>("/api/console/search", { q: settled }, signal),
    enabled: settled.length >= FROM_CHARACTERS,
    staleTime: 10_000,
    ...retries,
    retry: false,
  })
  const go = (to: string) => ({ onClick: () => void navigate({ to }) })
  const direct = placeOfId(typed.trim())
  const found = search.data?.data ?? []
  const matches = (label: string) => label.toLowerCase().includes(typed.trim().toLowerCase())
  const commands = [
    ...[...places, ...inner].map(({ name, to, key }) => ({ label: name, to, hint: key && `g ${key}` })),
    ...creations.map(({ name, to }) => ({ label: name, to, hint: "" })),
  ].filter(({ label }) => matches(label))
  const others = [
    { label: "Light", act: () => themeChoice.set("light") },
    { label: "Dark", act: () => themeChoice.set("dark") },
    { label: "Sign out", act: () => void signOut() },
  ].filter(({ label }) => typed !== "" && matches(label))
  return (
    <Spotlight.Root
      query={typed}
      onQueryChange={setTyped}
      shortcut={["mod + K"]}
      onSpotlightClose={() => setTyped("")}
      scrollable
      overlayProps={{ blur: 0, backgroundOpacity: 0.4 }}
      maxHeight={420}
    >
      <Spotlight.Search
        placeholder="Order, hash, address, e-mail, amount, or a command"
        aria-label="Find anything"
        onKeyDown={event => {
          // Nothing is chosen yet where the answer has just come: then Enter means the first.
          const actions =
            event.key === "Enter" ? document.querySelectorAll<HTMLElement>(".mantine-Spotlight-action") : []
          if (actions.length > 0 && ![...actions].some(({ dataset }) => dataset.selected)) actions[0]?.click()
        }}
      />
      <Spotlight.ActionsList>
        {direct && <Spotlight.Action label={`Open ${typed.trim()}`} {...go(direct)} />}
        {found.length > 0 && (
          <Spotlight.ActionsGroup label="Found">
            {found.map(({ id, type, title, matched, url }) => (
              <Spotlight.Action key={`${type}${id}`} {...go(localUrl(url))}>
                <span className="cut" style={{ flex: 1 }}>
                  {title}
                  <span className="quiet"> · {matched}</span>
                </span>
                <span className="quiet">{type}</span>
              </Spotlight.Action>
            ))}
          </Spotlight.ActionsGroup>
        )}
        {commands.length > 0 && (
          <Spotlight.ActionsGroup label="Go to">
            {commands.map(({ label, to, hint }) => (
              <Spotlight.Action key={to} {...go(to)}>
                <span style={{ flex: 1 }}>{label}</span>
                {hint && <kbd>{hint}</kbd>}
              </Spotlight.Action>
            ))}
          </Spotlight.ActionsGroup>
        )}
        {others.map(({ label, act }) => (
          <Spotlight.Action key={label} label={label} onClick={act} />
        ))}
        {!direct && found.length === 0 && commands.length === 0 && others.length === 0 && (
          <Spotlight.Empty>{search.isFetching ? "Searching …" : `Nothing is named “${typed.trim()}”.`}</Spotlight.Empty>
        )}
      </Spotlight.ActionsList>
    </Spotlight.Root>
  )
}
