/**
 * The filter for checkouts, in the list of checkouts and in the list of transactions, as SQL over `checkout_sessions`.
 */
import { type RawBuilder, sql } from "kysely"
import { Type } from "typebox"
import { type ChainInfo, networkAsked } from "../../platform/chain/network-facts.ts"
import type { Row } from "../../platform/db/schema.ts"
import { invalid } from "../../platform/errors.ts"
import { Described, Matching } from "../../platform/http/schemas.ts"
import { idPattern } from "../../platform/ids.ts"

/** The filter, with its values as received. */
export interface CheckoutFilter {
  productId?: string | undefined
  slug?: string | undefined
  chain?: string | undefined
  capture?: Row<"checkout_sessions">["capture"] | undefined
  customerEmail?: string | undefined
  metadata?: Record<string, string> | undefined
}

/** The filter's parameters. */
export const checkoutFilters = {
  productId: Type.Optional(Matching(idPattern("prod"), "The id of a product, `prod_` and 24 characters")),
  slug: Type.Optional(
    Described(
      Matching("^[a-z0-9-]{3,64}$", "3 to 64 lower-case letters, digits and hyphens"),
      "One of your payment links",
    ),
  ),
  chain: Type.Optional(Type.String({ maxLength: 32, description: "A network of this service" })),
  capture: Type.Optional(
    Type.Unsafe<Row<"checkout_sessions">["capture"]>({
      type: "string",
      enum: ["direct", "manual", "automatic"],
      description: "How it is captured",
    }),
  ),
  customerEmail: Type.Optional(
    Described(Matching("^[^@\\s]+@[^@\\s]+$", "An e-mail address", { maxLength: 320 }), "In any case"),
  ),
  metadata: Type.Optional(
    Type.Unsafe<Record<string, string>>({
      type: "object",
      additionalProperties: { type: "string" },
      style: "deepObject",
      explode: true,
      description:
        "Fields of the metadata, such as `metadata[order]=1001`; all must match. Top-level texts, numbers, true and false are found, in upper or lower case, in up to 50 fields of a checkout. Only the first 200 characters of a value count",
    }),
  ),
}

/** The most metadata fields in a filter, because each field makes the SQL statement longer. */
const MAX_FIELDS = 5

/**
 * Returns the filter with its `metadata[key]=value` parameters parsed. Throws `VALIDATION_ERROR` if they or the network
 * are invalid. Parameter names include the brackets.
 */
export function withMetadata<T extends CheckoutFilter>(chain: ChainInfo, filter: T): T {
  networkAsked(chain, filter.chain)
  const fields = Object.entries(filter).flatMap(([name, value]): [string, string][] => {
    const [, key] = /^metadata\[(.*)\]$/s.exec(name) ?? []
    if (key === undefined) return []
    if (key === "") throw invalid("metadata", "must name a field, such as `metadata[order]=1001`")
    if (typeof value !== "string" || value === "") throw invalid(name, "must have one value")
    return [[key, value]]
  })
  if (fields.length > MAX_FIELDS) throw invalid("metadata", `must have at most ${MAX_FIELDS} fields`)
  return fields.length === 0 ? filter : { ...filter, metadata: Object.fromEntries(fields) }
}

/**
 * SQL: a text in the form that `checkout_terms` stores. JavaScript would count and lower-case some characters
 * differently.
 */
export const termOf = (text: string): RawBuilder<string> => sql<string>`lower(left(${text}::text, 200))`

/** SQL: whether a row of `checkout_sessions` matches the whole filter except its metadata. */
export function checkoutConditions(
  chain: ChainInfo,
  merchantId: string,
  { productId, slug, chain: name, capture, customerEmail }: CheckoutFilter,
): RawBuilder<boolean>[] {
  const s = (column: string) => sql.ref(`checkout_sessions.${column}`)
  return [
    productId === undefined ? [] : [sql<boolean>`${s("product_id")} = ${productId}`],
    slug === undefined
      ? []
      : [
          sql<boolean>`${s("link_id")} = (select l.id from payment_links l where l.slug = ${slug} and l.merchant_id = ${merchantId})`,
        ],
    name === undefined ? [] : [sql<boolean>`${s("chain_id")} = ${networkAsked(chain, name).chainId}`],
    // A literal, so that Postgres can use the index of checkouts that are not direct.
    capture === undefined ? [] : [sql<boolean>`${s("capture")} = ${sql.lit(capture)}`],
    customerEmail === undefined ? [] : [sql<boolean>`lower(${s("customer_email")}) = ${customerEmail.toLowerCase()}`],
  ].flat()
}

/** SQL: whether a row of `checkout_sessions` has a field with this value. */
export const hasTerm = ([key, value]: [string, string]): RawBuilder<boolean> =>
  sql<boolean>`exists (select from checkout_terms f where f.merchant_id = checkout_sessions.merchant_id and f.value = ${termOf(value)}
    and f.key = ${key.slice(0, 200)} and f.created_at = checkout_sessions.created_at and f.session_id = checkout_sessions.id)`

/** SQL: the rows of `checkout_terms` with this value of a field, in list order. */
export const isTerm = (merchantId: string, [key, value]: [string, string]): RawBuilder<boolean> =>
  sql<boolean>`checkout_terms.merchant_id = ${merchantId} and checkout_terms.value = ${termOf(value)} and checkout_terms.key = left(${key}::text, 200)`

/**
 * SQL: the filter as values of `transaction_terms.term`, all of which a payment must have. The network is not among
 * these terms, because payments have a column for it.
 */
export function checkoutTerms(
  merchantId: string,
  { productId, slug, capture, customerEmail, metadata }: Omit<CheckoutFilter, "chain">,
): RawBuilder<string>[] {
  const named = (name: string, value: unknown) => sql<string>`md5(${sql.lit(`${name}:`)} || ${value})::uuid`
  const link = sql<string>`(select l.id from payment_links l where l.slug = ${slug} and l.merchant_id = ${merchantId})`
  return [
    productId === undefined ? [] : named("product", productId),
    slug === undefined ? [] : named("link", link),
    capture === undefined ? [] : named("capture", capture),
    customerEmail === undefined ? [] : named("email", sql<string>`lower(${customerEmail})`),
    Object.entries(metadata ?? {}).map(([key, value]) => sql<string>`field_term(${key}, ${value})`),
  ].flat()
}
