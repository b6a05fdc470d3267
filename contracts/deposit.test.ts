// What Deposit and DepositFactory promise: who may move what from a deposit, when, and to whom.

import { encodeFunctionData, type Hex, toFunctionSelector, toHex, zeroAddress } from "viem"
import type { PrivateKeyAccount } from "viem/accounts"
import { afterAll, beforeAll, describe, expect, test } from "vitest"
import {
  depositAbi,
  depositFactoryAbi,
  oddTokenAbi,
  oddTokenBytecode,
  otherTokenAbi,
  testUsdcAbi,
} from "../server/src/chain/abi.ts"
import type { Address } from "../server/src/chain/hex.ts"
import {
  type Anvil,
  deploy,
  deployDepositFactory,
  deployOtherToken,
  deployTestUsdc,
  revertOf,
  startAnvil,
} from "../server/test/anvil.ts"

/** Both, because a deposit's errors come through the factory. */
const abi = [...depositFactoryAbi, ...depositAbi] as const
const silent = 0
const refusing = 1
const day = 86_400n

type Deposit = { address: Address; salt: Hex; owner: Hex; openAfter: bigint }

let anvil: Anvil
/** Sends, and returns the receipt; throws what the call would revert with, unless the request sets its gas. */
let send: Anvil["client"]["writeContractSync"]
let usdc: Address
let factory: Address
let operator: PrivateKeyAccount
let owner: PrivateKeyAccount
let stranger: PrivateKeyAccount
let payee: Hex

beforeAll(async () => {
  anvil = await startAnvil()
  send = anvil.client.writeContractSync
  ;[, operator, owner, stranger] = anvil.accounts
  payee = anvil.accounts[4].address
  usdc = await deployTestUsdc(anvil.client)
  factory = await deployDepositFactory(anvil.client, operator.address)
})
afterAll(() => anvil.stop())

let salts = 0
/** A deposit not used before, deployed only once something leaves it, that opens in a day by default. */
async function freshDeposit(of: Partial<Omit<Deposit, "address">> = {}): Promise<Deposit> {
  const terms = { salt: toHex(++salts, { size: 32 }), owner: owner.address, openAfter: (await time()) + day, ...of }
  return { ...terms, address: await addressOf(terms) }
}

const addressOf = async (of: Omit<Deposit, "address">) =>
  (
    await anvil.client.readContract({
      address: factory,
      abi,
      functionName: "addressOf",
      args: [of.salt, of.owner, of.openAfter],
    })
  ).toLowerCase() as Address

const time = async () => (await anvil.client.getBlock()).timestamp

async function moveTo(timestamp: bigint) {
  await anvil.client.setNextBlockTimestamp({ timestamp })
  await anvil.client.mine({ blocks: 1 })
}

const releaseArgs = (of: Deposit, amount: bigint, { to = payee, token = usdc as Hex } = {}) =>
  [of.salt, of.owner, of.openAfter, token, to, amount] as const

const release = (of: Deposit, amount: bigint, options: { from?: PrivateKeyAccount; to?: Hex; token?: Hex } = {}) => {
  const args = releaseArgs(of, amount, options)
  return { address: factory, abi, functionName: "release", args, account: options.from ?? operator } as const
}

const recoverFromFactory = (of: Deposit, token: Hex = usdc, from = stranger) => {
  const args = [of.salt, of.owner, of.openAfter, token] as const
  return { address: factory, abi, functionName: "recover", args, account: from } as const
}

const recover = (of: Deposit, token: Hex = usdc, from = stranger) =>
  ({ address: of.address, abi, functionName: "recover", args: [token], account: from }) as const

const mint = (to: Hex, amount: bigint) =>
  send({ address: usdc, abi: testUsdcAbi, functionName: "mint", args: [to, amount] })

const balance = (account: Hex, token: Hex = usdc) =>
  anvil.client.readContract({ address: token, abi: testUsdcAbi, functionName: "balanceOf", args: [account] })

const inPlace = async (of: Deposit) => (await anvil.client.getCode({ address: of.address })) !== undefined

