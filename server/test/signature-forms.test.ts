// Every form in which wallets write a signature, at every door that takes one: it is right, or refused with true words.
import { randomBytes } from "node:crypto"
import {
  concat,
  encodeAbiParameters,
  encodeDeployData,
  encodeFunctionData,
  type Hex,
  hashMessage,
  hashTypedData,
  hexToBigInt,
  numberToHex,
  parseSignature,
  serializeCompactSignature,
  signatureToCompactSignature,
  slice,
} from "viem"
import { generatePrivateKey, type PrivateKeyAccount, privateKeyToAccount } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { contractWalletAbi, contractWalletBytecode } from "../src/platform/chain/abi.ts"
import { type Authorization, authorizationDigest } from "../src/platform/chain/authorizations.ts"
import { create2Deployment } from "../src/platform/chain/create2.ts"
import { typedPayment } from "../src/platform/chain/escrow.ts"
import type { EscrowDeployment } from "../src/platform/chain/escrow-deployments.ts"
import { type Address, checksummed, type Hash } from "../src/platform/chain/hex.ts"
import { paymentInfoOf } from "../src/products/escrow/payment-info.ts"
import { type PayoutRig, recipient, startPayoutRig } from "./payouts.ts"
import { bodyOf } from "./relays.ts"
import { placeEscrow, reservesOn } from "./reserve.ts"

let rig: PayoutRig
let escrow: EscrowDeployment
let on: ReturnType<typeof reservesOn>
beforeAll(async () => {
  rig = await startPayoutRig()
  escrow = await placeEscrow(rig)
  on = reservesOn(rig, escrow)
})
afterAll(() => rig?.stop())
beforeEach(() => on.begin())

const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n
const WRAPPED = `0x${"6492".repeat(16)}` as const
/** The code of a contract that accepts every signature, as a wallet accepts the long one of a passkey. */
const SAYS_YES = `0x7f1626ba7e${"0".repeat(56)}5f5260205ff3` as const

/** A wallet: a key's account, or a contract that the key owns. */
interface Wallet {
  address: Address
  key: PrivateKeyAccount
  /** The call that deploys it (ERC-6492). */
  factory: { to: Address; data: Hex }
}

const kinds = {
  key: async (key: PrivateKeyAccount) => ({ ...undeployed(key), address: key.address.toLowerCase() as Address }),
  deployed: async (key: PrivateKeyAccount) => {
    const wallet = undeployed(key)
    const hash = await rig.anvil.client.sendTransaction(wallet.factory)
    expect((await rig.anvil.client.waitForTransactionReceipt({ hash })).status).toBe("success")
    return wallet
  },
  undeployed: async (key: PrivateKeyAccount) => undeployed(key),
  "that accepts all": async (key: PrivateKeyAccount) => {
    const address = `0x${randomBytes(20).toString("hex")}` as Address
    await rig.anvil.client.setCode({ address, bytecode: SAYS_YES })
    return { ...undeployed(key), address }
  },
}

function undeployed(key: PrivateKeyAccount): Wallet {
  const code = { abi: contractWalletAbi, bytecode: contractWalletBytecode, args: [key.address] } as const
  const { address, ...factory } = create2Deployment(encodeDeployData(code))
  return { address, key, factory }
}

/** What ERC-6492 puts around a signature. */
const wrapped = ({ to, data }: Wallet["factory"], signature: Hex): Hex => {
  const types = [{ type: "address" }, { type: "bytes" }, { type: "bytes" }] as const
  return concat([encodeAbiParameters(types, [to, data, signature]), WRAPPED])
}
const stranger = privateKeyToAccount(generatePrivateKey())
const sign = ({ key }: Pick<Wallet, "key">, hash: Hash): Promise<Hex> => key.sign({ hash })
const endingIn = (signature: Hex, v: number): Hex => concat([slice(signature, 0, 64), numberToHex(v, { size: 1 })])
const parityOf = (signature: Hex): number => parseSignature(signature).yParity

