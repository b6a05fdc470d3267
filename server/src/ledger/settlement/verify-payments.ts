/** Verifies one network: a scan round, then settlement of what it found. */
import type { Network } from "../../platform/chain/networks.ts"
import { scanRound } from "../scanner/scan-round.ts"
import type { SellingContext } from "./sellable.ts"
import { settleDue } from "./settle.ts"

/** Runs one round. Does nothing if the network is not due or another process holds its lease. */
export const verifyRound = (ctx: SellingContext, network: Network): Promise<void> =>
  scanRound(ctx, network, async () => {
    await settleDue(ctx, network)
  })
