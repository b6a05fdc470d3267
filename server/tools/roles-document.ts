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

A member's role decides what the member can do at a merchant. An API key's scopes decide what the key can do. One table in the code,
\`server/src/platform/http/route-access.ts\`, defines the right and the scopes that each route and method requires. The service checks each
request against that table, and does not start if a route is missing from it.

A person is identified by the issuer and subject of a token, and can be a member of several merchants. Such a person's requests name the
merchant in the header \`Sluice-Merchant\`, or as \`?merchant=\` on a GET. A request that names none gets 400 \`MERCHANT_REQUIRED\` with the
list of merchants. \`POST /api/console/team/invitations\` invites a person by verified e-mail address or by wallet. An invitation can be
accepted once, within seven days. A request that the role does not allow gets 403 \`ROLE_REQUIRED\`, which names the roles that may send it.
A changed role applies from the next request. The last owner can't lose that role.

Everyone who is signed in can also read \`GET /api/console/me\`, create a merchant with \`POST /api/console/merchants\`, and accept an
invitation with \`POST /api/console/team/accept\`.

## Roles

${row(["may", ...ROLES])}
|---|${ROLES.map(() => "---|").join("")}
${roleRows.join("\n")}

A member with the role support can accept, return, refund, capture and void payments up to a personal limit. The limit is in whole tokens
per 24 hours, for each token across all networks. Until an owner sets \`moneyPerDay\` (\`PUT /api/console/team/{id}\`), the limit is 0, and
such a request gets \`ROLE_REQUIRED\`. Failed and withdrawn decisions don't count toward the limit.

## Scopes

A key has one or more scopes; the default is \`checkouts\`. A request that requires another scope gets 403 \`SCOPE_REQUIRED\`.

${row(["scope", "allows"])}
|---|---|
${scopeRows.join("\n")}

\`read\` allows each GET that needs the right \`read\` and that a key can use, except those of \`settings:read\`. \`console\` allows all
routes under \`/api/console\` that a key can use, except those of \`settings:read\`. No scope allows a key to manage API keys or change
settings. Otherwise, anyone with a stolen key could create keys that outlive it, or change where the money goes. While the wallet lock is
on, a key gets \`money\` or \`console\` only with the payout wallet's signature. Members can grant only scopes within their own role. Only
an owner can grant \`console\`, because that scope includes splits.

When a member leaves or gets another role, the keys that this member may no longer create end after seven days. The list of keys says why
and when (\`ending\`). Until then, a member whose rights cover all of a key's scopes can adopt it (\`POST
/api/console/api-keys/{id}/adopt\`). Changing a key's scopes, expiry, addresses or limits also adopts the key.

A program without a browser gets a key through a device sign-in (\`POST /api/device\`, RFC 8628): a person types the program's code at
\`/console/device\` and approves the sign-in. Members of every role can approve scopes within their own rights. Such a key ends after 90
days, or immediately when the person leaves the merchant or may no longer grant its scopes. While the wallet lock is on, a device sign-in
can't grant \`money\` or \`console\`.

## Routes

Each route is listed under the right that a member needs. A key needs one of the listed scopes. \`–\` means that only people can use the route.

${rights.map(routesOf).join("\n\n")}
`
}
