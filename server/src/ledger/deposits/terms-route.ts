/**
 * `/api/deposits/:address`: what a receiving address commits to. A payer need not trust the answer, because `sluice
 * verify-address` computes the address from these terms without the service.
 */
import { Type } from "typebox"
import { addressField } from "../../platform/chain/address-field.ts"
import { payeesHash } from "../../platform/chain/deposit-terms.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { Context } from "../../platform/context.ts"
import { AddressText, Described, HashText } from "../../platform/http/schemas.ts"
import type { Server } from "../../platform/http/server.ts"
import { withPutAway } from "./put-away.ts"
import { termsOf } from "./read-terms.ts"

const DepositTerms = Type.Object({
  address: AddressText,
  chain: Type.String(),
  chainId: Type.Integer(),
  factory: Described(AddressText, "The contract that creates the addresses; its source is in `contracts/src`"),
  salt: HashText,
  owner: Described(AddressText, "The merchant's payout address"),
  approver: Described(
    AddressText,
    "Whose signature sends money back to payers; the factory's own address means its operator",
  ),
  payeesHash: HashText,
  payees: Type.Array(
    Type.Object({
      address: AddressText,
      percentE4: Type.Integer({ description: "The share in ten-thousandths of a percent", examples: [333_333] }),
    }),
    { description: "Who shares what arrives, in the order of `payeesHash`; empty without a split" },
  ),
  openAfter: Type.Integer({
    description: "Unix time in seconds after which anyone may send the address's money to its owner",
  }),
})

export function termsRoute(app: Server, ctx: Context): void {
  app.get(
    "/api/deposits/:address",
    {
      schema: {
        operationId: "showDepositTerms",
        summary: "The terms that a receiving address commits to: who can ever get its money",
        description:
          "`keccak256(abi.encode(salt, owner, approver, payeesHash, openAfter))` is the CREATE2 salt of a plain ERC-1167 clone, so the address can be computed from the answer. `sluice verify-address` does so offline.",
        tags: ["buyers"],
        params: Type.Object({ address: Described(AddressText, "The receiving address") }),
        response: { 200: DepositTerms },
      },
      config: { errors: ["DEPOSIT_NOT_FOUND"] },
    },
    async request => {
      const address = addressField("address", request.params.address)
      const { row, payees } = await withPutAway(ctx, { addresses: [address] }, () => termsOf(ctx, address))
      return {
        address: checksummed(address),
        chain: networkOf(ctx.chain, row.chain_id).name,
        chainId: row.chain_id,
        factory: checksummed(row.factory),
        salt: row.salt,
        owner: checksummed(row.owner),
        approver: checksummed(row.approver),
        payeesHash: payeesHash(payees),
        payees: payees.map(({ address, percentE4 }) => ({ address: checksummed(address), percentE4 })),
        // The contract stores this time in 64 bits, but even a date in the far future is a safe integer.
        openAfter: Number.parseInt(row.open_after_s.toString(), 10),
      }
    },
  )
}
