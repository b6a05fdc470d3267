/** Whether a URL leads into a private network. */
import { isIP } from "node:net"
import { isPublicAddress } from "../net/public-address.ts"

/**
 * Whether a URL's host is reachable only from inside: a private or special address, or a name that public DNS does not
 * know.
 */
export function isPrivate(url: string): boolean {
  const host = new URL(url).hostname.replace(/^\[|\]$|\.$/g, "")
  if (isIP(host) !== 0) return !isPublicAddress(host)
  return !host.includes(".") || /\.(localhost|local|internal|intranet|lan|home\.arpa)$/.test(host)
}
