/** Reads what the pages show about a payment that is reserved first, on its checkout and on its receipt. */
import type { CheckoutStatus, Reservation } from "../../../../web/src/page-data.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { EscrowCallKind, Row } from "../../platform/db/schema.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import type { ShownSession } from "../checkouts/queries.ts"
import { standingOf } from "../escrow/fold-escrow.ts"
import { type CurrentEscrow, escrowsOf, standingOfEscrow } from "../escrow/load-escrow.ts"
import { shownToPayer } from "../escrow/show-escrow.ts"

/** A checkout that is reserved first, with the columns that its page shows. */
type ReservedCheckout = CurrentEscrow<ShownSession>

/** The names under which payers see each kind of escrow call. */
const moveKinds = { reserve: "reserve", capture: "capture", void: "release", refund: "refund" } as const

/** The escrow of a session, and its calls; undefined for a direct session. */
export async function standingOfSession(ctx: TxContext, session: ShownSession): Promise<ReservedCheckout | undefined> {
  const escrow = (await escrowsOf(ctx, [session])).get(session.id)
  return escrow && (await standingOfEscrow(ctx, { session, escrow }))
}

/** The state of a reservation, with the transactions that count. `terms`: the data to sign now. */
export function reservationOf(
  ctx: TxContext,
  network: NetworkInfo,
  { session, escrow, calls }: ReservedCheckout,
  terms: Reservation["terms"] = null,
): Reservation {
  const text = (amount: bigint) => formatAmount(amount, network.token.decimals)
  const { captured, released, refunded, captureBefore, reclaim } = shownToPayer(network, session, escrow, {
    payable: false,
  })
  const moves = calls.flatMap(call =>
    call.tx_hash !== null && standingOf(call) === "counts"
      ? [{ kind: moveKinds[call.kind as EscrowCallKind], txHash: call.tx_hash }]
      : [],
  )
  return {
    capture: session.capture === "manual" ? "manual" : "automatic",
    authorized: text(escrow.authorized),
    captured,
    released,
    refunded,
    captureBefore,
    reclaim,
    phase: phaseOf(ctx.now(), escrow),
    left: text(escrow.authorized - escrow.captured - escrow.voided - escrow.reclaimed),
    terms,
    moves,
  }
}

const phaseOf = (now: Date, { void_at, authorization_expiry }: Row<"escrows">): Reservation["phase"] =>
  now < void_at ? "held" : now < authorization_expiry ? "releasing" : "reclaimable"

/** The parts of the state that differ for a checkout that is reserved first, because it has no address for money. */
export function reservedStatus(
  ctx: TxContext,
  network: NetworkInfo,
  standing: ReservedCheckout,
  terms: Reservation["terms"],
): Pick<CheckoutStatus, "arriving" | "missing" | "relaying" | "over" | "reservation"> {
  const { session, escrow, folded } = standing
  const amount = formatAmount(session.amount, network.token.decimals)
  const nothing = formatAmount(0n, network.token.decimals)
  return {
    arriving: nothing,
    missing: escrow.authorized > 0n ? nothing : amount,
    relaying: folded.open.reserve > 0,
    over: ctx.now() >= session.expires_at,
    reservation: reservationOf(ctx, network, standing, terms),
  }
}
