/**
 * `/api/console/foreign-tokens`: the tokens that arrived at the merchant's receiving addresses and in which nothing is
 * sold, with a remedy for each. A scan finds these tokens, and they never count as a payment.
 */
import { sql } from "kysely"
import { Type } from "typebox"
import { checksummed } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { listRoute } from "../../platform/http/list-route.ts"
import { AddressText, Described, HashText, ListEnd, Nullable, Timestamp } from "../../platform/http/schemas.ts"
import type { ListSource } from "../../platform/http/send-lists.ts"
import type { Server } from "../../platform/http/server.ts"
import { ifKind } from "../../platform/ids.ts"

const ForeignToken = Type.Object({
  address: Described(AddressText, "The receiving address that holds the token"),
  chain: Type.String(),
  chainId: Type.Integer(),
  paywallId: Nullable(Type.String()),
  sessionId: Nullable(Type.String()),
  token: Described(
    AddressText,
    "The token's contract. Anyone can create a token with any name, so look up this address before you spend anything on it.",
  ),
  balance: Type.String({
    description:
      "What the address holds according to the token, in base units. A worthless or fraudulent token can claim anything.",
    examples: ["12000000"],
  }),
  txHash: Described(HashText, "The first transfer of the token to the address that the service found"),
  blockNumber: Type.Integer(),
  from: Described(AddressText, "The sender that this transfer names; only the token says so"),
  amount: Type.String({ description: "The amount of this transfer, in base units" }),
  foundAt: Timestamp,
  opensAt: Described(Timestamp, "When anyone may start to send what the address holds to its owner"),
  paymentId: Nullable(
    Type.String({ description: "The payment that waits because of this token, if its hash was submitted" }),
  ),
  remedy: Type.String({ description: "What you can do now, as text" }),
})

export function foreignTokenRoutes(app: Server, ctx: Context): void {
  listRoute(app, ctx, {
    path: "/api/console/foreign-tokens",
    operationId: "listForeignTokens",
    summary: "Tokens at your receiving addresses that you do not accept, newest first",
    description:
      "Tokens sent to a receiving address by mistake. The service finds them in final blocks without a submitted hash, while it watches the address, usually after half an hour. Nothing here counts as a payment. Tokens whose contract reports a zero balance are left out, and at most 20 are listed per address. Ether leaves no log, so it is never listed; it can be recovered at any time.",
    tags: ["books"],
    answer: Type.Object({ data: Type.Array(ForeignToken), ...ListEnd }),
    source: tokensOf,
    show: (read, rows) => rows.map(row => listedOf(read, row)),
  })
}

type ForeignTokenRow = Row<"foreign_tokens"> &
  Pick<Row<"deposits">, "address" | "resource_id" | "open_after_s"> & {
    payment_id: string | null
    payment_status: Row<"payments">["status"] | null
  }

/** The list is ordered by id alone, because newer rows have higher ids. */
function tokensOf(ctx: TxContext, merchantId: string): ListSource<ForeignTokenRow> {
  const of = sql`merchant_id = ${merchantId} and balance > 0`
  return {
    key: { id: "id", isNumber: true },
    all: sql`select 1 from foreign_tokens where ${of}`,
    read: async (last, limit, offset) => {
      const { rows } = await sql<ForeignTokenRow>`
        select f.*, d.address, d.resource_id, d.open_after_s, p.id as payment_id, p.status as payment_status
        from (select * from foreign_tokens where ${of} and ${last ? sql`id < ${last.id}` : sql`true`}
          order by id desc limit ${limit} offset ${offset}) f
        join deposits d on d.id = f.deposit_id
        left join lateral (select p.id, p.status from payments p
          where p.deposit_id = f.deposit_id and p.token = f.token
          order by p.status <> 'open', p.created_at desc, p.id limit 1) p on true
        order by f.id desc`.execute(ctx.db)
      return rows
    },
  }
}

function listedOf(ctx: TxContext, row: ForeignTokenRow) {
  // The contract stores this time in 64 bits, but even a date in the far future is a safe integer.
  const opensAt = new Date(Number.parseInt(row.open_after_s.toString(), 10) * 1_000)
  return {
    address: checksummed(row.address),
    chain: networkOf(ctx.chain, row.chain_id).name,
    chainId: row.chain_id,
    paywallId: ifKind("pw", row.resource_id),
    sessionId: ifKind("cs", row.resource_id),
    token: checksummed(row.token),
    balance: `${row.balance ?? 0n}`,
    txHash: row.tx_hash,
    blockNumber: Number.parseInt(row.block_number.toString(), 10),
    from: checksummed(row.from_address),
    amount: `${row.value}`,
    foundAt: row.found_at.toISOString(),
    opensAt: opensAt.toISOString(),
    paymentId: row.payment_id,
    remedy: remedyFor(row, opensAt, ctx.now()),
  }
}

function remedyFor({ payment_id, payment_status, resource_id }: ForeignTokenRow, opensAt: Date, now: Date): string {
  const recovery = `\`sluice recover --token\` with this token, or \`recover\` of the deposit factory, which anyone may call`
  const recover =
    opensAt < now
      ? `Send it to the address's owner now: ${recovery}.`
      : `After ${opensAt.toISOString()} it can be sent to the address's owner: ${recovery}.`
  if (payment_id !== null && payment_status === "open") return `Accept or return the payment ${payment_id}. ${recover}`
  if (payment_id !== null) return `The payment ${payment_id} of this token is ${payment_status}. ${recover}`
  // A payer is never asked to submit a transaction to a bundle, so recovery is the only way.
  if (ifKind("bdl", resource_id)) return recover
  const route = ifKind("pw", resource_id) ? `/api/paywalls/${resource_id}/pay` : "/api/pay/confirm"
  return `Submit txHash at POST ${route}: it then waits as a payment that you can accept or return. ${recover}`
}
