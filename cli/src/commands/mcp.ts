/**
 * `sluice mcp`: offers tools to an assistant over the standard input and output. Only the protocol is printed there.
 */
import type { Input } from "../command.ts"
import { Failure } from "../failure.ts"
import { credentialOf } from "../profiles.ts"

/** Serves the merchant's tools or, with `--buyer`, the tools of a wallet on this machine. */
export async function run({ options }: Input): Promise<void> {
  if (options.buyer) {
    const { serveBuyer } = await import("../mcp/serve-buyer.ts")
    return await serveBuyer(options)
  }
  const { baseUrl, apiKey } = credentialOf(options)
  if (!apiKey) throw new Failure("There is no key. Run `sluice login`, or set SLUICE_API_KEY.", 3)
  const { serveMerchant } = await import("../mcp/serve-merchant.ts")
  await serveMerchant({ baseUrl, apiKey, writes: options.write === true })
}
