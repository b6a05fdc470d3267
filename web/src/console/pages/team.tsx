/** The team: who may do what, and invitations. */
import { Button, NativeSelect, TextInput } from "@mantine/core"
import { useState } from "react"
import { facts } from "../api/facts.ts"
import { personText, useMe, useRight } from "../api/me.ts"
import type { Invitation, Member } from "../api/types.ts"
import { usePages } from "../ui/cursor-list.ts"
import { type Column, DataTable } from "../ui/data-table.tsx"
import { bodyOf, given, RequestForm } from "../ui/form.tsx"
import { More } from "../ui/more.tsx"
import { PageHead } from "../ui/page.tsx"
import { NoRight } from "../ui/problem.tsx"
import { Secret } from "../ui/secret.tsx"
import { isSure } from "../ui/sure.ts"
import { Time } from "../ui/time.tsx"
import { useAct } from "../ui/use-act.ts"

const capital = (word: string): string => word.replace(/^./, first => first.toUpperCase())
const path = "/api/console/team"
const invitations = `${path}/invitations`

/** What a role may do, said before it is given. */
const roleWords: Record<Member["role"], string> = {
  owner: "Everything, also payout addresses, splits and the team",
  admin: "Everything but payout addresses, splits and the team",
  developer: "What is sold, webhooks and keys; decides about no money",
  finance: "Accepts, returns and refunds; reads the audit log",
  support: "Returns and refunds up to a limit a day; subscriptions",
  viewer: "Reads, and changes nothing",
}
const roles = Object.keys(roleWords) as Member["role"][]
const roleChoices = roles.map(role => ({ value: role as string, label: capital(role) }))