const oddToken = (manner: number) => deploy(anvil.client, oddTokenAbi, oddTokenBytecode, [manner])
const mintOdd = (token: Hex, to: Hex, amount: bigint) =>
  send({ address: token, abi: oddTokenAbi, functionName: "mint", args: [to, amount] })

const freeze = (functionName: "blacklist" | "unBlacklist", account: Hex) =>
  send({ address: usdc, abi: testUsdcAbi, functionName, args: [account] })

describe("release", () => {
  test("puts the deposit in place and moves what was asked, no more", async () => {
    const { client } = anvil
    const deposit = await freshDeposit()
    await mint(deposit.address, 100n)
    expect(await inPlace(deposit)).toBe(false)
    const before = await balance(payee)
    await send(release(deposit, 30n))
    expect(await inPlace(deposit)).toBe(true)
    expect(await balance(payee)).toBe(before + 30n)
    expect(await balance(deposit.address)).toBe(70n)
    expect(await client.readContract({ address: deposit.address, abi, functionName: "terms" })).toEqual([
      owner.address,
      deposit.openAfter,
    ])
  })

  test("works again, and after a top-up", async () => {
    const deposit = await freshDeposit()
    await mint(deposit.address, 100n)
    await send(release(deposit, 60n))
    await send(release(deposit, 40n))
    await mint(deposit.address, 5n)
    await send(release(deposit, 5n))
    expect(await balance(deposit.address)).toBe(0n)
  })

  test("is the operator's alone, before and after the deposit opens", async () => {
    const { client, accounts } = anvil
    const deposit = await freshDeposit()
    await mint(deposit.address, 100n)
    const others = [stranger, owner, accounts[0], accounts[4]]
    for (const from of others)
      expect(await revertOf(client.simulateContract(release(deposit, 1n, { from })))).toBe("OnlyOperator()")
    await moveTo(deposit.openAfter + 1n)
    for (const from of others)
      expect(await revertOf(client.simulateContract(release(deposit, 1n, { from })))).toBe("OnlyOperator()")
    await send(release(deposit, 100n))
    expect(await balance(deposit.address)).toBe(0n)
  })

  test("cannot be asked of the deposit itself, not even by the operator", async () => {
    const { client } = anvil
    const deposit = await freshDeposit()
    await mint(deposit.address, 100n)
    await send(release(deposit, 1n))
    for (const account of [operator, owner, stranger]) {
      const direct = { address: deposit.address, abi, functionName: "release", account } as const
      const call = client.simulateContract({ ...direct, args: [usdc, payee, 1n] })
      expect(await revertOf(call)).toBe("OnlyFactory()")
    }
  })

  test("of more than the deposit holds fails, and leaves nothing behind", async () => {
    const { client } = anvil
    const deposit = await freshDeposit()
    await mint(deposit.address, 100n)
    const request = release(deposit, 101n)
    expect(await revertOf(client.simulateContract(request))).toBe("ERC20: transfer amount exceeds balance")
    const { status } = await send({ ...request, gas: 500_000n })
    expect(status).toBe("reverted")
    expect(await inPlace(deposit)).toBe(false)
    expect(await balance(deposit.address)).toBe(100n)
  })
})

