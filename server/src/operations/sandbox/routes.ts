/**
 * The routes `/sandbox/*`: a faucet, a buyer, a clock, blocks and reorgs, and a webhook receiver. They exist only in
 * the sandbox.
 */
import { appendFile, readFile } from "node:fs/promises"
import { Type } from "typebox"
import { concat, encodeFunctionData, erc20Abi, isHex } from "viem"
import { privateKeyToAccount } from "viem/accounts"
import { testUsdcAbi } from "../../platform/chain/abi.ts"
import { addressField } from "../../platform/chain/address-field.ts"
import type { Context } from "../../platform/context.ts"
import { invalid } from "../../platform/errors.ts"
import { asWritten } from "../../platform/http/json.ts"
import { Matching, MoneyInput, Strict } from "../../platform/http/schemas.ts"
import type { Server } from "../../platform/http/server.ts"
import { AmountError, parseAmount } from "../../platform/money/amount.ts"
import type { ChainClient } from "./chain-client.ts"
import type { LocalChain } from "./local-chain.ts"
import { sendAs, testWalletRoute } from "./test-wallet.ts"

const FAUCET_AMOUNT = "1000"
const MAX_ADVANCE_DAYS = 3_650
/** How many requests GET /sandbox/inbox shows at most, newest first. */
const INBOX_SHOWN = 100

const Advance = Matching("^[0-9]{1,9}(s|m|h|d)$", "A duration such as 90s, 10m, 1h or 31d", { examples: ["31d"] })

interface Parts {
  ctx: Context
  chain: LocalChain
  wallet: ChainClient
  deployer: ReturnType<typeof privateKeyToAccount>
  buyers: { address: string; privateKey: `0x${string}` }[]
  merchants: { payoutKey: `0x${string}` }[]
  advance: (ms: number) => Promise<Date>
  inboxFile: string
}

const hidden = { hide: true }

export function sandboxRoutes(app: Server, parts: Parts): void {
  const inTurn = oneAtATime()
  moneyRoutes(app, parts, minedInTurn(parts, inTurn))
  timeRoutes(app, parts)
  reorgRoute(app, parts, inTurn)
  inboxRoutes(app, parts)
}

function moneyRoutes(app: Server, { ctx, wallet, deployer, buyers, merchants }: Parts, mined: Mined): void {
  const token = ctx.chain.networks[0]?.token
  if (!token) throw new Error("the sandbox has no network")

  app.post(
    "/sandbox/faucet",
    { schema: { ...hidden, body: Strict({ address: Type.String(), amount: Type.Optional(MoneyInput) }) } },
    async request => {
      const address = addressField("address", request.body.address)
      const amount = amountAt(request.body, token.decimals, FAUCET_AMOUNT)
      const txHash = await mined(async () => {
        const gas = await wallet.getBalance({ address })
        await wallet.setBalance({ address, value: gas + 10n ** 18n })
        const mint = {
          address: token.address,
          abi: testUsdcAbi,
          functionName: "mint",
          args: [address, amount],
        } as const
        return await wallet.writeContract({ ...mint, account: deployer, chain: null })
      })
      return { txHash }
    },
  )

  app.post(
    "/sandbox/pay",
    {
      schema: {
        ...hidden,
        body: Strict({
          to: Type.String(),
          amount: MoneyInput,
          buyer: Type.Optional(Type.Integer({ minimum: 0, maximum: buyers.length - 1 })),
          data: Type.Optional(Type.String({ maxLength: 10_000 })),
        }),
      },
    },
    async request => {
      const to = addressField("to", request.body.to)
      const amount = amountAt(request.body, token.decimals)
      const { data: suffix = "0x", buyer: index = 0 } = request.body
      if (!isHex(suffix) || suffix.length % 2 !== 0)
        throw invalid("data", "must be 0x followed by whole bytes in hexadecimal")
      const buyer = buyers[index]
      if (!buyer) throw invalid("buyer", "must be the index of one of the buyers")
      const data = concat([encodeFunctionData({ abi: erc20Abi, functionName: "transfer", args: [to, amount] }), suffix])
      const account = privateKeyToAccount(buyer.privateKey)
      const txHash = await mined(() => sendAs(wallet, account, { to: token.address, data }))
      return { txHash }
    },
  )

  testWalletRoute(app, { wallet, buyers, merchants, mined })
}

