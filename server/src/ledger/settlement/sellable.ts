/**
 * Defines what settlement needs to know about a resource for sale: how to sum its transfers, what a payment buys, and
 * what a reorg takes away. Everything else about settlement exists once, in this folder. `sales.ts` lists all kinds,
 * and docs/contributors/features.md says which files a new kind needs.
 */
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { Screening } from "../../platform/chain/screening.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import type { PaymentException, WaitingFor } from "../../platform/db/columns.ts"
import type { Row } from "../../platform/db/schema.ts"
import type { ErrorCode } from "../../platform/errors.ts"
import { payerName } from "../../platform/jobs/wake-payload.ts"
import type { CheckoutNotice } from "./checkout-notice.ts"

/** The screening result of each address in question. */
export type Screened = ReadonlyMap<Address, Screening>

/** A transfer with the payment that claims it, if any. The transfer's `value` is the amount that still counts. */
export type ClaimedTransfer = Row<"transfers"> & {
  payment_id: string | null
  payment_status: string | null
  /** How much of the transfer a final return has sent back, in base units. */
  given_back: bigint
}

/**
 * Leaves out transfers whose payment is only the rest that was not returned, because only the merchant decides about
 * that rest.
 */
export const withoutRests = <T extends ClaimedTransfer>(transfers: readonly T[]): T[] =>
  transfers.filter(row => row.given_back === 0n || (row.payment_status !== "open" && row.payment_status !== "reversed"))

/** Transfers that need the merchant's decision for one reason, in chain order. */
export interface WaitingGroup {
  exception: WaitingFor
  transfers: readonly ClaimedTransfer[]
}

/** The work of one settlement transaction. */
export interface Group {
  resourceId: string
  /** The senders to screen before the transaction. Transfers of other senders can't be counted in that transaction. */
  senders: readonly Address[]
}

/** The groups whose turn it is, in order. `isMore` says whether other groups are due too. */
export interface Due {
  groups: readonly Group[]
  isMore: boolean
}

/** The resource whose payments are written, with its merchant and network. */
export interface Owner {
  merchant_id: string
  chain_id: number
  resource_id: string
}

/**
 * A payment with the money that the chain holds for it now, in base units. `there` is the money that is not gone, and
 * `sure` the money that is certain.
 */
export type StandingPayment = Row<"payments"> & {
  there: bigint
  sure: bigint
  /**
   * Whether a reorg gave a granted payment more money than its amount, and the price alone decides about the extra
   * money.
   */
  grown?: boolean
}

/** Transfers that are summed together: one payer's transfers at a paywall, or all transfers at a checkout session. */
export interface Part {
  owner: Owner
  network: NetworkInfo
  /** The payer of these payments, or undefined if the payments of all payers count together. */
  payer: Address | undefined
  /**
   * The payments that only the chain can change: granted ones that may have lost money, returned ones whose money
   * moved, and reversed ones that can be granted again.
   */
  standing: readonly StandingPayment[]
}

/** A locked group: its parts, and the transfers that stop being due once the group is settled. */
interface Held<P extends Part = Part> {
  parts: readonly P[]
  due: readonly bigint[]
}

/** Returns the exception that a checkout shows. An exception that concerns a sender does not belong to the checkout. */
export const exceptionOf = (exception: WaitingFor | null): PaymentException | null =>
  exception === "sanctioned" || exception === "no_buyer" ? null : exception

/** Transfers that together make one payment. */
export interface Paid {
  /** At least one transfer, in chain order. */
  transfers: readonly ClaimedTransfer[]
  /** The id of the open, reversed or granted payment to which these transfers belong; undefined for a new one. */
  known: string | undefined
  /** In base units. Anything beyond the price is `overpaid`. */
  price: bigint
}

/** The result of planning a part, as pure data, which `settle` writes. */
export interface Plan {
  /** Granted payments that have lost their money. */
  reversed: readonly Pick<Row<"payments">, "id" | "token" | "amount">[]
  paid: readonly Paid[]
  /** The transfers that were read. Open payments lose their claims on transfers that no longer wait. */
  considered: readonly ClaimedTransfer[]
  waiting: readonly WaitingGroup[]
  /** When to check again those transfers that can't be decided yet. */
  again: ReadonlyMap<bigint, Date>
  /** Whether more of the part can be settled immediately, in another transaction. */
  isMore: boolean
}

