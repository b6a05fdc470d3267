/**
 * Prepares due payouts for signing: picks, screens and simulates them, writes the verdicts, and assigns nonces to the
 * rest under the wallet's lock.
 */
import { type Fees, firstFees } from "../../platform/chain/fees.ts"
import { RELEASE_GAS } from "../../platform/chain/release-call.ts"
import type { WalletState } from "../../platform/chain/wallet-state.ts"
import { type Context, inTransaction } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { applyVerdicts } from "./apply-verdicts.ts"
import type { Except } from "./check-gas-budget.ts"
import { inFlight } from "./count-in-flight.ts"
import { giveNonces, isAhead, MAX_IN_FLIGHT } from "./give-nonces.ts"
import type { Lane, Payout } from "./lane.ts"
import type { Unsigned } from "./load-unsigned-attempts.ts"
import { duePayouts } from "./pick-due.ts"
import { screenAndSimulate } from "./screen-and-simulate.ts"
import { groupIntoTransactions } from "./write-batches.ts"

/** The payouts that got nonces, and how many due payouts were held, postponed or cancelled instead. */
interface Assigned {
  assigned: Unsigned[]
  postponed: number
  /** The payouts that a verdict kept from being signed. */
  notSigned: Payout[]
}

const NOTHING: Assigned = { assigned: [], postponed: 0, notSigned: [] }

/**
 * Assigns nonces to due payouts while there is room in flight. Assigns none while an earlier nonce is unsigned, because
 * a later nonce could not be mined, and a payout with a nonce can't be cancelled.
 */
export async function assignPayouts(
  ctx: Context,
  lane: Lane,
  wallet: Row<"wallets">,
  state: WalletState,
): Promise<Assigned> {
  const { latest, pending = 0n, balance, dataFee } = state
  // If these values are unknown, the alarms report why nothing is paid.
  if (latest === undefined || balance === undefined) return NOTHING
  const count = pending > latest ? pending : latest
  // A transaction that this database does not know, for example after a backup was restored, may already have executed
  // a call that a verdict would cancel.
  if (lane.waitsWhileAhead && isAhead(ctx, wallet, count)) return NOTHING
  const picked = await pickDue(ctx, lane, wallet, state)
  if (!picked) return NOTHING
  const { payouts, held, fees } = picked
  const judged = await screenAndSimulate(ctx, lane, wallet, payouts, { fees, balance })
  await applyVerdicts(ctx, lane, judged)
  const approved = judged.filter(({ verdict }) => verdict.kind === "sign")
  const postponed = held + payouts.length - approved.length
  const notSigned = judged.flatMap(({ payout, verdict }) => (verdict.kind === "sign" ? [] : [payout]))
  if (approved.length === 0) return { ...NOTHING, postponed, notSigned }
  const terms = { fees, count, balance, dataFee }
  const given = await inTransaction(ctx, ctx => giveNonces(ctx, lane, wallet, approved, terms))
  // The verdicts are written after the commit, because ending a relay locks its session, and code that locks a wallet
  // never waits for a session.
  await applyVerdicts(ctx, lane, given.judged)
  notSigned.push(...given.judged.map(({ payout }) => payout))
  return { assigned: given.assigned, postponed: postponed + given.judged.length, notSigned }
}

/**
 * Returns the due payouts that fit in flight and in their merchants' budgets, and the fees to bid. Undefined if no
 * payout can get a nonce.
 */
async function pickDue(
  ctx: Context,
  lane: Lane,
  wallet: Row<"wallets">,
  { market, dataFee }: WalletState,
): Promise<{ payouts: Payout[]; held: number; fees: Fees } | undefined> {
  const fees = market && firstFees(market, ctx.settings.payoutMaxFee)
  const flying = await inFlight(ctx, wallet)
  const room = MAX_IN_FLIGHT - flying.n
  if (room <= 0 || flying.unsigned > 0 || !fees) return undefined
  const size = { limit: lane.pickable(room), room }
  const due = await duePayouts(ctx, lane, wallet, size)
  const most = RELEASE_GAS * fees.maxFee + dataFee
  if (due.length === 0 || (await lane.isStopped(ctx, most))) return undefined
  const dueExcept = (except: Except) => duePayouts(ctx, lane, wallet, size, except)
  const payable = await lane.withinBudgets(ctx, wallet, due, most, dueExcept)
  const payouts = groupIntoTransactions(ctx, payable.due).slice(0, room).flat()
  return { payouts, held: payable.held, fees }
}
