// The local USDC behaves like the real one wherever the service and its payers rely on it.

import {
  domainSeparator,
  type Hex,
  keccak256,
  maxUint256,
  pad,
  parseEventLogs,
  parseSignature,
  serializeSignature,
  toFunctionSelector,
  toHex,
  zeroAddress,
} from "viem"
import { generatePrivateKey, type PrivateKeyAccount, privateKeyToAccount } from "viem/accounts"
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest"
import { testUsdcAbi as abi } from "../server/src/platform/chain/abi.ts"
import type { Address } from "../server/src/platform/chain/hex.ts"
import { type Anvil, deployContractWallet, deployTestUsdc, revertOf, startAnvil } from "../server/test/anvil.ts"

const frozen = "Blacklistable: account is blacklisted"
const used = "FiatTokenV2: authorization is used or canceled"
const badSignature = "FiatTokenV2: invalid signature"
const tooEarly = "FiatTokenV2: authorization is not yet valid"
const tooLate = "FiatTokenV2: authorization is expired"
const tooMuch = "ERC20: transfer amount exceeds balance"

/** The two ways to pass a signature: split in three as in ERC-3009, or whole as USDC has it since version 2.2. */
const forms = ["v, r, s", "bytes"] as const
type Form = (typeof forms)[number]

const movement = [
  { name: "from", type: "address" },
  { name: "to", type: "address" },
  { name: "value", type: "uint256" },
  { name: "validAfter", type: "uint256" },
  { name: "validBefore", type: "uint256" },
  { name: "nonce", type: "bytes32" },
] as const
const types = {
  TransferWithAuthorization: movement,
  ReceiveWithAuthorization: movement,
  CancelAuthorization: [
    { name: "authorizer", type: "address" },
    { name: "nonce", type: "bytes32" },
  ],
  Permit: [
    { name: "owner", type: "address" },
    { name: "spender", type: "address" },
    { name: "value", type: "uint256" },
    { name: "nonce", type: "uint256" },
    { name: "deadline", type: "uint256" },
  ],
} as const

type Authorization = { from: Hex; to: Hex; value: bigint; validAfter: bigint; validBefore: bigint; nonce: Hex }

let anvil: Anvil
/** Sends, and returns the receipt; throws what the call would revert with, unless the request sets its gas. */
let send: Anvil["client"]["writeContractSync"]
let usdc: Address
let deployer: PrivateKeyAccount
let payee: PrivateKeyAccount
let stranger: PrivateKeyAccount
/** A new account with 1,000 base units and no ether, so that it can act only by signature. */
let payer: PrivateKeyAccount

beforeAll(async () => {
  anvil = await startAnvil()
  send = anvil.client.writeContractSync
  ;[deployer, payee, stranger] = anvil.accounts
  usdc = await deployTestUsdc(anvil.client)
})
afterAll(() => anvil.stop())
beforeEach(async () => {
  payer = privateKeyToAccount(generatePrivateKey())
  await mint(payer.address, 1000n)
})

const token = () => ({ address: usdc, abi }) as const
const domain = () => ({ name: "USDC", version: "2", chainId: 84532, verifyingContract: usdc }) as const
const time = async () => (await anvil.client.getBlock()).timestamp
const mint = (to: Hex, amount: bigint) => send({ ...token(), functionName: "mint", args: [to, amount] })
const balance = (account: Hex) => anvil.client.readContract({ ...token(), functionName: "balanceOf", args: [account] })
const isUsed = (authorizer: Hex, nonce: Hex) =>
  anvil.client.readContract({ ...token(), functionName: "authorizationState", args: [authorizer, nonce] })
const blacklist = (account: Hex) => send({ ...token(), functionName: "blacklist", args: [account] })
const unBlacklist = (account: Hex) => send({ ...token(), functionName: "unBlacklist", args: [account] })

let nonces = 0
/** 100 base units from the payer to the payee, valid for an hour. */
async function authorization(of: Partial<Authorization> = {}): Promise<Authorization> {
  const validBefore = (await time()) + 3600n
  const nonce = keccak256(toHex(++nonces))
  return { from: payer.address, to: payee.address, value: 100n, validAfter: 0n, validBefore, nonce, ...of }
}

type Kind = "TransferWithAuthorization" | "ReceiveWithAuthorization"