/** `true`: it is taken; otherwise what the refusal says. */
type Outcome = true | RegExp
interface Form {
  wallet: keyof typeof kinds
  write: (wallet: Wallet, hash: Hash) => Promise<Hex>
  /** Where it is only read. */
  proof: Outcome
  /** Where it goes into a transaction. */
  transaction: Outcome
}
const both = (outcome: Outcome) => ({ proof: outcome, transaction: outcome })
const NOT_IT = /is not the signature of 0x/

const forms: Record<string, Form> = {
  "65 bytes that end in 27 or 28": { wallet: "key", write: sign, ...both(true) },
  "65 bytes that end in 0 or 1": {
    wallet: "key",
    write: async (wallet, hash) => {
      const signature = await sign(wallet, hash)
      return endingIn(signature, parityOf(signature))
    },
    ...both(true),
  },
  "64 bytes (EIP-2098)": {
    wallet: "key",
    write: async (wallet, hash) =>
      serializeCompactSignature(signatureToCompactSignature(parseSignature(await sign(wallet, hash)))),
    ...both(true),
  },
  "64 bytes with the other parity": {
    wallet: "key",
    write: async (wallet, hash) => {
      const { yParity, ...signature } = parseSignature(await sign(wallet, hash))
      return serializeCompactSignature(signatureToCompactSignature({ ...signature, yParity: yParity === 0 ? 1 : 0 }))
    },
    ...both(NOT_IT),
  },
  "65 bytes that end in 37": {
    wallet: "key",
    write: async (wallet, hash) => endingIn(await sign(wallet, hash), 37),
    ...both(/is not the signature of .*: it ends in 37 instead of 0, 1, 27 or 28/),
  },
  "65 bytes with the higher s": {
    wallet: "key",
    write: async (wallet, hash) => {
      const signature = await sign(wallet, hash)
      const s = numberToHex(ORDER - hexToBigInt(slice(signature, 32, 64)), { size: 32 })
      return concat([slice(signature, 0, 32), s, parityOf(signature) === 0 ? "0x1c" : "0x1b"])
    },
    proof: true,
    transaction: /s must be in the lower half/,
  },
  "66 bytes of a key": {
    wallet: "key",
    write: async (wallet, hash) => concat([await sign(wallet, hash), "0x00"]),
    ...both(/is not the signature of .*: it has 66 bytes instead of 64 or 65/),
  },
  "a key's, wrapped (ERC-6492)": {
    wallet: "key",
    write: async (wallet, hash) => wrapped(wallet.factory, await sign(wallet, hash)),
    ...both(true),
  },
  "no bytes, of a key": { wallet: "key", write: async () => "0x", ...both(/is not the signature of .*: it is empty/) },
  "another key's": { wallet: "key", write: (_, hash) => sign({ key: stranger }, hash), ...both(NOT_IT) },

  "a contract's own": { wallet: "deployed", write: sign, ...both(true) },
  "a deployed contract's, wrapped (ERC-6492)": {
    wallet: "deployed",
    write: async (wallet, hash) => wrapped(wallet.factory, await sign(wallet, hash)),
    ...both(true),
  },
  "no bytes, of a contract that approved on chain": {
    wallet: "deployed",
    write: async ({ address }, hash) => {
      const call = { address, abi: contractWalletAbi, functionName: "approve", args: [hash] } as const
      await rig.anvil.client.writeContractSync(call)
      return "0x"
    },
    ...both(true),
  },
  "no bytes, of a contract that approved nothing": {
    wallet: "deployed",
    write: async () => "0x",
    ...both(/is not the signature of .*: it is empty, and there is no contract wallet that approved/),
  },
  "no bytes, wrapped in a call that would approve on chain": {
    wallet: "deployed",
    write: async ({ address }, hash) => {
      const data = encodeFunctionData({ abi: contractWalletAbi, functionName: "approve", args: [hash] })
      return wrapped({ to: address, data }, "0x")
    },
    ...both(/is not the signature of .*: it is empty, and there is no contract wallet that approved/),
  },
  "another key's, of a deployed contract, wrapped": {
    wallet: "deployed",
    write: async ({ factory }, hash) => wrapped(factory, await sign({ key: stranger }, hash)),
    ...both(NOT_IT),
  },
  "2,000 bytes that a contract accepts": {
    wallet: "that accepts all",
    write: async () => `0x${"5f".repeat(2_000)}`,
    ...both(true),
  },
  "2,000 bytes that a contract does not accept": {
    wallet: "deployed",
    write: async () => `0x${"5f".repeat(2_000)}`,
    ...both(/is not the signature of .*: it has 2000 bytes/),
  },
  "wrapped twice, of a contract that accepts all": {
    wallet: "that accepts all",
    write: async ({ factory }) => wrapped(factory, wrapped(factory, "0x5f")),
    ...both(/is wrapped twice/),
  },
  "the end of a wrapper without the rest": {
    wallet: "that accepts all",
    write: async () => concat([`0x${"5f".repeat(64)}`, WRAPPED]),
    ...both(/has the ending of ERC-6492, but does not contain/),
  },

  "an undeployed contract's, wrapped (ERC-6492)": {
    wallet: "undeployed",
    write: async (wallet, hash) => wrapped(wallet.factory, await sign(wallet, hash)),
    proof: true,
    transaction: /which is not deployed yet \(ERC-6492\).* deploy the wallet first/,
  },
  "an undeployed contract's, bare": { wallet: "undeployed", write: sign, ...both(NOT_IT) },
  "another key's, of an undeployed contract, wrapped": {
    wallet: "undeployed",
    write: async ({ factory }, hash) => wrapped(factory, await sign({ key: stranger }, hash)),
    proof: NOT_IT,
    transaction: /which is not deployed yet/,
  },
  "another key's, wrapped in what deploys that key's wallet": {
    wallet: "undeployed",
    write: async (_, hash) => wrapped(undeployed(stranger).factory, await sign({ key: stranger }, hash)),
    proof: NOT_IT,
    transaction: /which is not deployed yet/,
  },
}

