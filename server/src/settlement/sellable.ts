/**
 * What settling has to know of a thing that is for sale: how its transfers are grouped, what they add up to, what a payment
 * of it buys and what a reorg removes with it. Everything else about settling exists once, in this folder. The list of
 * all kinds is `Context.sells`; docs/architecture.md says which files a new kind needs.
 */
import type { Address, Hash } from "../chain/hex.ts"
import type { NetworkInfo } from "../chain/networks.ts"
import type { Screening } from "../chain/sanctions.ts"
import type { TxContext } from "../context.ts"
import type { Row, WaitingFor } from "../db/schema.ts"
import type { ErrorCode } from "../errors.ts"
import type { CheckoutNotice } from "./notify-checkout.ts"

/** What the sanctions list says of each address that was asked about. */
export type Screened = ReadonlyMap<Address, Screening>

/** A transfer with the payment that claims it, where one does. */
export type ClaimedTransfer = Row<"transfers"> & { payment_id: string | null; payment_status: string | null }

/** Transfers that wait for the merchant, and why; in the order of the chain. */
export interface Waiting {
  exception: WaitingFor
  transfers: readonly ClaimedTransfer[]
}

/** What one transaction settles. */
export interface Group {
  /** Of the thing that was paid. */
  resourceId: string
  /** Who is screened before the transaction; the others can't be counted in it. */
  senders: readonly Address[]
  /** Whether a transfer that a payment of theirs claims may be of another sender now; it may where this is not known. */
  hasMoved?: boolean
}

/** Whose payments are written. */
export interface Owner {
  merchant_id: string
  chain_id: number
  resource_id: string
}

/** A payment, with what the chain holds of it now, in base units: all that is not gone, and what is sure. */
export type Standing = Row<"payments"> & { there: bigint; sure: bigint }

/** Transfers that add up among themselves: one payer's at a paywall, all at a checkout session. */
export interface Part {
  owner: Owner
  network: NetworkInfo
  /** Whose payments these are; undefined where it does not matter who pays. */
  payer: Address | undefined
  /**
   * The payments whose fate the chain alone decides: granted ones that may have lost money, returned ones whose money moved,
   * reversed ones that are granted again when all of it is sure.
   */
  standing: readonly Standing[]
}

/** A group, locked: its parts, and its transfers that are due no more once they are settled. */
interface Held<P extends Part = Part> {
  parts: readonly P[]
  due: readonly bigint[]
}

/** Transfers that are a payment together. */
export interface Paid {
  /** At least one, in the order of the chain. */
  transfers: readonly ClaimedTransfer[]
  /** The payment that these become again, or from waiting; undefined for a new one. */
  known: string | undefined
  /** In base units; what is more is `overpaid`. */
  price: bigint
}

/** What settling a part comes to. Pure data: `settle` writes it. */
export interface Plan {
  /** Granted payments that have lost their money. */
  reversed: readonly Pick<Row<"payments">, "id" | "token" | "amount">[]
  paid: readonly Paid[]
  /** The transfers that were read: of them, whatever waited and waits no more is let go. */
  looked: readonly ClaimedTransfer[]
  waiting: readonly Waiting[]
  /** When transfers are due again that nothing can be said about yet. */
  again: ReadonlyMap<bigint, Date>
  /** Whether more could be settled at once, in a transaction of its own. */
  isMore: boolean
}

/** The payment that something was paid with. */
export type PaidWith = Pick<Row<"payments">, "id" | "payer" | "tx_hash">

/** One kind of thing that is for sale. All but `due`, `wake` and `groupOf` run inside a transaction, after `hold`. */
export interface Sellable<P extends Part = Part, L extends Plan = Plan> {
  /** How the ids of these things begin. */
  prefix: string
  /** What a caller is answered who names one that does not exist. */
  notFound: ErrorCode
  /** What its senders are screened for, as the log says it. */
  purpose: string
  /** Whether one payment pays it and any other is accepted beside that one. */
  paidOnce: boolean

  /** The groups that are due on the network, in the order of their turn. */
  due(ctx: TxContext, network: NetworkInfo): Promise<Group[]>
  /**
   * Makes the things due that are for sale at these addresses, or have these ids; only where `due` goes by more than the transfers
   * themselves.
   */
  wake?(ctx: TxContext, deposits: readonly bigint[], resources: readonly string[]): Promise<void>
  /** The trace that all payments of one thing continue, of the request that made it; only where one payment pays it. */
  traceOf?(ctx: TxContext, resourceId: string): Promise<string | null>
  /** The group that a payment is settled in. */
  groupOf(ctx: TxContext, payment: Row<"payments">): Promise<Group>
  /** Locks what the group is settled under, then its transfers; the lock order is in docs/internals.md. */
  hold(ctx: TxContext, group: Group): Promise<Held<P>>
  /** Reads what was paid and says what it comes to. */
  plan(ctx: TxContext, part: P, screened: Screened): Promise<L>
  /**
   * Gives what a payment buys, or gives it back; its payouts are made. It may be called again for one that is paid already.
   * `hashes` are the transactions that paid.
   */
  onPaid(ctx: TxContext, part: P, payment: PaidWith, hashes: readonly Hash[]): Promise<void>
  /** Takes back what a payment had bought: the chain has its money. Its payouts are cancelled. */
  onReversed(ctx: TxContext, part: P, payment: Pick<Row<"payments">, "id">): Promise<void>
  /** Writes what all of the part's payments come to, once these are written; `paid` are their ids, in the order of the plan. */
  finish(ctx: TxContext, part: P, plan: L, paid: readonly string[]): Promise<void>
  /** Follows what the merchant has decided about a payment that waited: it is `granted` now, or `returned`. */
  onDecided(ctx: TxContext, part: P, payment: Row<"payments">, screened: Screened): Promise<void>

  /** What merchants are sent about one of its payments. */
  describe(ctx: TxContext, payment: Row<"payments">): Promise<Omit<CheckoutNotice, "status" | "splits">>
  /** Locks what its events are numbered on, where that is not the payment itself. */
  lockEvents?(ctx: TxContext, resourceId: string): Promise<unknown>
}

/** The kind that an id belongs to; throws where nothing of the kind is for sale. */
export function sellableOf(ctx: TxContext, resourceId: string): Sellable {
  const kind = ctx.sells.find(({ prefix }) => resourceId.startsWith(`${prefix}_`))
  if (!kind) throw new Error(`nothing that is for sale has an id like ${resourceId}`)
  return kind
}
