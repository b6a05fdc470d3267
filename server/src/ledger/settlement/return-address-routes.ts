/**
 * `/api/pay/return-address`: a payer with an open payment names, by signature, the address to which it should be
 * returned.
 */
import { offerNonce } from "../../account/identity/prove-wallet.ts"
import { addressField } from "../../platform/chain/address-field.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { Server } from "../../platform/http/server.ts"
import { chainOf, nameReturnAddress, RETURN_ADDRESS_PATH, returnUse } from "./name-return-address.ts"
import { ReturnNonceAnswer, returnBodies } from "./schema.ts"
import type { SellingContext } from "./sellable.ts"

const tags = ["payers"]

export function returnAddressRoutes(app: Server, ctx: SellingContext): void {
  const { ReturnNonce, ReturnAddress, ReturnAddressNamed } = returnBodies(ctx.sells.map(({ prefix }) => prefix))
  const notFound = ctx.sells.map(sellable => sellable.notFound)

  app.post(
    `${RETURN_ADDRESS_PATH}/nonce`,
    {
      schema: {
        operationId: "createReturnNonce",
        summary: "Issues the nonce for one signature, valid for ten minutes",
        tags,
        body: ReturnNonce,
        response: { 200: ReturnNonceAnswer },
      },
      config: { errors: notFound },
    },
    async request => {
      const { id } = request.body
      const use = returnUse(id, addressField("address", request.body.address))
      const networks = [networkOf(ctx.chain, await chainOf(ctx, id))]
      const offer = await offerNonce(ctx, { ...use, path: RETURN_ADDRESS_PATH, networks })
      return { ...offer, resource: offer.resources[0] ?? "" }
    },
  )

  app.post(
    RETURN_ADDRESS_PATH,
    {
      schema: {
        operationId: "nameReturnAddress",
        summary: "Names the address to which open money should be returned",
        description:
          "The wallet that sent the money signs a message (EIP-4361; a contract wallet's signature is verified through ERC-1271) that names the domain of `BASE_URL`, the URI `<BASE_URL>/api/pay/return-address`, the network, the nonce, and the single resource `urn:sluice:return:<id>:<address in lower case>`. The merchant decides whether the money is returned. The newest signature counts. A payer who paid from an exchange can't sign for its wallet, and must ask the merchant.",
        tags,
        body: ReturnAddress,
        response: { 200: ReturnAddressNamed },
      },
      config: {
        errors: ["SIGNATURE_REFUSED", "SANCTIONS_MATCH", ...notFound, "PAYMENT_NOT_FOUND", "CHAIN_UNAVAILABLE"],
      },
    },
    async request => {
      const { id, message, signature } = request.body
      const address = addressField("address", request.body.address)
      const payer = await nameReturnAddress(ctx, id, address, { message, signature })
      return { id, payer: checksummed(payer), address: checksummed(address) }
    },
  )
}