function timeRoutes(app: Server, { chain, wallet, advance }: Parts): void {
  app.post("/sandbox/clock", { schema: { ...hidden, body: Strict({ advance: Advance }) } }, async request => {
    const unitMs = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }
    const { advance: text } = request.body
    const ms = Number.parseInt(text, 10) * unitMs[text.at(-1) as keyof typeof unitMs]
    if (ms > MAX_ADVANCE_DAYS * unitMs.d) throw invalid("advance", `must be at most ${MAX_ADVANCE_DAYS} days`)
    return { now: (await advance(ms)).toISOString() }
  })

  app.post(
    "/sandbox/mine",
    { schema: { ...hidden, body: Strict({ blocks: Type.Integer({ minimum: 1, maximum: 1_000 }) }) } },
    async request => {
      await chain.mine(request.body.blocks)
      return { blockNumber: Number(await wallet.getBlockNumber()) }
    },
  )
}

/** Does what a network may do to a visible payment: removes the block of a transaction, and all later blocks. */
function reorgRoute(app: Server, { chain, wallet }: Parts, inTurn: InTurn): void {
  const blockOf = (hash: Hex) =>
    wallet.getTransactionReceipt({ hash }).then(
      ({ blockNumber }) => blockNumber,
      () => undefined,
    )
  app.post(
    "/sandbox/reorg",
    { schema: { ...hidden, body: Strict({ txHash: Type.String({ maxLength: 66 }) }) } },
    async request => {
      const txHash = request.body.txHash as Hex
      return await inTurn(async () => {
        let block = await blockOf(txHash)
        if (block === undefined) throw invalid("txHash", "must be the hash of a transaction in a block")
        const { number: final } = await wallet.getBlock({ blockTag: "finalized" })
        if (block <= final) throw invalid("txHash", "must be in a block that is not final yet: make the payment again")
        // Repeated, because a block that is mined in between makes the depth too small.
        for (; block !== undefined; block = await blockOf(txHash))
          await chain.reorg(Number((await wallet.getBlockNumber()) - block) + 1)
        return { blockNumber: Number(await wallet.getBlockNumber()) }
      })
    },
  )
}

function inboxRoutes(app: Server, { ctx, inboxFile }: Parts): void {
  app.get("/sandbox/inbox", { schema: hidden }, async () => {
    const lines = (await readFile(inboxFile, "utf8").catch(() => "")).split("\n").filter(line => line !== "")
    const data = lines
      .slice(-INBOX_SHOWN)
      .reverse()
      .map(line => JSON.parse(line))
    return { data, total: lines.length }
  })

  app.register(async inbox => {
    // The body is kept as received, without parsing, because signatures cover bytes.
    inbox.removeAllContentTypeParsers()
    inbox.addContentTypeParser("*", { parseAs: "string" }, async (_request: unknown, body: string) => body)
    inbox.post("/sandbox/inbox/:name", { schema: hidden }, async request => {
      const { headers, body = "", params } = request
      const { name } = params as { name: string }
      const entry = { name, receivedAt: ctx.now().toISOString(), headers, body }
      await appendFile(inboxFile, `${JSON.stringify(entry)}\n`)
      return { received: true }
    })
  })
}

type Hex = `0x${string}`
type Mined = (send: () => Promise<Hex>) => Promise<Hex>
type InTurn = <T>(work: () => Promise<T>) => Promise<T>

/**
 * Runs one task at a time, because concurrent transactions of one account would take the same nonce, and a reorg
 * removes waiting transactions.
 */
function oneAtATime(): InTurn {
  let last: Promise<unknown> = Promise.resolve()
  return work => {
    const mine = last.then(work)
    last = mine.catch(() => {})
    return mine
  }
}

/**
 * Sends a transaction, and waits until it is mined and saved to disk, so that an answered request survives any kill.
 * Throws if the transaction reverted, because its caller would wait for a payment that never happened.
 */
function minedInTurn({ chain, wallet }: Parts, inTurn: InTurn): Mined {
  return send =>
    inTurn(async () => {
      const hash = await send()
      const { status } = await wallet.waitForTransactionReceipt({ hash })
      await chain.save()
      if (status === "reverted") throw new Error(`the transaction ${hash} reverted`)
      return hash
    })
}

/** Parses the amount in a body, in base units; throws `VALIDATION_ERROR`. */
function amountAt(body: object, decimals: number, fallback = ""): bigint {
  try {
    return parseAmount(asWritten(body, "amount") ?? fallback, decimals)
  } catch (error) {
    if (error instanceof AmountError) throw invalid("amount", error.message)
    throw error
  }
}
