/** Relays in a test: checkouts of a shop, buyers without ether, and what they sign. */
import { randomBytes } from "node:crypto"
import { type Hex, parseAbi, parseAbiItem } from "viem"
import { generatePrivateKey, type PrivateKeyAccount, privateKeyToAccount } from "viem/accounts"
import { expect } from "vitest"
import { relayLane } from "../src/ledger/relays/relay-lane.ts"
import { ensureCursor } from "../src/ledger/scanner/scan-round.ts"
import { verifyRound } from "../src/ledger/settlement/verify-payments.ts"
import { checkWallet } from "../src/ledger/txmanager/lock-wallet.ts"
import { payoutRound } from "../src/ledger/txmanager/run-round.ts"
import type { Pace } from "../src/ledger/txmanager/send-attempts.ts"
import { type Authorization, typedAuthorization } from "../src/platform/chain/authorizations.ts"
import type { Address, Hash } from "../src/platform/chain/hex.ts"
import type { Network } from "../src/platform/chain/networks.ts"
import type { Context } from "../src/platform/context.ts"
import type { Row } from "../src/platform/db/schema.ts"
import type { PayoutRig } from "./payouts.ts"

export interface Signed {
  authorization: Authorization
  signature: Hex
}

/** A wallet's signed authorization; `from` is its own address unless the authorization names another. */
export async function signAuthorization(
  account: PrivateKeyAccount,
  network: Pick<Network, "token" | "chainId">,
  given: Partial<Authorization> & { to: Address; value: bigint },
): Promise<Signed> {
  const authorization = {
    from: account.address.toLowerCase() as Address,
    validAfter: 0n,
    validBefore: BigInt(Math.floor(Date.now() / 1_000) + 7_200),
    nonce: `0x${randomBytes(32).toString("hex")}` as Hash,
    ...given,
  }
  return { authorization, signature: await account.signTypedData(typedAuthorization(network, authorization)) }
}

const abi = parseAbi([
  "function transferWithAuthorization(address, address, uint256, uint256, uint256, bytes32, bytes)",
  "function cancelAuthorization(address, bytes32, bytes)",
])
/** Fees with which a stranger's transaction is mined before the relay wallet's. */
export const FIRST = { maxFeePerGas: 10n ** 12n, maxPriorityFeePerGas: 10n ** 11n, gas: 200_000n }

/** A body of `POST /api/pay/authorize`. */
export const bodyOf = (sessionId: string, { authorization, signature }: Signed) => {
  const { value, validAfter, validBefore, ...rest } = authorization
  const numbers = { value: `${value}`, validAfter: `${validAfter}`, validBefore: `${validBefore}` }
  return { sessionId, authorization: { ...rest, ...numbers }, signature }
}

export interface Session {
  id: string
  payTo: Address
}

/** Has the newest scanned block be of the service's time: tests advance that alone. */
export async function keepUp({ db, now }: Pick<Context, "db" | "now">): Promise<void> {
  await db.updateTable("cursors").set({ block_time: now() }).execute()
}

