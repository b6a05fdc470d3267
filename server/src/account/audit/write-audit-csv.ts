/** The audit log as CSV. The database writes the lines; this process fills in the fields that only it can format. */
import { randomUUID } from "node:crypto"
import { type RawBuilder, sql } from "kysely"
import { checksummed } from "../../platform/chain/hex.ts"
import type { TxContext } from "../../platform/context.ts"
import { quoted } from "../../platform/http/send-csv.ts"
import { continued, linesOf, quotedCell, timeCell } from "../../platform/http/write-csv-lines.ts"
import { type Fields, shown } from "./entry.ts"
import { entriesOf } from "./queries.ts"
import type { AuditFilters } from "./schema.ts"

/** All matching entries as CSV, newest first, with the fields of `entryOf`. Text from outside is quoted. */
export function auditCsv(ctx: TxContext, merchantId: string, filter: AuditFilters): AsyncGenerator<string | Buffer> {
  // Called first, so that an invalid filter is refused before anything is sent.
  const entries = entriesOf(ctx, merchantId, filter) as never
  // Random, so that no text in these rows can contain it.
  const boundary = randomUUID()
  const here = (kind: "w" | "j", text: RawBuilder<unknown>) => sql`${boundary} || ${kind} || ${text} || ${boundary}`
  const fields = (json: RawBuilder<unknown>) => here("j", sql`coalesce(r.chain_id::text, '') || ${json}::text`)
  const { networks } = ctx.chain
  const decimalsOf = new Map(networks.map(({ chainId, token }) => [`${chainId}`, token.decimals]))
  const cellOf = (piece: string): string => {
    if (piece.startsWith("w")) return `${quoted(checksummed(piece.slice(1)))}`
    const at = piece.indexOf("{")
    const columns = JSON.parse(piece.slice(at)) as Fields
    return `${quoted(JSON.stringify(shown(columns, decimalsOf.get(piece.slice(1, at)))))}`
  }
  return linesOf(ctx, {
    cells: {
      at: timeCell(sql`r.at`),
      actorKind: sql`r.actor_kind`,
      actorId: quotedCell(sql`r.actor_id`),
      actorIssuer: quotedCell(sql`r.actor_issuer`),
      action: sql`r.action`,
      objectId: sql`case when starts_with(r.action, 'wallet_proof.') then ${here("w", sql`r.object_id`)}
        else ${quotedCell(sql`r.object_id`)} end`,
      before: fields(sql`r.before`),
      after: fields(sql`r.after`),
      address: sql`r.address`,
      userAgent: quotedCell(sql`r.user_agent`),
      route: sql`r.route`,
      requestId: quotedCell(sql`r.request_id`),
      id: sql`'aud_' || replace(r.id::text, '-', '')`,
    },
    ofAnyNetwork: true,
    key: ["at", "n"],
    rows: (last, limit) => continued(entries, { at: "at", id: "n" }, last && { at: last.at, id: last.n }, limit),
    finish: text =>
      text
        .split(boundary)
        .map((piece, i) => (i % 2 === 0 ? piece : cellOf(piece)))
        .join(""),
  })
}
