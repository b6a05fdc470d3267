/** Verdicts that several lanes share. */
import type { Address } from "../../platform/chain/hex.ts"
import { listedBy } from "../../platform/chain/screen-addresses.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import type { Hold, Payout } from "./lane.ts"

const DETAIL_LENGTH = 200
/** How long a payout is held while its merchant's budget is spent. The next turn computes the actual wait. */
const BUDGET_WAIT_MS = 30_000
/** How long a payout is held while the wallet has no gas. */
const LOW_GAS_WAIT_MS = 30_000

/** Holds a payout while its merchant's gas budget is spent. */
export const OVER_BUDGET: Hold = {
  kind: "hold",
  reason: "gas_budget",
  detail: "the merchant's daily gas budget is spent",
  waitMs: BUDGET_WAIT_MS,
}

/** Holds a payout while its wallet has too little for its gas and for the value that it sends. */
export const lowGas = ({ lane }: Row<"wallets">): Hold => ({
  kind: "hold",
  reason: "low_gas",
  detail: `the ${lane} wallet has too little for gas`,
  waitMs: LOW_GAS_WAIT_MS,
})

/** Holds a payout with a party on a sanctions list. */
export const holdListed = async (ctx: Context, { recipient }: Payout, party: Address): Promise<Hold> => ({
  kind: "hold",
  reason: "sanctions",
  detail: `the ${party === recipient ? "recipient" : "payer"} is on a sanctions list: ${await listedBy(ctx, party)}`,
})

/** Holds a payout whose call would fail. */
export const holdFailing = (detail: string): Hold => ({
  kind: "hold",
  reason: "simulation",
  detail: detail.slice(0, DETAIL_LENGTH),
})
