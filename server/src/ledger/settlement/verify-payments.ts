/** Verifies one network: a round of the scan, then the settlement of what it found. */
import type { Network } from "../../platform/chain/networks.ts"
import { scanRound } from "../scanner/scan-round.ts"
import type { SellingContext } from "./sellable.ts"
import { settleDue } from "./settle.ts"

/** One round; a no-op when the network is not due or another process holds its lease. */
export const verifyRound = (ctx: SellingContext, network: Network): Promise<void> =>
  scanRound(ctx, network, async () => {
    await settleDue(ctx, network)
  })
