/** The text of docs/merchants/roles.md, from the tables of rights and of routes. */
import { hasRight, type Right, ROLES, rightTable, SCOPES, scopeTable } from "../src/platform/http/rights.ts"
import { type MerchantAccess, type RouteAccess, routeTable } from "../src/platform/http/route-access.ts"

const row = (cells: string[]): string => `| ${cells.join(" | ")} |`

const isMerchants = (access: RouteAccess): access is MerchantAccess => "right" in access
const merchantRoutes = [...routeTable.values()].filter(isMerchants)
const shown = (name: string): string => `\`${name.replaceAll(/:(\w+)/g, "{$1}")}\``

function routesOf(right: Right): string {
  const rows = merchantRoutes
    .filter(access => access.right === right)
    .map(({ name, scopes }) => row([shown(name), scopes.map(each => `\`${each}\``).join(", ") || "–"]))
  return `### \`${right}\`: ${rightTable[right].allows}\n\n${row(["route", "scopes of keys"])}\n|---|---|\n${rows.join("\n")}`
}

/** The whole text, without the line that says how it is made. */
export function rolesDocument(): string {
  const rights = Object.keys(rightTable) as Right[]
  const roleRows = rights.map(right =>
    row([`\`${right}\`: ${rightTable[right].allows}`, ...ROLES.map(role => (hasRight(role, right) ? "✔" : "–"))]),
  )
  const scopeRows = SCOPES.map(scope => row([`\`${scope}\``, scopeTable[scope]]))
  return `# Roles and scopes

What the members of a merchant may do by their role, and what an API key opens by its scopes. One table in the code says it of
each route and method, \`server/src/platform/http/route-access.ts\`. The service checks each request by that table, and refuses to
start with a route that is not in it.

A person is known by the issuer and subject of a token, and may be a member of several merchants. A request of such a person names the
merchant in the header \`Sluice-Merchant\`, or of a GET as \`?merchant=\`; without it, it is answered 400 \`MERCHANT_REQUIRED\` with the list.
\`POST /api/console/team/invitations\` invites by a verified e-mail address or a wallet, once, for seven days. What a role does not allow is
answered 403 \`ROLE_REQUIRED\`, which says who may; a changed role counts from the next request on. The last owner stays one.

Every person may also read \`GET /api/console/me\`, make a merchant with \`POST /api/console/merchants\`, and accept an invitation with
\`POST /api/console/team/accept\`.

## Roles

${row(["may", ...ROLES])}
|---|${ROLES.map(() => "---|").join("")}
${roleRows.join("\n")}

A member with the role support accepts, returns, refunds, captures and voids up to a limit of the member's own: whole tokens in 24 hours, for each
token over all networks. It is 0, and such a request is answered \`ROLE_REQUIRED\`, until an owner sets \`moneyPerDay\`
(\`PUT /api/console/team/{id}\`). What failed or was withdrawn does not count.

## Scopes

A key has one or more scopes, \`checkouts\` where its maker names none. A request without a fitting one is answered 403 \`SCOPE_REQUIRED\`.

${row(["scope", "opens"])}
|---|---|
${scopeRows.join("\n")}

\`read\` opens the GETs of all scopes but \`settings:read\`, and not the audit log. \`console\` opens all routes under \`/api/console\` that a key can open, but
those of \`settings:read\`. No scope opens API keys, or changes settings: a thief of a key could make others that outlive it, or
change where the money goes. While the wallet lock is on, a key gets \`money\` or \`console\` only with the payout wallet's signature.
A member gives a key only scopes that open what the member's own role may do. So \`console\`, which
opens splits, is an owner's to give.

When a member leaves, or gets another role, the keys that this member could not make any more end in seven days. The list of keys says why
and when (\`ending\`). Until then a member with the rights of all of a key's scopes may adopt it
(\`POST /api/console/api-keys/{id}/adopt\`). Whoever changes its scopes, end, addresses or limits adopts it too.

A program without a browser gets a key by the sign-in of a device (\`POST /api/device\`, RFC 8628): a person types its code at
\`/console/device\`, and approves it. Any role may, for scopes within its rights. Such a key ends after 90 days, and at once when
its person leaves or may not give its scopes any more. While the wallet lock is on, it has neither \`money\` nor \`console\`.

## Routes

By the right that a member needs, with the scopes of which a key needs one. \`–\`: for persons alone.

${rights.map(routesOf).join("\n\n")}
`
}
