/** The wallet of {@link liveEnv}'s PAYOUT_PRIVATE_KEY. */
export const livePayoutWallet = () => privateKeyToAddress(liveEnv.PAYOUT_PRIVATE_KEY)

/** Settings with which live mode starts, for tests that spoil one of them. */
import { createHash } from "node:crypto"
import type { Hex } from "viem"
import { privateKeyToAddress } from "viem/accounts"

/** The same random-looking key at each call, one for each name. */
const keyOf = (name: string): Hex => `0x${createHash("sha256").update(name).digest("hex")}`

export const liveEnv = {
  MODE: "live",
  BASE_URL: "https://pay.example.com",
  DATABASE_URL: "postgres://sluice@db.internal/sluice",
  SECRET_KEY: keyOf("secret"),
  OIDC_ISSUER: "https://id.example.com",
  NETWORKS: "base",
  RPC_BASE: "https://rpc.example.com/a-key",
  DEPOSIT_FACTORY_BASE: `0x${"22".repeat(20)}`,
  PAYOUT_PRIVATE_KEY: keyOf("payout"),
  RELAY_PRIVATE_KEY: keyOf("relay"),
}