const sign = (of: Authorization, kind: Kind, signer = payer) =>
  signer.signTypedData({ domain: domain(), types, primaryType: kind, message: of })

const signCancel = (authorizer: Hex, nonce: Hex, signer = payer) =>
  signer.signTypedData({
    domain: domain(),
    types,
    primaryType: "CancelAuthorization",
    message: { authorizer, nonce },
  })

const whole = <const T extends readonly unknown[]>(args: T, signature: Hex) => [...args, signature] as const
const parts = <const T extends readonly unknown[]>(args: T, signature: Hex) => {
  const { r, s, yParity } = parseSignature(signature)
  return [...args, yParity + 27, r, s] as const
}

/**
 * The call that moves by this authorization, relayed by anyone, except for `receive…`, which only the payee may send.
 */
function move(of: Authorization, signature: Hex, form: Form, kind: Kind, account?: PrivateKeyAccount) {
  const args = [of.from, of.to, of.value, of.validAfter, of.validBefore, of.nonce] as const
  const isTransfer = kind === "TransferWithAuthorization"
  const functionName = isTransfer ? "transferWithAuthorization" : "receiveWithAuthorization"
  const request = { ...token(), functionName, account: account ?? (isTransfer ? stranger : payee) } as const
  const call = { ...request, args: form === "bytes" ? whole(args, signature) : parts(args, signature) }
  return {
    simulate: () => anvil.client.simulateContract(call),
    send: (gas?: bigint) => send(gas === undefined ? call : { ...call, gas }),
  }
}

function cancel(authorizer: Hex, nonce: Hex, signature: Hex, form: Form) {
  const request = { ...token(), functionName: "cancelAuthorization", account: stranger } as const
  const args = [authorizer, nonce] as const
  const call = { ...request, args: form === "bytes" ? whole(args, signature) : parts(args, signature) }
  return { simulate: () => anvil.client.simulateContract(call), send: () => send(call) }
}

describe("what payers read", () => {
  test("name, symbol, decimals and version are those of USDC", async () => {
    const { client } = anvil
    expect(await client.readContract({ ...token(), functionName: "name" })).toBe("USDC")
    expect(await client.readContract({ ...token(), functionName: "symbol" })).toBe("USDC")
    expect(await client.readContract({ ...token(), functionName: "decimals" })).toBe(6)
    expect(await client.readContract({ ...token(), functionName: "version" })).toBe("2")
  })

  test("the domain is the one they sign in", async () => {
    const read = await anvil.client.readContract({ ...token(), functionName: "DOMAIN_SEPARATOR" })
    expect(read).toBe(domainSeparator({ domain: domain() }))
  })

  test.each([
    ["TRANSFER_WITH_AUTHORIZATION_TYPEHASH", "0x7c7c6cdb67a18743f49ec6fa9b35f50d52ed05cbed4cc592e13b44501c1a2267"],
    ["RECEIVE_WITH_AUTHORIZATION_TYPEHASH", "0xd099cc98ef71107a616c4f0f941f04c322d8e254fe26b3c6668db87aae413de8"],
    ["CANCEL_AUTHORIZATION_TYPEHASH", "0x158b0a9edf7a828aad02f63cd515c68ef2f50ba807396f6d12842833a1597429"],
    ["PERMIT_TYPEHASH", "0x6e71edae12b1b97f4d1f60370fef10105fa2faae0126114a169c64845d6126c9"],
  ] as const)("%s is USDC's", async (functionName, hash) => {
    expect(await anvil.client.readContract({ ...token(), functionName })).toBe(hash)
  })

  test("every function has the selector it has in USDC", () => {
    const selectors = abi.filter(entry => entry.type === "function").map(entry => toFunctionSelector(entry))
    expect(selectors).toEqual(
      expect.arrayContaining([
        "0xe3ee160e", // transferWithAuthorization, v, r, s
        "0xcf092995", // transferWithAuthorization, bytes
        "0xef55bec6", // receiveWithAuthorization, v, r, s
        "0x88b7ab63", // receiveWithAuthorization, bytes
        "0x5a049a70", // cancelAuthorization, v, r, s
        "0xb7b72899", // cancelAuthorization, bytes
        "0xd505accf", // permit, v, r, s
        "0x9fd5a6cf", // permit, bytes
        "0xe94a0102", // authorizationState
        "0xfe575a87", // isBlacklisted
      ]),
    )
  })
})