describe("recover", () => {
  test.each([
    { at: "the deposit", direct: true, placed: true },
    { at: "the factory, of a deposit in place", direct: false, placed: true },
    { at: "the factory, of a deposit not in place", direct: false, placed: false },
  ])("at $at: nobody until openAfter has passed, then anyone, all of it to the owner", async ({ direct, placed }) => {
    const { client } = anvil
    const deposit = await freshDeposit()
    const simulate = (from: PrivateKeyAccount) =>
      direct
        ? client.simulateContract(recover(deposit, usdc, from))
        : client.simulateContract(recoverFromFactory(deposit, usdc, from))
    // With its gas set, so that a call that will revert is mined anyway, at exactly the requested second.
    const sendAt = async (timestamp: bigint) => {
      await client.setNextBlockTimestamp({ timestamp })
      const gas = 500_000n
      return (await (direct ? send({ ...recover(deposit), gas }) : send({ ...recoverFromFactory(deposit), gas })))
        .status
    }
    await mint(deposit.address, 101n)
    if (placed) await send(release(deposit, 1n))
    const left = await balance(deposit.address)
    for (const from of [stranger, owner, operator])
      expect(await revertOf(simulate(from))).toBe(`NotOpenYet(${deposit.openAfter})`)
    expect(await sendAt(deposit.openAfter)).toBe("reverted")
    expect(await balance(deposit.address)).toBe(left)

    const before = await balance(owner.address)
    expect(await sendAt(deposit.openAfter + 1n)).toBe("success")
    expect(await balance(owner.address)).toBe(before + left)
    expect(await balance(deposit.address)).toBe(0n)
  })

  test("works again for what arrives later", async () => {
    const deposit = await freshDeposit({ openAfter: 0n })
    const before = await balance(owner.address)
    for (const amount of [7n, 8n]) {
      await mint(deposit.address, amount)
      await send(recoverFromFactory(deposit))
    }
    expect(await balance(owner.address)).toBe(before + 15n)
  })

  test("takes any token, one that answers nothing included", async () => {
    const { client } = anvil
    const deposit = await freshDeposit({ openAfter: 0n })
    const other = await deployOtherToken(client)
    const request = { address: other, abi: otherTokenAbi, functionName: "mint", args: [deposit.address, 9n] } as const
    await send(request)
    const odd = await oddToken(silent)
    await mintOdd(odd, deposit.address, 11n)
    await send(recoverFromFactory(deposit, other))
    await send(recover(deposit, odd))
    expect(await balance(owner.address, other)).toBe(9n)
    expect(await balance(owner.address, odd)).toBe(11n)
  })

  test("of a frozen owner fails without loss, and the operator can still pay out elsewhere", async () => {
    const { client } = anvil
    const deposit = await freshDeposit({ openAfter: 0n, owner: anvil.accounts[7].address })
    await mint(deposit.address, 10n)
    await freeze("blacklist", deposit.owner)
    expect(await revertOf(client.simulateContract(recoverFromFactory(deposit)))).toBe(
      "Blacklistable: account is blacklisted",
    )
    await send(release(deposit, 4n))
    await freeze("unBlacklist", deposit.owner)
    await send(recover(deposit))
    expect(await balance(deposit.owner)).toBe(6n)
  })
})

describe("nobody takes another's deposit", () => {
  test("other terms, or another factory, are another address", async () => {
    const deposit = await freshDeposit()
    const elsewhere = await deployDepositFactory(anvil.client, operator.address)
    const inOther = await anvil.client.readContract({
      address: elsewhere,
      abi,
      functionName: "addressOf",
      args: [deposit.salt, deposit.owner, deposit.openAfter],
    })
    const addresses = [
      deposit.address,
      await addressOf({ ...deposit, owner: stranger.address }),
      await addressOf({ ...deposit, openAfter: 0n }),
      await addressOf({ ...deposit, salt: toHex(1n << 255n, { size: 32 }) }),
      inOther.toLowerCase(),
    ]
    expect(new Set(addresses).size).toBe(addresses.length)
  })

  test("the same salt with a thief as owner, or open at once, neither reaches the money nor blocks it", async () => {
    const { client } = anvil
    const deposit = await freshDeposit()
    await mint(deposit.address, 100n)
    const forgeries = [
      { ...deposit, owner: stranger.address, openAfter: 0n },
      { ...deposit, owner: stranger.address },
      { ...deposit, openAfter: 0n },
    ]
    for (const forgery of forgeries) {
      if (forgery.openAfter === 0n) await send(recoverFromFactory(forgery))
      else expect(await revertOf(client.simulateContract(recoverFromFactory(forgery)))).toMatch("NotOpenYet")
    }
    expect(await balance(stranger.address)).toBe(0n)
    expect(await balance(deposit.address)).toBe(100n)
    expect(await inPlace(deposit)).toBe(false)
    await send(release(deposit, 100n))
  })

  test("another factory's operator cannot move from a deposit of this one", async () => {
    const { client } = anvil
    const deposit = await freshDeposit()
    await mint(deposit.address, 100n)
    await send(release(deposit, 1n))
    const theirs = await deployDepositFactory(client, stranger.address)
    // The same terms name another address there, which holds nothing.
    const call = client.simulateContract({ ...release(deposit, 1n, { from: stranger }), address: theirs })
    expect(await revertOf(call)).toBe("ERC20: transfer amount exceeds balance")
    expect(await balance(deposit.address)).toBe(99n)
  })

  test("an address put in place by anyone, once open, serves the operator as well", async () => {
    const deposit = await freshDeposit({ openAfter: 0n })
    await send(recoverFromFactory(deposit))
    await mint(deposit.address, 3n)
    await send(release(deposit, 3n))
    expect(await balance(deposit.address)).toBe(0n)
  })
})