/** What a door asks a wallet to sign, and how it answers the signature: whether it was taken, and the refusal's words. */
interface Asked {
  hash: Hash
  send: (signature: Hex) => Promise<{ taken: boolean; words: string | undefined }>
}
type Door = (wallet: Wallet) => Promise<Asked>

const call: PayoutRig["service"]["call"] = (...args) => rig.service.call(...args)
const shop = { as: "shop" }
const detailOf = ({ status, body }: Awaited<ReturnType<typeof call>>, path: string) => ({
  taken: status === 200,
  words: body.details?.find((each: { path: string }) => each.path.startsWith(path))?.message,
})
// biome-ignore lint/suspicious/noExplicitAny: it is JSON, as a wallet gets it.
const hashOf = ({ types: { EIP712Domain: _, ...types }, ...data }: any) => hashTypedData({ ...data, types }) as Hash

/** A message (EIP-4361) that a nonce route asks for. */
async function message(path: string, body: object | undefined, { address }: Wallet) {
  const nonce = await call("POST", path, body)
  expect(nonce.status).toBe(200)
  const text: string = nonce.body.message.replace("{address}", checksummed(address))
  return { text, hash: hashMessage(text) as Hash }
}

/** An authorization of the token from a wallet that holds the money. */
async function authorization({ address: from }: Wallet, to: Address, value: bigint): Promise<Authorization> {
  await rig.mint(from, value)
  const validBefore = BigInt(Math.floor(rig.service.ctx.now().getTime() / 1_000) + 600)
  return { from, to, value, validAfter: 0n, validBefore, nonce: `0x${randomBytes(32).toString("hex")}` as Hash }
}
const written = (given: Authorization) =>
  Object.fromEntries(Object.entries(given).map(([name, value]) => [name, `${value}`]))
