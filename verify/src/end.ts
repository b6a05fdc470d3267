/**
 * The signed last line of a merchant's file. Its key must not have been revoked when it was signed, or whoever steals a
 * key that was replaced could end a file where they like.
 */
import { fromBase64url, toHex } from "./bytes.ts"
import { topics } from "./chain.ts"
import { numberOf } from "./rpc.ts"
import { type Answer, type Asking, ask, blocksOf, CLOCKS_S, no, unchecked, type Verified, yes } from "./verify.ts"

/** The last line; `keyBlock` is the block that registered its key, undefined if the file does not say. */
interface End {
  kid: string
  at: string
  keyBlock: number | undefined
}

/** A factory of the file's receipts; `from` is the first block with a transfer of them. */
interface Place {
  chainId: number
  factory: string
  from: number
}

/**
 * Whether the key of the last line may end the file: it signed receipts of it, or is registered for a factory of them,
 * and was not revoked before.
 */
export const mayEnd = async (end: End, verified: readonly Verified[], { nodes }: Asking): Promise<Answer> =>
  await ask(async () => {
    const at = Date.parse(end.at) / 1_000
    if (Number.isNaN(at)) return no("its last line has no time")
    if (verified.some(({ body }) => body && !(Date.parse(body.at) / 1_000 <= at + CLOCKS_S)))
      return no("its last line is older than its receipts")
    const signed = verified.filter(({ kid }) => kid === end.kid)
    const isSigner = signed.length > 0
    const thumbprint = toHex(fromBase64url(end.kid))
    let isKnown = false
    let unasked: number | undefined
    for (const { chainId, factory, from } of placesOf(isSigner ? signed : verified)) {
      const node = nodes.get(chainId)
      if (!node) {
        unasked = chainId
        continue
      }
      // Line 2 asks whether a signer is registered. Nothing that the file says narrows the search for its revocation.
      const [registered] = isSigner ? [from] : await blocksOf(node, [topics.key, factory, thumbprint], end.keyBlock, 0)
      if (registered === undefined) continue
      isKnown = true
      const [revoked] = await blocksOf(node, [topics.revoked, factory, thumbprint], undefined, registered)
      const block = revoked === undefined ? undefined : await node.block(revoked)
      if (revoked !== undefined && !(block && at <= numberOf(block.timestamp) + CLOCKS_S))
        return no("its last line is signed by a key that had been revoked")
    }
    if (isKnown) return yes(` as of ${new Date(end.at).toISOString()}`)
    if (unasked !== undefined)
      return unchecked(`name a node of eip155:${unasked} to see whether its last line's key was revoked`)
    return isSigner
      ? unchecked("its receipts name no factory that could have revoked its last line's key")
      : no("its last line is signed by a key that signed none of its receipts, and that nobody who may has registered")
  })

function placesOf(verified: readonly Verified[]): Place[] {
  const places = new Map<string, Place>()
  for (const { chainId = Number.NaN, factories = [], body } of verified)
    for (const factory of factories) {
      const before = places.get(`${chainId} ${factory}`)
      const blocks = (body?.transfers ?? []).map(({ blockNumber }) => blockNumber)
      places.set(`${chainId} ${factory}`, { chainId, factory, from: Math.min(before?.from ?? Infinity, ...blocks) })
    }
  return [...places.values()].map(place => ({ ...place, from: Number.isFinite(place.from) ? place.from : 0 }))
}
