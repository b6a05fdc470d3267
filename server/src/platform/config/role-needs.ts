/** Checks the settings that a role needs: the keys of the wallets that it signs for. Pure. */
import type { Settings } from "./settings.ts"

const roles = ["all", "api", "worker"] as const
/** A role of a process. */
export type Role = (typeof roles)[number]

type Wallets = Pick<Settings, "payoutSigner" | "payoutWallet" | "relaySigner" | "relayWallet" | "storageSigner"> & {
  receipts: Pick<Settings["receipts"], "zerog">
}

/** Whether a text names a role. */
export const isRole = (text: string): text is Role => roles.some(role => role === text)

/**
 * Why a process with these settings can't have this role; empty if it can. Only a process that just serves requests
 * needs no keys. Each fault starts with the name of a setting.
 */
export function roleFaults(settings: Wallets, role: Role): string[] {
  if (role === "api") return []
  const { payoutSigner, payoutWallet, relaySigner, relayWallet, storageSigner, receipts } = settings
  return [
    { name: "PAYOUT", lacks: payoutWallet !== undefined && payoutSigner === undefined, signsFor: "PAYOUT_WALLET" },
    { name: "RELAY", lacks: relayWallet !== undefined && relaySigner === undefined, signsFor: "RELAY_WALLET" },
    {
      name: "ZEROG",
      lacks: receipts.zerog !== undefined && storageSigner === undefined,
      signsFor: "the wallet that pays for RECEIPT_STORE=0g",
    },
  ]
    .filter(({ lacks }) => lacks)
    .map(
      ({ name, signsFor }) =>
        `${name}_PRIVATE_KEY must be set, or ${name}_KEYSTORE or ${name}_SIGNER: --role ${role} signs for ${signsFor} and needs its key. Only --role api needs no key`,
    )
}