const apiKey = async (): Promise<Record<string, string>> => {
  const { body } = await call("POST", "/api/console/api-keys", { name: "server" }, shop)
  return { "x-api-key": body.key }
}

const proofs: Record<string, Door> = {
  "sign-in": async wallet => {
    const { text, hash } = await message("/api/auth/nonce", undefined, wallet)
    return {
      hash,
      send: async signature =>
        detailOf(await call("POST", "/api/auth/verify", { message: text, signature }), "signature"),
    }
  },
  "an access proof": async wallet => {
    const { id } = await rig.sell()
    const { text, hash } = await message(`/api/paywalls/${id}/access/nonce`, undefined, wallet)
    return {
      hash,
      send: async signature => {
        const body = { address: wallet.address, message: text, signature }
        const answer = await call("POST", `/api/paywalls/${id}/access`, body)
        // Nobody has paid: this is said only to whoever has proven to be the wallet.
        return answer.body.error === "ACCESS_REQUIRED"
          ? { taken: true, words: undefined }
          : detailOf(answer, "signature")
      },
    }
  },
  "a return address": async wallet => {
    // Too little for a paywall, so it waits; and it came from this wallet.
    const sold = await rig.sell()
    await rig.paid(sold, 200_000n)
    await rig.service.ctx.db.updateTable("payments").set({ payer: wallet.address }).execute()
    const named = { id: sold.id, address: checksummed(recipient(7)) }
    const { text, hash } = await message("/api/pay/return-address/nonce", named, wallet)
    return {
      hash,
      send: async signature => {
        const answer = await call("POST", "/api/pay/return-address", { ...named, message: text, signature })
        return detailOf(answer, "signature")
      },
    }
  },
  "the wallet lock": async ({ address }) => {
    const as = { as: "locked" }
    const settings = (body: object, headers = {}) => call("PUT", "/api/console/settings", body, { ...as, headers })
    expect((await settings({ payoutAddress: checksummed(address) })).status).toBe(200)
    const [{ typedData }] = (await settings({ walletLock: true })).body.details
    return {
      hash: hashOf(typedData),
      send: async signature => {
        const header = { "wallet-signature": `${typedData.message.nonce} ${signature}` }
        return detailOf(await settings({ walletLock: true }, header), "Wallet-Signature")
      },
    }
  },
}

