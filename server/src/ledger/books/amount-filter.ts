/** The filter for an exact amount of a settlement token, as SQL. */
import { type RawBuilder, sql } from "kysely"
import { type ChainInfo, type NetworkInfo, networkAsked } from "../../platform/chain/network-facts.ts"
import { invalid } from "../../platform/errors.ts"
import { AmountError, parseMovedAmount } from "../../platform/money/amount.ts"

/** An amount in base units, and the networks whose settlement token it is an amount of. */
export interface SettlementAmount {
  amount: bigint
  networks: readonly NetworkInfo[]
}

/**
 * Returns what a decimal text means on each of these networks, because tokens may differ in decimals. Throws an
 * {@link AmountError} if it is an amount on none of them.
 */
export function settlementAmounts(networks: readonly NetworkInfo[], text: string): SettlementAmount[] {
  const found = new Map<bigint, NetworkInfo[]>()
  // The network with the most decimals comes first, because its fault is the one that counts.
  let fault: AmountError | undefined
  for (const network of networks.toSorted((a, b) => b.token.decimals - a.token.decimals))
    try {
      const amount = parseMovedAmount(text, network.token.decimals)
      found.set(amount, [...(found.get(amount) ?? []), network])
    } catch (error) {
      if (!(error instanceof AmountError)) throw error
      fault ??= error
    }
  if (found.size === 0 && fault) throw fault
  return [...found].map(([amount, networks]) => ({ amount, networks }))
}

/**
 * Returns what a filter's `amount` means on its `chain`, or on all networks; nothing for a filter without it. Throws
 * `VALIDATION_ERROR` if it is no amount of these tokens.
 */
export function amountsAsked(
  chain: ChainInfo,
  filter: { amount?: string | undefined; chain?: string | undefined },
): SettlementAmount[] {
  if (filter.amount === undefined) return []
  const networks = filter.chain === undefined ? chain.networks : [networkAsked(chain, filter.chain)]
  try {
    return settlementAmounts(networks, filter.amount)
  } catch (error) {
    if (error instanceof AmountError) throw invalid("amount", error.message)
    throw error
  }
}

/**
 * SQL: whether a row of the view `transactions` has one of these amounts. As long as all settlement tokens have the same
 * decimals, there is one amount, and its index has the rows in list order.
 */
export const hasAmount = (amounts: readonly SettlementAmount[]): RawBuilder<boolean> =>
  sql<boolean>`(${sql.join(
    amounts.map(each => isAmount(each)),
    sql.raw(" or "),
  )})`

/** SQL: whether a row of the view `transactions`, or of a table with another `column`, has this amount. */
export const isAmount = ({ amount, networks }: SettlementAmount, column = "units"): RawBuilder<boolean> =>
  sql<boolean>`(${sql.ref(column)} = ${amount} and (chain_id, token) in (${sql.join(
    networks.map(({ chainId, token }) => sql<unknown>`(${sql.lit(chainId)}, ${token.address})`),
  )}))`