/** The payment that bought something. */
export type PaidWith = Pick<Row<"payments">, "id" | "payer" | "tx_hash">

/**
 * One kind of resource for sale. All functions except `due`, `wake` and `groupOf` run inside a transaction, after
 * `hold`.
 */
export interface Sellable<P extends Part = Part, L extends Plan = Plan> {
  /** The prefix of the resources' ids. */
  prefix: string
  /** The error for an id that does not exist. */
  notFound: ErrorCode
  /** The purpose of screening senders, as the log shows it. */
  purpose: string
  /** Whether one payment buys the resource, so that the merchant can accept other payments only as extra money. */
  paidOnce: boolean

  /**
   * Returns a limited number of groups that are due on the network. Each merchant that is due has a group among the
   * first. A group is no longer due once it is settled or postponed.
   */
  due(ctx: TxContext, network: NetworkInfo): Promise<Due>
  /**
   * Makes the resources with these deposits or ids due, now or at a time. Needed only for a kind whose `due` depends on
   * more than the transfers.
   */
  wake?(ctx: TxContext, deposits: readonly bigint[], resources: readonly string[], at?: Date): Promise<void>
  /**
   * Returns the trace of the request that created a resource, which all its payments continue. Needed only for a kind
   * that one payment pays for.
   */
  traceOf?(ctx: TxContext, resourceId: string): Promise<string | null>
  /** Returns the group in which a payment is settled. */
  groupOf(ctx: TxContext, payment: Row<"payments">): Promise<Group>
  /**
   * Locks the rows that settle the group, then the group's transfers (see docs/contributors/internals.md for the lock
   * order).
   */
  hold(ctx: TxContext, group: Group): Promise<Held<P>>
  /** Reads what was paid, and plans the result. */
  plan(ctx: TxContext, part: P, screened: Screened): Promise<L>
  /**
   * Grants what a payment buys, for the first time or again, after the payouts were made. May run again for a payment
   * that is already paid. `hashes` are the transactions that paid.
   */
  onPaid(ctx: SellingTx, part: P, payment: PaidWith, hashes: readonly Hash[]): Promise<void>
  /**
   * Revokes what a payment bought, because a reorg removed the payment's money. The payment's payouts are already
   * cancelled.
   */
  onReversed(ctx: SellingTx, part: P, payment: Pick<Row<"payments">, "id">): Promise<void>
  /**
   * Writes the total of the part's payments after the payments are written. `paid` are the payment ids, in the order of
   * the plan.
   */
  finish(ctx: SellingTx, part: P, plan: L, paid: readonly string[]): Promise<void>
  /** Runs after the merchant has decided about an open payment, which is now `granted` or `returned`. */
  onDecided(ctx: SellingTx, part: P, payment: Row<"payments">, screened: Screened): Promise<void>

  /** Returns what events say about one payment of this kind. */
  describe(ctx: TxContext, payment: Row<"payments">): Promise<Omit<CheckoutNotice, "status" | "splits">>
  /** Locks the row that numbers a resource's events, if that is not the payment itself. */
  lockEvents?(ctx: TxContext, resourceId: string): Promise<unknown>
}

/** The kinds of things for sale, in the order in which they take turns in a round. */
export interface Sells {
  sells: readonly Sellable[]
}

/** A context that can settle, and its form inside a transaction. */
export type SellingContext = Context & Sells
export type SellingTx = TxContext & Sells

/** Returns the names that wake-ups use for these groups. If each payer pays separately, the name includes the payer. */
export const namesOf = ({ paidOnce }: Pick<Sellable, "paidOnce">, groups: readonly Group[]): string[] =>
  groups.flatMap(({ resourceId, senders }) =>
    paidOnce ? [resourceId] : senders.map(payer => payerName(resourceId, payer)),
  )

/** Returns the kind to which an id belongs. Throws if no kind has the id's prefix. */
export function sellableOf({ sells }: Sells, resourceId: string): Sellable {
  const kind = sells.find(({ prefix }) => resourceId.startsWith(`${prefix}_`))
  if (!kind) throw new Error(`nothing that is for sale has an id like ${resourceId}`)
  return kind
}
