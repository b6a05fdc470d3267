/**
 * What settlement has to know about a resource that is for sale: how its transfers are grouped, what they add up to,
 * what a payment buys and what a reorg removes with it. Everything else about settlement exists once, in this folder.
 * The list of all kinds is `sales.ts`; docs/contributors/features.md says which files a new kind needs.
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

/** The screening result of each address that was asked about. */
export type Screened = ReadonlyMap<Address, Screening>

/** A transfer with the payment that claims it, if any. Its `value` is what still counts of it. */
export type ClaimedTransfer = Row<"transfers"> & {
  payment_id: string | null
  payment_status: string | null
  /** What a final return has sent back of it, in base units. */
  given_back: bigint
}

/**
 * Returns the transfers without those of which a payment has a rest, beyond what was returned of it: only the merchant
 * decides about that.
 */
export const withoutRests = <T extends ClaimedTransfer>(transfers: readonly T[]): T[] =>
  transfers.filter(row => row.given_back === 0n || (row.payment_status !== "open" && row.payment_status !== "reversed"))

/** Transfers that need the merchant's decision, and why; in chain order. */
export interface WaitingGroup {
  exception: WaitingFor
  transfers: readonly ClaimedTransfer[]
}

/** What one transaction settles. */
export interface Group {
  /** The resource that was paid. */
  resourceId: string
  /** Who is screened before the transaction; transfers of other senders can't be counted in it. */
  senders: readonly Address[]
}

/** The groups whose turn it is, in its order; `isMore`: others are due too. */
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

/** A payment, with what the chain holds of it now, in base units: all that is not gone, and what is sure. */
export type StandingPayment = Row<"payments"> & {
  there: bigint
  sure: bigint
  /** Whether a reorg gave a granted payment more money than its amount, and nothing but its price decides about it. */
  grown?: boolean
}

/** Transfers that are added up together: one payer's at a paywall, all of them at a checkout session. */
export interface Part {
  owner: Owner
  network: NetworkInfo
  /** The payer of these payments; undefined if it does not matter who pays. */
  payer: Address | undefined
  /**
   * The payments that only the chain can change: granted ones that may have lost money, returned ones whose money
   * moved, reversed ones that are granted again when all of it is sure.
   */
  standing: readonly StandingPayment[]
}

/** A group, locked: its parts, and its transfers that are no longer due once they are settled. */
interface Held<P extends Part = Part> {
  parts: readonly P[]
  due: readonly bigint[]
}

/** What a checkout shows as its exception. Those that are about a sender are no exceptions of the checkout. */
export const exceptionOf = (exception: WaitingFor | null): PaymentException | null =>
  exception === "sanctioned" || exception === "no_buyer" ? null : exception

/** Transfers that are one payment together. */
export interface Paid {
  /** At least one, in chain order. */
  transfers: readonly ClaimedTransfer[]
  /** The open, reversed or already granted payment that these become; undefined for a new one. */
  known: string | undefined
  /** In base units; anything beyond it is `overpaid`. */
  price: bigint
}

/** The result of settling a part. Pure data: `settle` writes it. */
export interface Plan {
  /** Granted payments that have lost their money. */
  reversed: readonly Pick<Row<"payments">, "id" | "token" | "amount">[]
  paid: readonly Paid[]
  /** The transfers that were read. An open payment's claims on those of them that no longer wait are removed. */
  considered: readonly ClaimedTransfer[]
  waiting: readonly WaitingGroup[]
  /** When to check again the transfers that can't be decided yet. */
  again: ReadonlyMap<bigint, Date>
  /** Whether more could be settled at once, in another transaction. */
  isMore: boolean
}

/** The payment that bought something. */
export type PaidWith = Pick<Row<"payments">, "id" | "payer" | "tx_hash">

/**
 * One kind of resource that is for sale. All but `due`, `wake` and `groupOf` run inside a transaction, after `hold`.
 */
export interface Sellable<P extends Part = Part, L extends Plan = Plan> {
  /** The prefix of these resources' ids. */
  prefix: string
  /** The error for a caller who names one that does not exist. */
  notFound: ErrorCode
  /** Why its senders are screened, as the log shows it. */
  purpose: string
  /** Whether one payment pays it and any other is accepted beside that one. */
  paidOnce: boolean

  /**
   * Returns the groups that are due on the network, a limited number, with each merchant's among the first. A group that is settled, or put
   * off, is not due any more.
   */
  due(ctx: TxContext, network: NetworkInfo): Promise<Due>
  /**
   * Makes the resources due that are sold at these addresses, or have these ids, now or at a time; only for a kind whose `due`
   * depends on more than the transfers.
   */
  wake?(ctx: TxContext, deposits: readonly bigint[], resources: readonly string[], at?: Date): Promise<void>
  /**
   * Returns the trace of the request that made a resource; all its payments continue that trace. Only for a kind that
   * one payment pays.
   */
  traceOf?(ctx: TxContext, resourceId: string): Promise<string | null>
  /** Returns the group that a payment is settled in. */
  groupOf(ctx: TxContext, payment: Row<"payments">): Promise<Group>
  /** Locks the rows that the group is settled under, then its transfers; the lock order is in docs/contributors/internals.md. */
  hold(ctx: TxContext, group: Group): Promise<Held<P>>
  /** Reads what was paid and decides what follows from it. */
  plan(ctx: TxContext, part: P, screened: Screened): Promise<L>
  /**
   * Gives what a payment buys, for the first time or again; its payouts are made already. It may be called again for a
   * payment that is paid already. `hashes` are the transactions that paid.
   */
  onPaid(ctx: SellingTx, part: P, payment: PaidWith, hashes: readonly Hash[]): Promise<void>
  /** Takes away what a payment had bought, because a reorg removed its money. Its payouts are cancelled already. */
  onReversed(ctx: SellingTx, part: P, payment: Pick<Row<"payments">, "id">): Promise<void>
  /**
   * Writes what all of the part's payments add up to, after they are written; `paid` are their ids, in the order of the
   * plan.
   */
  finish(ctx: SellingTx, part: P, plan: L, paid: readonly string[]): Promise<void>
  /** Called after the merchant decided about an open payment: it is `granted` or `returned` now. */
  onDecided(ctx: SellingTx, part: P, payment: Row<"payments">, screened: Screened): Promise<void>

  /** Returns what merchants are sent about one of its payments. */
  describe(ctx: TxContext, payment: Row<"payments">): Promise<Omit<CheckoutNotice, "status" | "splits">>
  /** Locks the row that numbers its events, if that is not the payment itself. */
  lockEvents?(ctx: TxContext, resourceId: string): Promise<unknown>
}

/** What a context has that settles: all kinds of things that are for sale, in the order of their turn in a round. */
export interface Sells {
  sells: readonly Sellable[]
}

/** A context that settles, and its form inside a transaction. */
export type SellingContext = Context & Sells
export type SellingTx = TxContext & Sells

/** What wake-ups call these groups: where each payer pays for itself, nobody else waits for its payment. */
export const namesOf = ({ paidOnce }: Pick<Sellable, "paidOnce">, groups: readonly Group[]): string[] =>
  groups.flatMap(({ resourceId, senders }) =>
    paidOnce ? [resourceId] : senders.map(payer => payerName(resourceId, payer)),
  )

/** Returns the kind that an id belongs to; throws if no kind that is for sale has its prefix. */
export function sellableOf({ sells }: Sells, resourceId: string): Sellable {
  const kind = sells.find(({ prefix }) => resourceId.startsWith(`${prefix}_`))
  if (!kind) throw new Error(`nothing that is for sale has an id like ${resourceId}`)
  return kind
}