describe("the owner's powers", () => {
  test("are refused to others", async () => {
    const { simulateContract } = anvil.client
    const by = { ...token(), account: stranger }
    const calls = [
      simulateContract({ ...by, functionName: "mint", args: [stranger.address, 1n] }),
      simulateContract({ ...by, functionName: "blacklist", args: [payee.address] }),
      simulateContract({ ...by, functionName: "unBlacklist", args: [payee.address] }),
    ]
    const refusal = `OwnableUnauthorizedAccount(${stranger.address})`
    expect(await Promise.all(calls.map(revertOf))).toEqual([refusal, refusal, refusal])
  })

  test("mint makes money, with the Transfer from nobody that explorers expect", async () => {
    const receipt = await mint(payer.address, 5n)
    expect(await balance(payer.address)).toBe(1005n)
    const [event] = parseEventLogs({ abi, logs: receipt.logs, eventName: "Transfer" })
    expect(event?.args).toEqual({ from: zeroAddress, to: payer.address, value: 5n })
  })
})

describe("the blacklist", () => {
  const transfer = (to: Hex, account: PrivateKeyAccount) =>
    ({ ...token(), functionName: "transfer", args: [to, 1n], account }) as const

  test("stops a frozen account from sending and from receiving, until it is thawed", async () => {
    const { client } = anvil
    await mint(stranger.address, 10n)
    await mint(payee.address, 10n)
    const froze = await blacklist(payee.address)
    expect(parseEventLogs({ abi, logs: froze.logs })).toMatchObject([{ eventName: "Blacklisted" }])
    expect(await client.readContract({ ...token(), functionName: "isBlacklisted", args: [payee.address] })).toBe(true)
    expect(await revertOf(client.simulateContract(transfer(payee.address, stranger)))).toBe(frozen)
    expect(await revertOf(client.simulateContract(transfer(stranger.address, payee)))).toBe(frozen)
    const minting = { ...token(), functionName: "mint", args: [payee.address, 1n] } as const
    expect(await revertOf(client.simulateContract(minting))).toBe(frozen)
    const thawed = await unBlacklist(payee.address)
    expect(parseEventLogs({ abi, logs: thawed.logs })).toMatchObject([{ eventName: "UnBlacklisted" }])
    await send(transfer(payee.address, stranger))
    await send(transfer(stranger.address, payee))
  })

  test("stops what an allowance would move", async () => {
    const { client } = anvil
    await mint(payee.address, 10n)
    await send({ ...token(), functionName: "approve", args: [stranger.address, 10n], account: payee })
    const request = {
      ...token(),
      functionName: "transferFrom",
      args: [payee.address, stranger.address, 1n],
      account: stranger,
    } as const
    await client.simulateContract(request)
    await blacklist(payee.address)
    expect(await revertOf(client.simulateContract(request))).toBe(frozen)
    await unBlacklist(payee.address)
  })

  test.each(forms)("stops an authorized transfer from or to a frozen account, and keeps its nonce (%s)", async form => {
    const of = await authorization()
    const signed = move(of, await sign(of, "TransferWithAuthorization"), form, "TransferWithAuthorization")
    for (const account of [of.from, of.to]) {
      await blacklist(account)
      expect(await revertOf(signed.simulate())).toBe(frozen)
      expect((await signed.send(300_000n)).status).toBe("reverted")
      expect(await isUsed(of.from, of.nonce)).toBe(false)
      await unBlacklist(account)
    }
    await signed.send()
  })
})

