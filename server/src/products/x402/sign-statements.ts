/**
 * Signs offers and receipts (extension `offer-receipt`). An offer states the price, and a receipt states that the
 * price was paid. Each is a JWS that anyone can verify later. The key is named by `did:web`, because the stock
 * verifiers resolve nothing else. The key is published in `/.well-known/did.json` and `/.well-known/jwks.json`.
 */
import { didOf, publishedKeys, signStatement } from "../../account/identity/use-signing-keys.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { checksummed, type Hash } from "../../platform/chain/hex.ts"
import { type Context, wallTime } from "../../platform/context.ts"
import { networkName, type Price, requirementsV2, SCHEME, type Sold } from "./protocol.ts"

/** How long an offer is valid. After a change, the old price is still accepted for an hour. */
const OFFER_S = 3_600

const text = { type: "string" }
const itemsOf = (more: object) => ({
  type: "object",
  properties: { format: text, signature: text, ...more },
  required: ["format", "signature"],
})
const schemaOf = (name: string, schema: object) => ({
  $schema: "https://json-schema.org/draft/2020-12/schema",
  type: "object",
  properties: { [name]: schema },
  required: [name],
})

/** The extensions of a 402: a signed offer, and the option that lets a client name its payment. */
export async function offerExtensions(ctx: Context, price: Price, sold: Sold): Promise<Record<string, unknown>> {
  const { network, amount, asset, payTo } = requirementsV2(price)
  const validUntil = Math.floor(wallTime(ctx).getTime() / 1_000) + OFFER_S
  const offer = { version: 1, resourceUrl: sold.url, scheme: SCHEME, network, asset, payTo, amount, validUntil }
  const signature = await signStatement(ctx, didOf(ctx), offer)
  return {
    "offer-receipt": {
      info: { offers: [{ format: "jws", acceptIndex: 0, signature }] },
      schema: schemaOf("offers", { type: "array", items: itemsOf({ acceptIndex: { type: "integer" } }) }),
    },
    "payment-identifier": {
      info: { required: false },
      schema: {
        $schema: "https://json-schema.org/draft/2020-12/schema",
        type: "object",
        properties: {
          required: { type: "boolean" },
          id: { type: "string", minLength: 16, maxLength: 128, pattern: "^[a-zA-Z0-9_-]+$" },
        },
        required: ["required"],
      },
    },
  }
}

/** What a receipt states. */
interface Receipt {
  network: Price["network"]
  url: string
  payer: Address
  txHash: Hash
}

/** Signs a receipt as a compact JWS. */
export const signReceipt = (ctx: Context, { network, url, payer, txHash }: Receipt): Promise<string> =>
  signStatement(ctx, didOf(ctx), {
    version: 1,
    network: networkName(network, 2),
    resourceUrl: url,
    payer: checksummed(payer),
    issuedAt: Math.floor(wallTime(ctx).getTime() / 1_000),
    transaction: txHash,
  })

/** The extensions of a successful answer. */
export const receiptExtensions = (signature: string): Record<string, unknown> => ({
  "offer-receipt": {
    info: { receipt: { format: "jws", signature } },
    schema: schemaOf("receipt", itemsOf({})),
  },
})

/** `/.well-known/did.json`: the keys that sign offers and receipts, in the form that `did:web` resolves. */
export async function didDocument(ctx: Context): Promise<object> {
  const did = didOf(ctx)
  const keys = await publishedKeys(ctx)
  return {
    "@context": ["https://www.w3.org/ns/did/v1", "https://w3id.org/security/suites/jws-2020/v1"],
    id: did,
    verificationMethod: keys.map(({ kid, ...jwk }) => ({
      id: `${did}#${kid}`,
      type: "JsonWebKey2020",
      controller: did,
      publicKeyJwk: { ...jwk, kid },
    })),
    assertionMethod: keys.map(({ kid }) => `${did}#${kid}`),
  }
}