const transactions: Record<string, Door> = {
  "a gasless payment": async wallet => {
    const session = await rig.service.call("POST", "/api/console/checkouts", { amount: 5 }, shop)
    const given = await authorization(wallet, session.body.payTo.toLowerCase(), 5_000_000n)
    return {
      hash: authorizationDigest(rig.network, given),
      send: async signature => {
        const body = bodyOf(session.body.id, { authorization: given, signature })
        const answer = await call("POST", "/api/pay/authorize", body)
        return { taken: answer.body.status === "verifying", words: answer.body.details?.[0].message }
      },
    }
  },
  "a reservation": async wallet => {
    const id = await on.start()
    const typed = typedPayment(rig.network, escrow, paymentInfoOf(await on.rowOf(id), wallet.address))
    const given = typed.message as unknown as Authorization
    await rig.mint(wallet.address, given.value)
    return {
      hash: hashTypedData(typed) as Hash,
      send: async signature => {
        const answer = await call("POST", "/api/pay/authorize", bodyOf(id, { authorization: given, signature }))
        return { taken: answer.body.status === "verifying", words: answer.body.details?.[0].message }
      },
    }
  },
  "an x402 payment": async wallet => {
    const slug = `s${randomBytes(8).toString("hex")}`
    const sold = { name: "a", price: "0.50", slug, contentData: { text: "the content" } }
    expect((await call("POST", "/api/console/paywalls", sold, shop)).status).toBe(201)
    const { headers } = await call("GET", `/api/p/${slug}`)
    const [accepted] = JSON.parse(Buffer.from(`${headers["payment-required"]}`, "base64").toString()).accepts
    const given = await authorization(wallet, accepted.payTo.toLowerCase(), 500_000n)
    return {
      hash: authorizationDigest(rig.network, given),
      send: async signature => {
        const payload = { x402Version: 2, accepted, payload: { signature, authorization: written(given) } }
        const payment = Buffer.from(JSON.stringify(payload)).toString("base64")
        const asked = { headers: { "payment-signature": payment, prefer: "wait=0" } }
        const { status, body } = await call("GET", `/api/p/${slug}`, undefined, asked)
        return { taken: status === 202, words: status === 402 ? body.message : undefined }
      },
    }
  },
  "the facilitator": async wallet => {
    const payTo = recipient(8)
    const given = await authorization(wallet, payTo, 10_000n)
    const terms = {
      scheme: "exact",
      network: "eip155:84532",
      amount: "10000",
      asset: checksummed(rig.token),
      payTo,
      maxTimeoutSeconds: 60,
      extra: { name: "USDC", version: "2" },
    }
    return {
      hash: authorizationDigest(rig.network, given),
      send: async signature => {
        const payload = { signature, authorization: written(given) }
        const paymentPayload = { x402Version: 2, accepted: terms, payload }
        const body = { x402Version: 2, paymentPayload, paymentRequirements: terms }
        const answer = await call("POST", "/x402/verify", body, { headers: await apiKey() })
        return { taken: answer.body.isValid === true, words: answer.body.invalidMessage }
      },
    }
  },
  "a return": async wallet => {
    const as = { as: "returning" }
    const settings = { payoutAddress: checksummed(wallet.address), approver: "wallet" }
    expect((await call("PUT", "/api/console/settings", settings, as)).status).toBe(200)
    const id = await rig.paid(await rig.sell(undefined, as.as), 200_000n)
    const giveBack = (approval: object) =>
      call("POST", `/api/console/payments/${id}/return`, { address: recipient(6), ...approval }, as)
    const [{ typedData }] = (await giveBack({})).body.details
    const deadline = Number.parseInt(typedData.message.deadline, 10)
    return {
      hash: hashOf(typedData),
      send: async signature => detailOf(await giveBack({ approval: { deadline, signature } }), "approval.signature"),
    }
  },
}

const doors = [
  ...Object.entries(proofs).map(([name, door]) => ({ name, door, use: "proof" as const })),
  ...Object.entries(transactions).map(([name, door]) => ({ name, door, use: "transaction" as const })),
]

/** What was taken is sent, and the chain's contracts take it too. */
async function carriedOut(count: number): Promise<void> {
  await on.round()
  await rig.round()
  const { db } = rig.service.ctx
  const sent = await db.selectFrom("transaction_attempts").select("hash").where("hash", "is not", null).execute()
  const receipts = await Promise.all(
    sent.map(({ hash }) => rig.anvil.client.waitForTransactionReceipt({ hash: hash as Hex })),
  )
  expect(receipts.map(({ status }) => status)).toEqual(Array(count).fill("success"))
}

describe.each(Object.entries(forms))("%s", (_form, { wallet: kind, write, ...outcomes }) => {
  it.each(doors)("at $name", async ({ name, door, use }) => {
    const wallet = await kinds[kind](privateKeyToAccount(generatePrivateKey()))
    const { hash, send } = await door(wallet)
    const { taken, words } = await send(await write(wallet, hash))
    const expected = outcomes[use]
    if (taken && use === "transaction") await carriedOut(name === "the facilitator" ? 0 : 1)
    expect({ taken, words }).toEqual({
      taken: expected === true,
      words: expected === true ? undefined : expect.stringMatching(expected),
    })
  })
})