describe.each(forms)("an authorization by %s", form => {
  describe.each(["TransferWithAuthorization", "ReceiveWithAuthorization"] as const)("%s", kind => {
    const signed = async (of: Authorization) => move(of, await sign(of, kind), form, kind)

    test("moves the money, uses the nonce and emits the event", async () => {
      const of = await authorization()
      const before = await balance(of.to)
      const receipt = await (await signed(of)).send()
      expect(await balance(of.to)).toBe(before + 100n)
      expect(await balance(of.from)).toBe(900n)
      expect(await isUsed(of.from, of.nonce)).toBe(true)
      expect(parseEventLogs({ abi, logs: receipt.logs }).map(({ eventName, args }) => ({ eventName, args }))).toEqual([
        { eventName: "AuthorizationUsed", args: { authorizer: of.from, nonce: of.nonce } },
        { eventName: "Transfer", args: { from: of.from, to: of.to, value: 100n } },
      ])
    })

    test("is valid once", async () => {
      const call = await signed(await authorization())
      await call.send()
      expect(await revertOf(call.simulate())).toBe(used)
    })

    test("is not valid for another amount, payee, payer, window or nonce than was signed", async () => {
      const of = await authorization()
      const signature = await sign(of, kind)
      await mint(stranger.address, 1000n)
      const changes: Partial<Authorization>[] = [
        { value: 101n },
        { from: stranger.address },
        { validAfter: 1n },
        { validBefore: of.validBefore + 1n },
        { nonce: pad("0x01") },
      ]
      for (const change of changes)
        expect(await revertOf(move({ ...of, ...change }, signature, form, kind).simulate())).toBe(badSignature)
      const elsewhere = move({ ...of, to: stranger.address }, signature, form, kind, stranger)
      expect(await revertOf(elsewhere.simulate())).toBe(badSignature)
    })

    test("is not valid when signed by another, for the other kind, or in another domain", async () => {
      const of = await authorization()
      const other = kind === "TransferWithAuthorization" ? "ReceiveWithAuthorization" : "TransferWithAuthorization"
      const abroad = { ...domain(), chainId: 8453 }
      const signatures = [
        await sign(of, kind, stranger),
        await sign(of, other),
        await payer.signTypedData({ domain: abroad, types, primaryType: kind, message: of }),
      ]
      for (const signature of signatures)
        expect(await revertOf(move(of, signature, form, kind).simulate())).toBe(badSignature)
    })

    test("accepts no second signature derived from the first (malleability)", async () => {
      const of = await authorization()
      const { r, s, yParity } = parseSignature(await sign(of, kind))
      const order = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n
      const twin = serializeSignature({ r, s: toHex(order - BigInt(s), { size: 32 }), yParity: 1 - yParity })
      expect(await revertOf(move(of, twin, form, kind).simulate())).toBe(badSignature)
    })

    test("is not valid for more than the payer has, and stays valid until the payer has it", async () => {
      const of = await authorization({ value: 1001n })
      const call = await signed(of)
      expect(await revertOf(call.simulate())).toBe(tooMuch)
      expect(await isUsed(of.from, of.nonce)).toBe(false)
      await mint(of.from, 1n)
      await call.send()
      expect(await balance(of.from)).toBe(0n)
    })

    test("is valid from the second after validAfter to the one before validBefore", async () => {
      const { client } = anvil
      const start = (await time()) + 100n
      const window = { validAfter: start, validBefore: start + 100n }
      const one = await signed(await authorization(window))
      const two = await signed(await authorization(window))
      const sendAt = async (call: typeof one, timestamp: bigint) => {
        await client.setNextBlockTimestamp({ timestamp })
        return (await call.send(300_000n)).status
      }
      expect(await revertOf(one.simulate())).toBe(tooEarly)
      expect(await sendAt(one, start)).toBe("reverted")
      expect(await sendAt(one, start + 1n)).toBe("success")
      expect(await sendAt(two, start + 100n)).toBe("reverted")
      expect(await revertOf(two.simulate())).toBe(tooLate)
    })

    test("is valid to the last second", async () => {
      const { client } = anvil
      const of = await authorization({ validBefore: (await time()) + 100n })
      const call = await signed(of)
      await client.setNextBlockTimestamp({ timestamp: of.validBefore - 1n })
      expect((await call.send(300_000n)).status).toBe("success")
    })
  })

  test("ReceiveWithAuthorization is for the payee alone to use", async () => {
    const of = await authorization()
    const signature = await sign(of, "ReceiveWithAuthorization")
    const call = move(of, signature, form, "ReceiveWithAuthorization", stranger)
    expect(await revertOf(call.simulate())).toBe("FiatTokenV2: caller must be the payee")
  })

  test("can be canceled by its authorizer, through anyone, and is then void", async () => {
    const of = await authorization()
    const receipt = await cancel(of.from, of.nonce, await signCancel(of.from, of.nonce), form).send()
    expect(parseEventLogs({ abi, logs: receipt.logs }).map(({ eventName, args }) => ({ eventName, args }))).toEqual([
      { eventName: "AuthorizationCanceled", args: { authorizer: of.from, nonce: of.nonce } },
    ])
    expect(await isUsed(of.from, of.nonce)).toBe(true)
    const call = move(of, await sign(of, "TransferWithAuthorization"), form, "TransferWithAuthorization")
    expect(await revertOf(call.simulate())).toBe(used)
  })

  test("cannot be canceled by another, twice, or once used", async () => {
    const of = await authorization()
    const forged = cancel(of.from, of.nonce, await signCancel(of.from, of.nonce, stranger), form)
    expect(await revertOf(forged.simulate())).toBe(badSignature)
    const real = cancel(of.from, of.nonce, await signCancel(of.from, of.nonce), form)
    await real.send()
    expect(await revertOf(real.simulate())).toBe(used)

    const next = await authorization()
    await move(next, await sign(next, "TransferWithAuthorization"), form, "TransferWithAuthorization").send()
    const late = cancel(next.from, next.nonce, await signCancel(next.from, next.nonce), form)
    expect(await revertOf(late.simulate())).toBe(used)
  })
})

