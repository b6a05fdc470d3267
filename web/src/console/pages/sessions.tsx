/** The browsers in which this person is signed in; each can be signed out from here. */
import { Button } from "@mantine/core"
import { read } from "../api/client.ts"
import { facts } from "../api/facts.ts"
import { useLive } from "../api/live.ts"
import type { Session } from "../api/types.ts"
import { signOut } from "../shell/sign-out.ts"
import { type Column, DataTable } from "../ui/data-table.tsx"
import { PageHead } from "../ui/page.tsx"
import { SettingsTabs } from "../ui/settings-tabs.tsx"
import { isSure } from "../ui/sure.ts"
import { Time } from "../ui/time.tsx"
import { useAct } from "../ui/use-act.ts"
import { wholeList } from "../ui/whole-list.ts"

const path = "/api/console/sessions"
const ways: Record<string, string> = {
  wallet: "Wallet",
  provider: facts.signIn.provider ?? "Identity provider",
  sandbox: "Sandbox sign-in",
}

/** `Firefox on Linux`, for a person to recognise. */
function browserOf(agent: string | null): string {
  if (!agent) return "A browser"
  const browser = /(Edg|OPR|Firefox|HeadlessChrome|Chrome|Safari)\//.exec(agent)?.[1] ?? "A browser"
  const system = /(Windows|Android|iPhone|iPad|Mac OS X|CrOS|Linux)/.exec(agent)?.[1]
  const names: Record<string, string> = { Edg: "Edge", OPR: "Opera", HeadlessChrome: "Chrome", "Mac OS X": "macOS" }
  return [names[browser] ?? browser, system && `on ${names[system] ?? system}`].filter(Boolean).join(" ")
}

export function Sessions() {
  const query = useLive(["sessions"], async signal => (await read<{ data: Session[] }>(path, {}, signal)).data, {
    every: 30_000,
  })
  const end = useAct({ done: "That browser is signed out" })
  const others = query.data?.filter(({ current }) => !current) ?? []
  const endOthers = async () => {
    const words = "Only this browser stays signed in."
    const title = `Sign out ${others.length} other ${others.length === 1 ? "browser" : "browsers"}?`
    if (!(await isSure({ title, words, yes: "Sign them out" }))) return
    for (const { id } of others) end.mutate({ method: "DELETE", path: `${path}/${id}` })
  }
  const columns: Column<Session>[] = [
    {
      head: "Browser",
      width: 18,
      cell: row => (
        <>
          <span className="strong">{browserOf(row.userAgent)}</span>
          {row.current && <span className="quiet"> · this one</span>}
        </>
      ),
    },
    { head: "Signed in by", width: 10, wide: true, cell: row => ways[row.way] ?? row.way },
    { head: "From", width: 12, wide: true, cell: row => <span className="num quiet">{row.address ?? "–"}</span> },
    { head: "Last seen", width: 8, right: true, cell: row => <Time at={row.lastSeenAt} /> },
    { head: "Ends", width: 8, wide: true, right: true, cell: row => <Time at={row.expiresAt} /> },
    {
      head: "",
      width: 6,
      right: true,
      cell: row => (
        <Button
          size="xs"
          onClick={() => (row.current ? void signOut() : end.mutate({ method: "DELETE", path: `${path}/${row.id}` }))}
        >
          Sign out
        </Button>
      ),
    },
  ]
  return (
    <>
      <PageHead
        title="Signed-in browsers"
        request={{ path }}
        of={query}
        actions={others.length > 0 && <Button onClick={endOthers}>Sign out all others</Button>}
      />
      <SettingsTabs />
      <section className="card" aria-label="List">
        <DataTable
          name="browsers"
          columns={columns}
          list={wholeList(query)}
          empty={<p>You are signed in nowhere.</p>}
        />
      </section>
    </>
  )
}
