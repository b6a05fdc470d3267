/** Formats amounts in any token that the service has seen. */
import type { TxContext } from "../context.ts"
import { formatAmount } from "../money/amount.ts"
import { type Address, checksummed } from "./hex.ts"
import { networkOf } from "./network-facts.ts"

/** An amount for display. */
export interface FormattedAmount {
  amount: string
  /** The token's symbol; its address if it has no symbol that can be shown. */
  currency: string
  /** Whether the token is the network's settlement token; another token's symbol is not verified. */
  currencyVerified: boolean
  /** Null: `amount` is in base units. */
  decimals: number | null
}

/** Formats amounts in the tokens of these rows. */
export async function amountFormatter(
  ctx: TxContext,
  rows: readonly { chain_id: number; token: Address }[],
): Promise<(row: { chain_id: number; token: Address; amount: bigint }) => FormattedAmount> {
  const others = rows.filter(row => row.token !== networkOf(ctx.chain, row.chain_id).token.address)
  const addresses = [...new Set(others.map(row => row.token))]
  const known =
    addresses.length === 0
      ? []
      : await ctx.db.selectFrom("tokens").selectAll().where("address", "in", addresses).execute()
  return ({ chain_id, token: address, amount }) => {
    const { token } = networkOf(ctx.chain, chain_id)
    const { symbol, decimals } =
      address === token.address
        ? token
        : (known.find(row => row.chain_id === chain_id && row.address === address) ?? { symbol: null, decimals: null })
    return {
      amount: decimals === null ? `${amount}` : formatAmount(amount, decimals),
      currency: symbol ?? checksummed(address),
      currencyVerified: address === token.address,
      decimals,
    }
  }
}
