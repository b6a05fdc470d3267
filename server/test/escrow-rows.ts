/** A payment through escrow as rows, on a network of paper: what was reserved of it, and what is captured. */
import { randomUUID } from "node:crypto"
import type { Address, Hash } from "../src/platform/chain/hex.ts"
import type { Network } from "../src/platform/chain/networks.ts"
import { newId } from "../src/platform/ids.ts"
import { PAYOUT_ADDRESS, type TestService } from "./service.ts"

const PAYER = `0x${"83".repeat(20)}` as Address
const DAY_MS = 86_400_000
let nonce = 0n

/**
 * Writes a checkout of the merchant's whose payment is reserved, and a part of it captured, both in whole tokens; returns its id. `as` is the
 * merchant's owner, and the service has a relay wallet.
 */
export async function reservedSession(
  service: TestService,
  as: string,
  network: Network,
  { authorized, captured }: { authorized: bigint; captured: bigint },
): Promise<string> {
  const { db, settings } = service.ctx
  const operator = settings.relayWallet as Address
  const made = await service.call("POST", "/api/console/checkouts", { amount: 5 }, { as })
  const now = service.ctx.now()
  const later = new Date(now.getTime() + 30 * DAY_MS)
  const hash = `0x${randomUUID().replaceAll("-", "").repeat(2)}` as Hash
  const id = newId("cs")
  const unit = 10n ** BigInt(network.token.decimals)
  const session = await db
    .selectFrom("checkout_sessions")
    .selectAll()
    .where("id", "=", made.body.id)
    .executeTakeFirstOrThrow()
  const paid = { status: "confirmed", capture: "manual", run_at: null, confirmed_at: now, tx_hash: hash } as const
  const empty = { payer_fields: null, payer_info: null, metadata: null }
  await db
    .insertInto("checkout_sessions")
    .values({ ...session, ...paid, ...empty, id, chain_id: network.chainId })
    .execute()
  const common = {
    chain_id: network.chainId,
    merchant_id: session.merchant_id,
    token: network.token.address,
    created_at: now,
    updated_at: now,
  }
  await db
    .insertInto("escrows")
    .values({
      ...common,
      session_id: id,
      escrow: PAYER,
      collector: PAYER,
      version: "v1.1",
      refund_collector: PAYER,
      operator,
      receiver: PAYOUT_ADDRESS.toLowerCase() as Address,
      payer: PAYER,
      auth_id: hash,
      salt: hash,
      nonce: hash,
      pre_approval_expiry: later,
      authorization_expiry: later,
      refund_expiry: later,
      void_at: new Date(later.getTime() - DAY_MS),
      max_amount: authorized * unit,
      authorized: authorized * unit,
      captured: captured * unit,
      authorized_at: now,
    })
    .execute()
  const called = (kind: "reserve" | "capture", amount: bigint) => ({
    ...common,
    id: randomUUID(),
    kind,
    escrow_id: id,
    source_key: `escrow:${kind}:${id}`,
    recipient: PAYER,
    amount: amount * unit,
    to_address: PAYER,
    data: "0x00" as const,
    relay_by: later,
    reserved: false,
    ...(kind === "reserve" ? { payer: PAYER, auth_nonce: hash, auth_digest: hash } : {}),
    state: "final" as const,
    wallet: operator,
    nonce: nonce++,
    tx_hash: hash,
    block_number: 1n,
    block_hash: hash,
    succeeded: true,
    run_at: now,
  })
  const calls = [called("reserve", authorized), ...(captured > 0n ? [called("capture", captured)] : [])]
  await db.insertInto("payouts").values(calls).execute()
  return id
}
