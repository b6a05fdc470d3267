/** Who changed something and what, as the audit log and its entries name them. */
import { useQuery } from "@tanstack/react-query"
import { read } from "../api/client.ts"
import { facts } from "../api/facts.ts"
import { retries } from "../api/live.ts"
import { personText, useMe } from "../api/me.ts"
import type { AuditEntry, Member, Page } from "../api/types.ts"
import { Id, shortId } from "./copy.tsx"

/** Who can change something, as the filter and the list name them. */
export const kinds: Record<AuditEntry["actor"]["kind"], string> = {
  console: "A person",
  api_key: "An API key",
  subscriber: "A payer",
  operator: "The operator",
  service: "The service itself",
}

/** Whoever a subject is, by the list of the team; the own person is "You". */
function PersonName({ subject }: { subject: string }) {
  const { data: me } = useMe()
  const isMe = subject === me.person.subject
  const { data } = useQuery({
    queryKey: ["people"],
    queryFn: async ({ signal }) => (await read<Page<Member>>("/api/console/team", { limit: 100 }, signal)).data,
    enabled: !isMe,
    staleTime: 60_000,
    ...retries,
  })
  return isMe ? "You" : personText({ email: data?.find(each => each.subject === subject)?.email ?? null, subject })
}

/** Who did it: a person by name, others by their id or their kind. */
export function Who({ kind, id }: Pick<AuditEntry["actor"], "kind" | "id">) {
  if (id === null) return <span className="quiet">{kinds[kind]}</span>
  return (
    <span className="cut" title={id}>
      {kind === "console" ? <PersonName subject={id} /> : /^[a-z]+_[a-z0-9]{16,}$/.test(id) ? shortId(id) : id}
    </span>
  )
}

/** What was changed: a payout address is that of a network. */
export function Of({ id, type }: AuditEntry["object"]) {
  const network = facts.networks.find(({ chainId }) => id === `eip155:${chainId}`)
  return network ? <span title={`${type} ${id}`}>{network.title}</span> : <Id value={id} />
}