test("the implementation itself has no terms, no owner and no way to send", async () => {
  const { client } = anvil
  const address = await client.readContract({ address: factory, abi, functionName: "implementation" })
  await mint(address, 1n)
  const implementation = { address, abi } as const
  expect(await revertOf(client.readContract({ ...implementation, functionName: "terms" }))).toBe("OnlyClone()")
  const recovery = { ...implementation, functionName: "recover", args: [usdc] } as const
  const payment = { ...implementation, functionName: "release", args: [usdc, payee, 1n] } as const
  for (const account of [operator, owner, stranger]) {
    expect(await revertOf(client.simulateContract({ ...recovery, account }))).toBe("OnlyClone()")
    expect(await revertOf(client.simulateContract({ ...payment, account }))).toBe("OnlyFactory()")
  }
})

test("a factory without an operator is refused", async () => {
  await expect(deployDepositFactory(anvil.client, zeroAddress)).rejects.toThrow(
    `custom error ${toFunctionSelector("NoOperator()")}`,
  )
})

test("the operator and the implementation's factory can be read", async () => {
  const { client } = anvil
  expect(await client.readContract({ address: factory, abi, functionName: "operator" })).toBe(operator.address)
  const address = await client.readContract({ address: factory, abi, functionName: "implementation" })
  const itsFactory = await client.readContract({ address, abi, functionName: "factory" })
  expect(itsFactory.toLowerCase()).toBe(factory)
})

test("neither a deposit in place nor the factory takes ether, for which there would be no way out", async () => {
  const { client } = anvil
  const deposit = await freshDeposit({ openAfter: 0n })
  await send(recoverFromFactory(deposit))
  await expect(client.sendTransaction({ to: deposit.address, value: 1n })).rejects.toThrow("reverted")
  await expect(client.sendTransaction({ to: factory, value: 1n })).rejects.toThrow("reverted")
  expect(abi.filter(entry => "stateMutability" in entry && String(entry.stateMutability) === "payable")).toEqual([])
})

