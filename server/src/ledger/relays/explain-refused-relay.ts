/** Turns the refusal of a relay into an error for the payer. */
import type { Network } from "../../platform/chain/networks.ts"
import type { Context } from "../../platform/context.ts"
import { ApiError } from "../../platform/errors.ts"
import { verifySoon } from "../scanner/queries.ts"
import type { RefusedRelay } from "./accept-relay.ts"

/** Returns the error for a refused relay. `otherWay` says how to pay without a relay. */
export async function relayError(
  ctx: Context,
  { chainId }: Network,
  { refusal, words }: RefusedRelay,
  otherWay: string,
): Promise<ApiError> {
  switch (refusal) {
    case "no_wallet":
      return new ApiError("RELAY_UNAVAILABLE")
    case "budget":
      return new ApiError("RELAY_UNAVAILABLE", undefined, `${words} ${otherWay}`)
    case "listed":
      return new ApiError("SANCTIONS_MATCH")
    case "unscreened":
      return new ApiError("CHAIN_UNAVAILABLE")
    case "signature":
      return new ApiError("AUTHORIZATION_REFUSED", [{ path: "signature", message: words }])
    case "used":
      return new ApiError("AUTHORIZATION_ALREADY_USED")
    case "short":
    case "fails":
      return new ApiError("AUTHORIZATION_REFUSED", undefined, words)
    case "unseen":
      await verifySoon(ctx, chainId)
      return new ApiError(
        "INVALID_OPERATION",
        undefined,
        "Money for this checkout has just arrived and is being verified. Ask for its status in a moment.",
      )
  }
}
