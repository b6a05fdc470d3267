/** Checks the escrow of a network: whether its contracts exist, and whether only our operator can pull refunds. */
// I/O: queries the endpoints, including before the service starts, when there is no context.
import { pad } from "viem"
import { refundCollectorRuntime } from "../../platform/chain/abi.ts"
import { askAny, newEndpoint } from "../../platform/chain/endpoints.ts"
import { type Address, checksummed } from "../../platform/chain/hex.ts"
import { immutablesOf } from "../../platform/chain/immutables.ts"
import { networkSetting } from "../../platform/chain/network-facts.ts"
import type { RpcResult } from "../../platform/chain/rpc.ts"
import type { NetworkCheck } from "./check-network.ts"
import { type Finding, fine } from "./finding.ts"

/** Reports what is wrong with the escrow and its collectors. No findings if the network has no escrow. */
export async function checkEscrow({ network, settings, signal, faulty }: NetworkCheck): Promise<Finding[]> {
  const { name: part, escrow } = network
  const setting = (name: "RPC" | "ESCROW" | "REFUND_COLLECTOR") => networkSetting(name, part)
  if (!escrow || (["RPC", "ESCROW", "REFUND_COLLECTOR"] as const).some(each => faulty.has(setting(each)))) return []
  const operator = settings.relayWallet
  if (!operator)
    return [
      {
        part,
        check: "escrow",
        level: "note",
        message: "the service has no relay key, so checkouts can't be paid through the escrow",
        todo: "Set RELAY_PRIVATE_KEY, RELAY_KEYSTORE or RELAY_SIGNER to offer capture and refunds.",
      },
    ]
  const { address, collector, refundCollector } = escrow
  const addresses = [address, collector, ...(refundCollector ? [refundCollector] : [])]
  const calls = addresses.map(each => ({ method: "eth_getCode", params: [each, "latest"] }))
  const endpoints = network.rpcUrls.map(url => newEndpoint(part, url))
  const codes = await askAny(endpoints, calls, signal).catch((): RpcResult[] => [])
  const [escrowCode, collectorCode, refundCode] = codes.map(code =>
    code.ok ? String(code.value).toLowerCase() : undefined,
  )
  // The findings about the endpoints give the reason.
  if (escrowCode === undefined || collectorCode === undefined) return []
  if (escrowCode === "0x" || collectorCode === "0x")
    return [
      {
        part,
        check: "escrow",
        level: "alarm",
        message: "there is no escrow at the configured address, so checkouts with capture can't be paid",
        todo: `Set ${setting("ESCROW")} to an escrow on this network (docs/developers/contracts.md), or to off. There is no code at ${checksummed(address)}, or at its collector ${checksummed(collector)}.`,
      },
    ]
  const present = fine(part, "escrow", "the escrow and its collector exist")
  return [present, refunds({ part, address, operator, code: refundCode }, setting("REFUND_COLLECTOR"), refundCollector)]
}

function refunds(
  {
    part,
    address,
    operator,
    code,
  }: { part: Finding["part"]; address: Address; operator: Address; code: string | undefined },
  setting: string,
  refundCollector: Address | undefined,
): Finding {
  const check = "refund_collector"
  const todo = `Deploy one with \`sluice deploy --network ${part}\`, which prints ${setting}.`
  if (!refundCollector)
    return {
      part,
      check,
      level: "note",
      message: "no refund collector is set, so escrow payments can't be refunded",
      todo,
    }
  const words = immutablesOf(code, refundCollectorRuntime)
  if (words?.[0] === pad(address) && words[1] === pad(operator))
    return fine(part, check, "the refund collector serves only this escrow and the relay wallet")
  const message = words
    ? "the refund collector serves another escrow, or a wallet other than the relay wallet, so refunds fail"
    : "the configured contract is not this version's refund collector, and merchants would allow it to take their money"
  return { part, check, level: "alarm", message, todo: `${todo} Until then leave ${setting} empty.` }
}
