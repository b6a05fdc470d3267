/** The settings that exist once for each network, with their defaults. */
import { type EscrowDeployment, escrowAt, knownEscrows } from "../chain/escrow-deployments.ts"
import { checksummed } from "../chain/hex.ts"
import { type Mode, type NetworkName, networkFacts, networkSetting } from "../chain/network-facts.ts"
import type { NetworkSettings } from "../chain/networks.ts"
import type { networkSettingsTable } from "./network-settings-table.ts"
import type { SettingReader } from "./setting-reader.ts"
import { address, httpUrl, listOf } from "./setting-values.ts"

/** The networks that NETWORKS names, or the mode's default network. In the sandbox their values are placeholders. */
export function networkSettings(reader: SettingReader, mode: Mode): NetworkSettings[] {
  const { env, read, attempt, required, faults } = reader
  const confirmations = read("CONFIRMATIONS")
  const fallbackNetwork: NetworkName = mode === "live" ? "base" : "base-sepolia"
  const named = env.NETWORKS ? read("NETWORKS") : [fallbackNetwork]
  if (named?.length === 0) faults.push("NETWORKS must name at least one network")
  // Undefined if a name is wrong, which is already a fault.
  return (named ?? []).map(name => {
    const facts = networkFacts[name]
    const variable = (part: keyof typeof networkSettingsTable) => networkSetting(part, name)
    const get = <T>(part: keyof typeof networkSettingsTable, parse: (text: string) => T, fallback?: string) => {
      const value = env[variable(part)] || fallback
      if (value !== undefined) return attempt(variable(part), value, parse)
      return mode === "sandbox" ? undefined : required(variable(part))
    }
    return {
      name,
      chainId: facts.chainId,
      rpcUrls: get("RPC", listOf(httpUrl)) ?? [],
      token: get("TOKEN", address, facts.usdc) ?? facts.usdc,
      confirmations,
      depositFactory: get("DEPOSIT_FACTORY", address) ?? facts.usdc,
      escrow: escrowSettings(reader, name),
      sanctionsOracle: env[variable("SANCTIONS_ORACLE")] ? get("SANCTIONS_ORACLE", address) : facts.sanctionsOracle,
    }
  })
}

/** The escrow of ESCROW_<NETWORK>, or the network's default if that is not set; undefined if it is empty or `off`. */
function escrowSettings({ env, attempt }: SettingReader, name: NetworkName): EscrowDeployment | undefined {
  const at = networkSetting("ESCROW", name)
  const refundsAt = networkSetting("REFUND_COLLECTOR", name)
  const refunds = env[refundsAt]
  const refundCollector = refunds ? attempt(refundsAt, refunds, address) : undefined
  const chosen = env[at] ?? networkFacts[name].escrow ?? ""
  if (chosen === "" || chosen === "off") return undefined
  return attempt(at, chosen, text => {
    const escrow = escrowAt(address(text), refundCollector)
    if (escrow) return escrow
    const known = knownEscrows.map(each => `${checksummed(each.address)} (${each.version})`)
    throw new Error(`must be \`off\`, or an escrow that this version knows: ${known.join(", ")}`)
  })
}