export function Team() {
  const may = useRight("team")
  const { data: me } = useMe()
  const [isNew, setNew] = useState(false)
  const [made, setMade] = useState<string | undefined>()
  const members = usePages<Member>(path)
  const change = useAct({ done: "The role applies from the next request on" })
  const remove = useAct({ done: "That person is no longer a member" })
  const columns: Column<Member>[] = [
    {
      head: "Person",
      width: 20,
      cell: row => (
        <div className="cut">
          <span className="strong" title={row.subject}>
            {personText(row)}
          </span>
          {row.subject === me.person.subject && <span className="quiet"> · you</span>}
        </div>
      ),
    },
    {
      head: "Role",
      width: 10,
      cell: row =>
        may ? (
          <select
            className="chip pick"
            aria-label={`Role of ${personText(row)}`}
            value={row.role}
            onChange={({ currentTarget }) =>
              change.mutate({ method: "PUT", path: `${path}/${row.id}`, body: { role: currentTarget.value } })
            }
          >
            {roleChoices.map(({ value, label }) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
        ) : (
          capital(row.role)
        ),
    },
    {
      head: "May",
      width: 30,
      wide: true,
      cell: row => (
        <>
          <span className="second">{roleWords[row.role]}</span>
          {row.role === "support" && <SupportLimit member={row} />}
        </>
      ),
    },
    { head: "Since", width: 8, wide: true, cell: row => <Time at={row.joinedAt} /> },
    {
      head: "",
      width: 4,
      right: true,
      cell: row =>
        may && (
          <More
            items={[
              {
                name: "Remove",
                isBad: true,
                act: async () => {
                  const title = `Remove ${personText(row)}?`
                  const words =
                    "The person's open pages end immediately. The API keys that the person created end in seven days unless another member adopts them."
                  if (!(await isSure({ title, words, yes: "Remove" }))) return
                  remove.mutate({ method: "DELETE", path: `${path}/${row.id}` })
                },
              },
            ]}
          />
        ),
    },
  ]
  return (
    <>
      <PageHead
        title="Team"
        request={{ path }}
        actions={
          may ? (
            <Button variant="filled" onClick={() => setNew(true)} disabled={isNew}>
              Invite
            </Button>
          ) : (
            <NoRight right="team" />
          )
        }
      />
      <div className="stack">
        {made && (
          <Secret
            title="The invitation"
            secret={made}
            words="Send it to the person, who signs in here and accepts it within 7 days."
            close={() => setMade(undefined)}
          />
        )}
        {isNew && (
          <Invite
            close={() => setNew(false)}
            done={token => {
              setNew(false)
              setMade(token)
            }}
          />
        )}
        <section className="card" aria-label="Members">
          <DataTable name="members" columns={columns} list={members} empty={<p>Nobody is a member.</p>} />
        </section>
        <Invitations />
      </div>
    </>
  )
}

const first = { role: "viewer" as string, email: "", wallet: "" }

function Invite({ done, close }: { done: (token: string) => void; close: () => void }) {
  return (
    <section className="card pad" aria-label="Invite" style={{ maxWidth: 640 }}>
      <RequestForm<typeof first, { token: string }>
        first={first}
        right="team"
        submit="Invite"
        done="The invitation is ready to be sent"
        onDone={({ token }) => done(token)}
        onCancel={close}
        request={({ role, email, wallet }) =>
          email.trim() === "" && wallet.trim() === ""
            ? "Name an e-mail address or a wallet: only that person can accept it."
            : {
                method: "POST",
                path: invitations,
                body: bodyOf({
                  role,
                  email: given(email),
                  wallet: given(wallet),
                  chain: given(wallet) && facts.networks[0]?.network,
                }),
              }
        }
        fields={form => (
          <>
            <TextInput label="E-mail address" autoFocus {...form.getInputProps("email")} />
            <TextInput
              label="Or a wallet"
              placeholder="0x…"
              classNames={{ input: "mono" }}
              {...form.getInputProps("wallet")}
            />
            <NativeSelect
              label="Role"
              description={roleWords[form.values.role as Member["role"]]}
              data={roleChoices}
              {...form.getInputProps("role")}
            />
          </>
        )}
      />
    </section>
  )
}

function Invitations() {
  const may = useRight("team")
  const list = usePages<Invitation>(invitations)
  const revoke = useAct({ done: "The invitation can no longer be accepted" })
  if (list.rows?.length === 0) return null
  return (
    <section className="card" aria-label="Invitations">
      <div className="pad head">
        <h2>Invitations</h2>
      </div>
      <DataTable
        name="invitations"
        list={list}
        empty={null}
        columns={[
          { head: "For", width: 20, cell: row => <span className="strong">{row.email ?? row.wallet}</span> },
          { head: "Role", width: 8, cell: row => capital(row.role) },
          { head: "Ends", width: 8, wide: true, cell: row => <Time at={row.expiresAt} /> },
          {
            head: "",
            width: 6,
            right: true,
            cell: row =>
              may && (
                <Button size="xs" onClick={() => revoke.mutate({ method: "DELETE", path: `${invitations}/${row.id}` })}>
                  Revoke
                </Button>
              ),
          },
        ]}
      />
    </section>
  )
}

/** How much a member with the role support may send back in a day: nothing until an owner says so. */
function SupportLimit({ member }: { member: Member }) {
  const may = useRight("team")
  const [typed, setTyped] = useState(String(member.moneyPerDay ?? 0))
  const change = useAct({ done: "The limit applies from the next decision on" })
  const isOther = /^\d+$/.test(typed) && Number(typed) !== member.moneyPerDay
  if (!may) return <div className="quiet">Up to {member.moneyPerDay ?? 0} of a token a day</div>
  return (
    <form
      className="row"
      style={{ padding: "4px 0" }}
      onSubmit={event => {
        event.preventDefault()
        change.mutate({
          method: "PUT",
          path: `${path}/${member.id}`,
          body: { role: "support", moneyPerDay: Number(typed) },
        })
      }}
    >
      <TextInput
        size="xs"
        style={{ width: 88 }}
        inputMode="numeric"
        aria-label={`Limit a day of ${personText(member)}`}
        value={typed}
        onChange={event => setTyped(event.currentTarget.value)}
      />
      <span className="quiet">of a token a day</span>
      {isOther && (
        <Button size="xs" type="submit" loading={change.isPending}>
          Save
        </Button>
      )}
    </form>
  )
}
