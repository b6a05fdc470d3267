/** Declares the settings that exist once for each network. `network-settings.ts` parses them. */
import type { Meaning } from "./setting.ts"

/** The settings that exist once per network, by their first part. */
export const networkSettingsTable = {
  RPC: {
    meaning: "RPC endpoints, comma-separated",
    otherwise: "the sandbox's chain; required elsewhere",
    live: "must be set; https, or a node on a private address",
  },
  TOKEN: { meaning: "the settlement token", otherwise: "USDC" },
  DEPOSIT_FACTORY: {
    meaning: "the deposit factory whose operator is the payout wallet",
    otherwise: "the sandbox's; required elsewhere",
    live: "must be set",
  },
  ESCROW: {
    meaning:
      "the escrow that the relay wallet operates (docs/developers/contracts.md lists the possible ones); off: none",
    otherwise: "v1.1 on base and base-sepolia, otherwise none; in the sandbox its own",
  },
  REFUND_COLLECTOR: {
    meaning:
      "the contract that pulls refunds for that escrow's payments from merchants' wallets; `sluice deploy` deploys it",
    otherwise: "the sandbox's; elsewhere none, and refunds are refused",
  },
  SANCTIONS_ORACLE: {
    meaning: "a contract with isSanctioned(address) that screens the buyers of all networks",
    otherwise: "Chainalysis' on base",
  },
} satisfies Record<string, Meaning>
