/** Which IP addresses are public, and which belong to private or special networks. */
import { BlockList, isIP } from "node:net"

/**
 * Addresses that are not global unicast by IANA's registries (RFC 6890 and later), including translations to IPv4
 * (6to4).
 */
const special = addressRange(
  [
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 192.88.99.0/24",
    "192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4",
    "2001::/23 2001:db8::/32 2002::/16 3fff::/20",
  ].flatMap(line => line.split(" ")),
)
/**
 * All other IPv6 addresses (loopback, local, mapped IPv4, NAT64) are not public, so a new special range is refused too.
 */
const unicast = addressRange(["2000::/3"])

/** Whether an IP address is public; false for text that is not an IP address. */
export function isPublicAddress(address: string): boolean {
  if (isIP(address) === 4) return !special.check(address, "ipv4")
  // A zone (`fe80::1%eth0`) belongs to a link.
  if (isIP(address) !== 6 || address.includes("%")) return false
  return unicast.check(address, "ipv6") && !special.check(address, "ipv6")
}

/** The union of the addresses of these CIDRs; throws an Error for an invalid one. */
export function addressRange(cidrs: readonly string[]): BlockList {
  const range = new BlockList()
  for (const cidr of cidrs) {
    const [address = "", bits, ...rest] = cidr.split("/")
    const family = isIP(address)
    const all = family === 4 ? 32 : 128
    if (family === 0 || rest.length > 0 || !/^\d{1,3}$/.test(bits ?? `${all}`)) throw new Error(`${cidr} is not a CIDR`)
    range.addSubnet(address, bits === undefined ? all : Number.parseInt(bits, 10), family === 4 ? "ipv4" : "ipv6")
  }
  return range
}

/** Whether the service may connect to an address: a public one, or one that these CIDRs allow. */
export function addressRule(allowCidrs: readonly string[]): (address: string) => boolean {
  const allowed = addressRange(allowCidrs)
  return address =>
    isPublicAddress(address) ||
    (isIP(address) !== 0 && !address.includes("%") && allowed.check(address, isIP(address) === 4 ? "ipv4" : "ipv6"))
}

/** The message that an address is refused because it is not public. */
export const notPublic = (address: string): string =>
  `points to ${address}, which is not a public address: the operator can allow private ranges with WEBHOOK_ALLOW_CIDRS`

/**
 * The message that a name is refused because its address is not public. The message does not reveal the private address
 * that the name has in the operator's network.
 */
export const nameNotPublic =
  "points to an address that is not public: the operator can allow private ranges with WEBHOOK_ALLOW_CIDRS"