describe("a contract wallet (ERC-1271)", () => {
  const kind = "TransferWithAuthorization"

  test("pays and cancels by what its signer signed", async () => {
    const wallet = await deployContractWallet(anvil.client, payer.address)
    await mint(wallet, 500n)
    const of = await authorization({ from: wallet })
    const before = await balance(of.to)
    await move(of, await sign(of, kind), "bytes", kind).send()
    expect(await balance(wallet)).toBe(400n)
    expect(await balance(of.to)).toBe(before + 100n)
    const next = await authorization({ from: wallet })
    await cancel(wallet, next.nonce, await signCancel(wallet, next.nonce), "bytes").send()
    expect(await revertOf(move(next, await sign(next, kind), "bytes", kind).simulate())).toBe(used)
  })

  test("does not pay by what another signed", async () => {
    const wallet = await deployContractWallet(anvil.client, payer.address)
    await mint(wallet, 500n)
    const of = await authorization({ from: wallet })
    const call = move(of, await sign(of, kind, stranger), "bytes", kind)
    expect(await revertOf(call.simulate())).toBe(badSignature)
  })

  test("a contract that knows no signatures never pays", async () => {
    await mint(usdc, 500n)
    const of = await authorization({ from: usdc })
    expect(await revertOf(move(of, await sign(of, kind), "bytes", kind).simulate())).toBe(badSignature)
  })
})

describe.each(forms)("permit by %s (EIP-2612)", form => {
  const permit = (signature: Hex, value: bigint, deadline: bigint) => {
    const args = [payer.address, stranger.address, value, deadline] as const
    const request = { ...token(), functionName: "permit", account: stranger } as const
    const call = { ...request, args: form === "bytes" ? whole(args, signature) : parts(args, signature) }
    return { simulate: () => anvil.client.simulateContract(call), send: () => send(call) }
  }
  const signPermit = (value: bigint, deadline: bigint, signer = payer) =>
    signer.signTypedData({
      domain: domain(),
      types,
      primaryType: "Permit",
      message: { owner: payer.address, spender: stranger.address, value, nonce: 0n, deadline },
    })

  test("sets the allowance once", async () => {
    const call = permit(await signPermit(70n, maxUint256), 70n, maxUint256)
    await call.send()
    const args = [payer.address, stranger.address] as const
    expect(await anvil.client.readContract({ ...token(), functionName: "allowance", args })).toBe(70n)
    expect(await anvil.client.readContract({ ...token(), functionName: "nonces", args: [payer.address] })).toBe(1n)
    expect(await revertOf(call.simulate())).toBe("EIP2612: invalid signature")
  })

  test("is refused when late, changed or signed by another", async () => {
    const past = (await time()) - 1n
    expect(await revertOf(permit(await signPermit(1n, past), 1n, past).simulate())).toBe(
      "FiatTokenV2: permit is expired",
    )
    const forgeries = [permit(await signPermit(1n, maxUint256), 2n, maxUint256)]
    forgeries.push(permit(await signPermit(1n, maxUint256, deployer), 1n, maxUint256))
    for (const call of forgeries) expect(await revertOf(call.simulate())).toBe("EIP2612: invalid signature")
  })
})