describe("odd tokens", () => {
  test("one that answers nothing is released", async () => {
    const deposit = await freshDeposit()
    const odd = await oddToken(silent)
    await mintOdd(odd, deposit.address, 5n)
    await send(release(deposit, 5n, { token: odd }))
    expect(await balance(payee, odd)).toBe(5n)
  })

  test("one that answers false, and an address without code, make the release fail", async () => {
    const { client } = anvil
    const deposit = await freshDeposit()
    const odd = await oddToken(refusing)
    await mintOdd(odd, deposit.address, 5n)
    for (const token of [odd, stranger.address]) {
      const failed = await revertOf(client.simulateContract(release(deposit, 5n, { token })))
      expect(failed?.toLowerCase()).toBe(`safeerc20failedoperation(${token.toLowerCase()})`)
    }
  })

  test("one that calls back in the middle of a release moves nothing else", async () => {
    const { client } = anvil
    const deposit = await freshDeposit()
    await mint(deposit.address, 100n)
    const theft = encodeFunctionData({ abi, functionName: "release", args: releaseArgs(deposit, 100n) })
    const early = encodeFunctionData({ abi, functionName: "recover", args: [usdc] })
    const direct = encodeFunctionData({ abi, functionName: "release", args: [usdc, stranger.address, 100n] })
    const batch = encodeFunctionData({ abi, functionName: "multicall", args: [[theft]] })
    const interruptions = [
      [factory, theft],
      [factory, batch],
      [deposit.address, early],
      [deposit.address, direct],
    ] as const
    for (const args of interruptions) {
      const odd = await oddToken(silent)
      await mintOdd(odd, deposit.address, 1n)
      const token = { address: odd, abi: oddTokenAbi } as const
      await send({ ...token, functionName: "interrupt", args })
      await send(release(deposit, 1n, { token: odd }))
      expect(await client.readContract({ ...token, functionName: "called" })).toBe(true)
      expect(await client.readContract({ ...token, functionName: "succeeded" })).toBe(false)
      expect(await balance(deposit.address)).toBe(100n)
    }
  })

  test("one that calls back in the middle of a recovery can only recover, to the owner", async () => {
    const { client } = anvil
    const deposit = await freshDeposit({ openAfter: 0n })
    await mint(deposit.address, 100n)
    const odd = await oddToken(silent)
    await mintOdd(odd, deposit.address, 1n)
    const nested = encodeFunctionData({ abi, functionName: "recover", args: [usdc] })
    const token = { address: odd, abi: oddTokenAbi } as const
    await send({ ...token, functionName: "interrupt", args: [deposit.address, nested] })
    const before = await balance(owner.address)
    await send(recoverFromFactory(deposit, odd))
    expect(await client.readContract({ ...token, functionName: "succeeded" })).toBe(true)
    expect(await balance(owner.address)).toBe(before + 100n)
  })
})

describe("a frozen deposit", () => {
  test("releases nothing until it is thawed, and then everything", async () => {
    const { client } = anvil
    const deposit = await freshDeposit()
    await mint(deposit.address, 10n)
    await freeze("blacklist", deposit.address)
    expect(await revertOf(client.simulateContract(release(deposit, 10n)))).toBe("Blacklistable: account is blacklisted")
    await freeze("unBlacklist", deposit.address)
    await send(release(deposit, 10n))
    expect(await balance(deposit.address)).toBe(0n)
  })
})

describe("multicall", () => {
  const batch = (calls: Hex[], account: PrivateKeyAccount) =>
    ({ address: factory, abi, functionName: "multicall", args: [calls], account }) as const
  const encode = (deposit: Deposit, amount: bigint) =>
    encodeFunctionData({ abi, functionName: "release", args: releaseArgs(deposit, amount) })

  test("releases from many deposits in one transaction", async () => {
    const deposits = await Promise.all(Array.from({ length: 5 }, () => freshDeposit()))
    for (const deposit of deposits) await mint(deposit.address, 10n)
    const before = await balance(payee)
    const calls = deposits.map(deposit => encode(deposit, 10n))
    await send(batch(calls, operator))
    expect(await balance(payee)).toBe(before + 50n)
  })

  test("is no way around the operator check", async () => {
    const deposit = await freshDeposit()
    await mint(deposit.address, 10n)
    const call = anvil.client.simulateContract(batch([encode(deposit, 10n)], stranger))
    expect(await revertOf(call)).toBe("OnlyOperator()")
  })

  test("does all or nothing", async () => {
    const { client } = anvil
    const [full, empty] = [await freshDeposit(), await freshDeposit()]
    await mint(full.address, 10n)
    const request = batch([encode(full, 10n), encode(empty, 1n)], operator)
    expect(await revertOf(client.simulateContract(request))).toBe("ERC20: transfer amount exceeds balance")
    const { status } = await send({ ...request, gas: 1_000_000n })
    expect(status).toBe("reverted")
    expect(await balance(full.address)).toBe(10n)
  })
})

test("gas stays near what the design counts on", async () => {
  const deposit = await freshDeposit()
  await mint(deposit.address, 100n)
  // The payee has no tokens before the first release, so that one pays for a new balance too.
  const to = toHex(1n << 150n, { size: 20 })
  const first = await send(release(deposit, 10n, { to }))
  const later = await send(release(deposit, 10n, { to }))
  expect(first.gasUsed).toBeLessThan(125_000n)
  expect(later.gasUsed).toBeLessThan(60_000n)
})