/** What a test of relays does with a rig. */
export function relaysOn(rig: PayoutRig) {
  const { service, anvil, network } = rig
  const { ctx } = service
  const lane = relayLane(network, rig.relayer)
  /** A call of the token by a stranger. */
  const stranger = { address: rig.token, abi, account: anvil.accounts[5] }
  /** A stranger sends a transaction that carries an authorization out, with these fees; returns its hash. */
  const carryOut = ({ authorization, signature }: Signed, fees: typeof FIRST): Promise<Hex> => {
    const { from, to, value, validAfter, validBefore, nonce } = authorization
    const args = [from, to, value, validAfter, validBefore, nonce, signature] as const
    return anvil.client.writeContract({ ...stranger, functionName: "transferWithAuthorization", args, ...fees })
  }
  /** The wallet's signature that cancels an authorization of its own. */
  const signCancel = (account: PrivateKeyAccount, authorization: Authorization): Promise<Hex> => {
    const types = {
      CancelAuthorization: [
        { name: "authorizer", type: "address" },
        { name: "nonce", type: "bytes32" },
      ],
    } as const
    const { domain } = typedAuthorization(network, authorization)
    const message = { authorizer: account.address, nonce: authorization.nonce }
    return account.signTypedData({ domain, types, primaryType: "CancelAuthorization", message })
  }
  return {
    /** Empties the database, and resets the wallets and the scan. */
    begin: async () => {
      rig.proxy.spoil = (_method, _params, result) => result
      rig.proxy.broken = undefined
      rig.proxy.brokenFor = undefined
      for (const endpoint of network.endpoints) endpoint.silentUntil = 0
      await anvil.client.dropAllTransactions()
      await anvil.client.setAutomine(true)
      await anvil.client.mine({ blocks: 3 })
      await rig.empty()
      await checkWallet(ctx, lane)
      await ensureCursor(ctx, network)
    },
    start: async (body: object = { amount: 5 }): Promise<Session> => {
      const answer = await service.call("POST", "/api/console/checkouts", body, { as: "shop" })
      expect(answer.status, JSON.stringify(answer.body)).toBe(201)
      return { id: answer.body.id, payTo: answer.body.payTo.toLowerCase() }
    },
    /** A key that holds tokens and no ether. */
    buyer: async (amount = 5_000_000n): Promise<PrivateKeyAccount> => {
      const account = privateKeyToAccount(generatePrivateKey())
      await rig.mint(account.address.toLowerCase() as Address, amount)
      return account
    },
    sign: (account: PrivateKeyAccount, session: Session, given: Partial<Authorization> = {}) => {
      const validBefore = BigInt(Math.floor(ctx.now().getTime() / 1_000) + 7_200)
      return signAuthorization(account, network, { to: session.payTo, value: 5_000_000n, validBefore, ...given })
    },
    signCancel,
    carryOut,
    /** A stranger carries an authorization out before the relay wallet's next transaction is mined; returns the hash. */
    carryOutFirst: (signed: Signed): Promise<Hex> => carryOut(signed, FIRST),
    /** The wallet cancels its authorization before the relay wallet's next transaction is mined; returns the hash. */
    cancelFirst: async (account: PrivateKeyAccount, { authorization }: Signed): Promise<Hex> => {
      const { from, nonce } = authorization
      const args = [from, nonce, await signCancel(account, authorization)] as const
      return await anvil.client.writeContract({ ...stranger, functionName: "cancelAuthorization", args, ...FIRST })
    },
    submit: (session: { id: string }, signed: Signed) =>
      service.call("POST", "/api/pay/authorize", bodyOf(session.id, signed)),
    round: async (pace?: Pace) => {
      await keepUp(ctx)
      return await payoutRound(ctx, lane, pace)
    },
    status: async (id: string) => (await service.call("GET", `/api/pay/status/${id}`)).body,
    relays: (): Promise<Row<"payouts">[]> =>
      ctx.db
        .selectFrom("payouts")
        .selectAll()
        .where("lane", "=", "relay")
        .orderBy("created_at")
        .orderBy("id")
        .execute(),
    /** Scans the chain, as the verification does when it is due: sees, then confirms. */
    look: async () => {
      for (let i = 0; i < 2; i++) {
        await ctx.db
          .updateTable("cursors")
          .set({ run_at: new Date(0) })
          .execute()
        await verifyRound(ctx, network)
      }
    },
    /** The transfers to an address, by the chain. */
    received: async (to: Address): Promise<bigint[]> => {
      const event = parseAbiItem("event Transfer(address indexed from, address indexed to, uint256 value)")
      const logs = await anvil.client.getLogs({ address: rig.token, event, args: { to }, fromBlock: 0n, strict: true })
      return logs.map(log => log.args.value)
    },
  }
}
