/** A chain with tokens of every manner and the roles of an attack; carries out steps there and in the model, and compares. */
import { inspect } from "node:util"
import { type Abi, encodeFunctionData, erc20Abi, type Hex, keccak256, multicall3Abi, numberToHex, toHex } from "viem"
import type { PrivateKeyAccount } from "viem/accounts"
import { depositAbi, depositFactoryAbi, oddTokenAbi, oddTokenBytecode } from "../server/src/platform/chain/abi.ts"
import {
  addressOfTerms,
  implementationOf,
  type Payee,
  payeeLists,
  payeesHash,
  type TermsArgument,
} from "../server/src/platform/chain/deposit-terms.ts"
import { type GiveBack, giveBackData } from "../server/src/platform/chain/give-back.ts"
import { type Address, ZERO_ADDRESS as ZERO } from "../server/src/platform/chain/hex.ts"
import { MULTICALL3, multicall, readMulticall } from "../server/src/platform/chain/multicall.ts"
import {
  type Anvil,
  deploy,
  deployContractWallet,
  deployOtherToken,
  placeSharedContracts,
} from "../server/test/anvil.ts"
import { balanceIn, type Call, type State, succeeds, type World } from "./deposit-model.ts"
import { type Act, type Alter, type List, type Place, ROLES, type Role, type Step, TOKENS } from "./deposit-steps.ts"

const ETHER_WEI = 5n
const UNITS = 100n
/** For any call, so that one that fails is mined too. */
const GAS = numberToHex(5_000_000)
const lower = (address: string) => address.toLowerCase() as Address

/** The contracts did something else than the model says. */
export class Mismatch extends Error {}

/** What all runs on one chain share. */
export interface Stage {
  anvil: Anvil
  roles: Record<Role, Address>
  keys: Partial<Record<Role, PrivateKeyAccount>>
  tokens: Address[]
}

interface Deposit {
  salt: Hex
  terms: TermsArgument
  payees: Payee[]
  address: Address
}

/** A call and the bytes that ask for it. */
interface Encoded {
  call: Call
  to: Address
  data: Hex
}

interface Run {
  stage: Stage
  world: World
  state: State
  deposits: Deposit[]
  /** Of the latest block, in Unix seconds. */
  time: bigint
  sent: Encoded[]
}

const rpcOf =
  ({ anvil }: Stage) =>
  async (method: string, ...params: unknown[]): Promise<unknown> =>
    await anvil.client.request({ method, params } as unknown as Parameters<typeof anvil.client.request>[0])

/** Deploys what runs share. From here on each block is one second after the last. */
export async function setStage(anvil: Anvil): Promise<Stage> {
  const [, operator, guardian, next, thief, owner, accomplice, approver, signer] = anvil.accounts
  const keys: Stage["keys"] = { operator, guardian, next, thief, owner, accomplice, approver, signer }
  const wallet = await deployContractWallet(anvil.client, signer.address)
  const made = (i: number) => toHex(2n ** 150n + BigInt(i), { size: 20 })
  const addressOf = (role: Role, i: number) => (role === "wallet" ? wallet : lower(keys[role]?.address ?? made(i)))
  const roles = Object.fromEntries(ROLES.map((role, i) => [role, addressOf(role, i)])) as Stage["roles"]
  const odd = (manner: number) => deploy(anvil.client, oddTokenAbi, oddTokenBytecode, [manner])
  const tokens = [await deployOtherToken(anvil.client), await odd(0), await odd(1), await odd(2)]
  await placeSharedContracts(anvil.client)
  const stage = { anvil, roles, keys, tokens }
  await rpcOf(stage)("anvil_setBlockTimestampInterval", 1)
  return stage
}

/** Checks that there is no factory without a guardian or without an operator. */
export async function refusesNobody({ anvil, roles }: Stage, abi: Abi, bytecode: Hex): Promise<void> {
  for (const args of [
    [ZERO, roles.operator],
    [roles.guardian, ZERO],
  ]) {
    const deployed = deploy(anvil.client, abi, bytecode, args)
    if (await deployed.then(Boolean, () => false)) throw new Mismatch(`a factory of ${args} was deployed`)
  }
}

/**
 * Makes fresh deposits of a factory, whose operator and guardian are those of the stage, and carries out the steps. Throws a
 * {@link Mismatch} where a call does not end as the model says, or where money is elsewhere at the end.
 */
export async function carryOut(stage: Stage, factory: Address, steps: readonly Step[]): Promise<void> {
  const run = await begin(stage, factory)
  for (const step of steps) await take(run, step)
  await compareBalances(run)
  const { timestamp } = await stage.anvil.client.getBlock()
  if (timestamp !== run.time) throw new Error("the blocks' times are not those that the model counts on")
}

async function begin(stage: Stage, factory: Address): Promise<Run> {
  const { roles, tokens } = stage
  const { timestamp: time } = await stage.anvil.client.getBlock()
  const world: World = {
    chainId: stage.anvil.client.chain.id,
    factory,
    implementation: implementationOf(factory),
    guardian: roles.guardian,
    tokens: new Map(tokens.map((token, i) => [token, TOKENS[i] ?? "plain"])),
    takesEther: new Set(ROLES.filter(role => role !== "wallet").map(role => roles[role])),
  }
  const state: State = {
    operator: roles.operator,
    paused: false,
    used: new Set(),
    inPlace: new Set(),
    balances: new Map(),
    armed: new Map(),
  }
  const run: Run = { stage, world, state, deposits: makeDeposits(stage, factory, time), time, sent: [] }
  await restore(run)
  await fund(run)
  await compareAddresses(run)
  for (const [at, amount] of await readBalances(run)) state.balances.set(at, amount)
  return run
}

/** One of each kind: plain, split with a contract wallet as approver, approved by the operator of the time, a thief's, and a broken one. */
function makeDeposits({ roles, tokens }: Stage, factory: Address, now: bigint): Deposit[] {
  const { owner, wallet, accomplice, approver, thief, payeeA, payeeB } = roles
  const far = now + 1_000_000_000n
  const kinds: { owner: Address; approver: Address; openAfter: bigint; split: [Address, number][] }[] = [
    { owner, approver, openAfter: now + 30n, split: [] },
    {
      owner,
      approver: wallet,
      openAfter: now + 60n,
      split: [
        [payeeA, 600_000],
        [payeeB, 400_000],
      ],
    },
    {
      owner: wallet,
      approver: factory,
      openAfter: far,
      split: [
        [payeeB, 300_000],
        [payeeA, 700_000],
      ],
    },
    {
      owner: accomplice,
      approver: thief,
      openAfter: 0n,
      split: [
        [thief, 500_000],
        [accomplice, 500_000],
      ],
    },
    { owner: ZERO, approver: ZERO, openAfter: 0n, split: [ZERO, factory, payeeA, ...tokens].map(each => [each, 1]) },
  ]
  return kinds.map(({ split, ...kind }) => {
    const salt = toHex(crypto.getRandomValues(new Uint8Array(32)))
    const payees = split.map(([address, percentE4]) => ({ address, percentE4 }))
    const terms = { ...kind, payeesHash: payeesHash(payees) }
    return { salt, terms, payees, address: addressOfTerms(factory, salt, terms) }
  })
}

/** Puts money of every kind into every deposit, ether too, in one block. */
async function fund(run: Run): Promise<void> {
  const rpc = rpcOf(run.stage)
  for (const { address } of run.deposits) await rpc("anvil_setBalance", address, numberToHex(ETHER_WEI))
  const calls = run.deposits.flatMap(({ address }) =>
    run.stage.tokens.map(target => ({
      target,
      allowFailure: false,
      callData: encodeFunctionData({ abi: oddTokenAbi, functionName: "mint", args: [address, UNITS] }),
    })),
  )
  const data = encodeFunctionData({ abi: multicall3Abi, functionName: "aggregate3", args: [calls] })
  await send(run, run.stage.roles.thief, MULTICALL3, data)
}

/** Mines a transaction in a block of its own; whether it succeeded. */
async function send(run: Run, from: Address, to: Address, data: Hex): Promise<boolean> {
  const receipt = await rpcOf(run.stage)("eth_sendTransactionSync", { from, to, data, gas: GAS })
  run.time += 1n
  return (receipt as { status: Hex }).status === "0x1"
}

/** Any change of the terms, and each other salt, must give another address, which the factory computes as the model does. */
async function compareAddresses(run: Run): Promise<void> {
  const alters: Alter[] = ["none", "salt", "owner", "approver", "payeesHash", "openAfter"]
  const all = run.deposits.flatMap(deposit => alters.map(alter => altered(run, deposit, alter)))
  const reads = all.map(({ salt, terms }) => ({
    to: run.world.factory,
    data: encodeFunctionData({ abi: depositFactoryAbi, functionName: "addressOf", args: [salt, terms] }),
  }))
  const answered = readMulticall(await rpcOf(run.stage)("eth_call", ...multicall(reads).params))
  for (const [i, { salt, terms }] of all.entries())
    if (answered[i]?.slice(-40) !== addressOfTerms(run.world.factory, salt, terms).slice(2))
      throw new Mismatch("the factory computes another address")
  if (new Set(answered).size !== all.length) throw new Mismatch("two terms have one address")
}

/** A deposit's terms with one field as a thief would like it. */
function altered(run: Run, { salt, terms }: Deposit, alter: Alter): { salt: Hex; terms: TermsArgument } {
  const { roles } = run.stage
  const changes: Record<Exclude<Alter, "none" | "salt">, Partial<TermsArgument>> = {
    owner: { owner: roles.payer },
    approver: { approver: roles.payer },
    payeesHash: { payeesHash: payeesHash([{ address: roles.thief, percentE4: 1_000_000 }]) },
    openAfter: { openAfter: terms.openAfter + 1n },
  }
  if (alter === "none") return { salt, terms }
  return alter === "salt" ? { salt: keccak256(salt), terms } : { salt, terms: { ...terms, ...changes[alter] } }
}

const pick = <T>(list: readonly T[], i: number): T => list[i % list.length] as T

async function take(run: Run, { by, at, reenters, batched, act }: Step): Promise<void> {
  const { stage, state, world } = run
  const opening = at && pick(run.deposits, at.of).terms.openAfter + at.plus
  const wanted = opening !== undefined && opening > run.time && opening < run.time + 1_000n ? opening : undefined
  const encoded = await encode(run, act, wanted ?? run.time + 1n)
  const token = tokenOf(encoded.call)
  if (reenters && token && ["silent", "refusing", "taxing"].includes(world.tokens.get(token) ?? ""))
    await arm(run, token, encoded)
  if (wanted !== undefined) {
    await rpcOf(stage)("evm_setNextBlockTimestamp", numberToHex(wanted > run.time ? wanted : run.time + 1n))
    if (wanted > run.time) run.time = wanted - 1n
  }
  run.sent.push(encoded)
  const inBatch = batched && encoded.to === world.factory
  const data = inBatch
    ? encodeFunctionData({ abi: depositFactoryAbi, functionName: "multicall", args: [[encoded.data]] })
    : encoded.data
  const succeeded = await send(run, stage.roles[by], encoded.to, data)
  if (succeeds(world, state, stage.roles[by], run.time, encoded.call) !== succeeded)
    throw new Mismatch(`${inspect(act)} by the ${by} ${succeeded ? "succeeded" : "failed"}`)
}

const tokenOf = (call: Call): Address | undefined =>
  call.kind === "giveBack" ? call.message.token : "token" in call ? call.token : undefined

/** Has a token call back with the same call in the middle of its next transfer. */
async function arm(run: Run, token: Address, { call, to, data }: Encoded): Promise<void> {
  const interrupt = encodeFunctionData({ abi: oddTokenAbi, functionName: "interrupt", args: [to, data] })
  await send(run, run.stage.roles.thief, token, interrupt)
  run.state.armed.set(token, call)
}

async function encode(run: Run, act: Act, time: bigint): Promise<Encoded> {
  const { world } = run
  const abi = depositFactoryAbi
  const toFactory = (call: Call, data: Hex): Encoded => ({ call, to: world.factory, data })
  switch (act.kind) {
    case "release": {
      const { salt, terms } = altered(run, pick(run.deposits, act.of), act.alter)
      const token = pick(run.stage.tokens, act.token)
      const payees = listOf(run, act.of, act.list)
      const to = place(run, act.to, act.of, token)
      const amount = act.amount
      const args = [salt, terms, ...payeeLists(payees), token, to, amount] as const
      const call: Call = { kind: act.kind, salt, terms, payees, token, to, amount }
      return toFactory(call, encodeFunctionData({ abi, functionName: "release", args }))
    }
    case "giveBack":
      return await encodeGiveBack(run, act, time)
    case "recover": {
      const { salt, terms } = altered(run, pick(run.deposits, act.of), act.alter)
      const token = act.token === "ether" ? ZERO : pick(run.stage.tokens, act.token)
      const call: Call = { kind: act.kind, salt, terms, token }
      return toFactory(call, encodeFunctionData({ abi, functionName: "recover", args: [salt, terms, token] }))
    }
    case "setOperator": {
      const next = place(run, act.next, 0, ZERO)
      return toFactory({ kind: act.kind, next }, encodeFunctionData({ abi, functionName: act.kind, args: [next] }))
    }
    case "pause":
    case "unpause":
      return toFactory({ kind: act.kind }, encodeFunctionData({ abi, functionName: act.kind }))
    case "repeat":
      return run.sent.at(-1 - act.back) ?? (await encode(run, { kind: "pause" }, time))
    default:
      return encodeDirect(run, act)
  }
}

/** A call of a deposit, or of the code behind all, past the factory. */
function encodeDirect(run: Run, act: Act & { kind: "send" | "sendEther" }): Encoded {
  const target = act.of === "implementation" ? run.world.implementation : pick(run.deposits, act.of).address
  const token = pick(run.stage.tokens, act.token)
  const to = run.stage.roles[act.to]
  if (act.kind === "send") {
    const data = encodeFunctionData({ abi: depositAbi, functionName: "send", args: [token, to, 0n] })
    return { call: { kind: "send", target, token, to, amount: 0n }, to: target, data }
  }
  const data = encodeFunctionData({ abi: depositAbi, functionName: "sendEther", args: [to] })
  return { call: { kind: "sendEther", target, to }, to: target, data }
}

async function encodeGiveBack(run: Run, act: Act & { kind: "giveBack" }, time: bigint): Promise<Encoded> {
  const { world, stage } = run
  const deposit = pick(run.deposits, act.of)
  const { salt, terms } = altered(run, deposit, act.alter)
  const token = pick(stage.tokens, act.token)
  const message: GiveBack = {
    token,
    to: place(run, act.to, act.of, token),
    amount: act.amount,
    deposit: addressOfTerms(world.factory, salt, terms),
    deadline: time + act.deadline,
    nonce: toHex(act.nonce, { size: 32 }),
  }
  const { tamper } = act
  const other: GiveBack = {
    token: pick(stage.tokens, act.token + 1),
    to: stage.roles.guardian,
    amount: act.amount + 1n,
    deposit: pick(run.deposits, act.of + 1).address,
    deadline: message.deadline + 1n,
    nonce: toHex(act.nonce + 100, { size: 32 }),
  }
  const said = tamper in other ? { ...message, [tamper]: other[tamper as keyof GiveBack] } : message
  const chainId = tamper === "chain" ? world.chainId + 1 : world.chainId
  const factory = tamper === "factory" ? world.implementation : world.factory
  const { approver } = deposit.terms
  const { by, key } = signerOf(run, act.signer, approver === world.factory ? run.state.operator : approver)
  const signature = await key.signTypedData(giveBackData(chainId, factory, said))
  const { to, amount, nonce, deadline } = message
  const args = [salt, terms, token, to, amount, nonce, deadline, signature] as const
  return {
    call: { kind: "giveBack", salt, terms, message, signed: { by, chainId, factory, message: said } },
    to: world.factory,
    data: encodeFunctionData({ abi: depositFactoryAbi, functionName: "giveBack", args }),
  }
}

/** The key that signs, and whose signature that is: a contract wallet's signer signs for the wallet. */
function signerOf({ stage }: Run, signer: "its own" | Role, approver: Address) {
  const { roles, keys } = stage
  const role = signer === "its own" ? ROLES.find(role => roles[role] === approver) : signer
  const key = keys[role === "wallet" ? "signer" : (role ?? "thief")]
  if (!key) throw new Error(`${role} has no key`)
  return { key, by: role === "wallet" ? roles.wallet : lower(key.address) }
}

function place({ stage, world, deposits }: Run, where: Place, of: number, token: Address): Address {
  if (where === "zero") return ZERO
  if (where === "factory") return world.factory
  if (where === "deposit") return pick(deposits, of).address
  return where === "token" ? token : stage.roles[where]
}

function listOf({ stage, deposits }: Run, of: number, list: List): Payee[] {
  const { payees } = pick(deposits, of)
  if (typeof list === "number") return pick(deposits, list).payees
  if (list === "none") return []
  if (list === "reversed") return payees.toReversed()
  if (list === "reweighted") return payees.map((each, i) => ({ ...each, percentE4: each.percentE4 + 1 - 2 * (i % 2) }))
  return list === "thief" ? [{ address: stage.roles.thief, percentE4: 1_000_000 }] : payees
}

/** Where money can be: by `token account`, and the ether of deposits and owners, who send no transactions. */
async function readBalances(run: Run): Promise<[string, bigint][]> {
  const { stage, world, deposits } = run
  const accounts = [
    ...Object.values(stage.roles),
    ...deposits.map(({ address }) => address),
    world.factory,
    ZERO,
    ...stage.tokens,
  ]
  const held = stage.tokens.flatMap(token => accounts.map(account => ({ token, account })))
  const reads = held.map(({ token, account }) => ({
    to: token,
    data: encodeFunctionData({ abi: erc20Abi, functionName: "balanceOf", args: [account] }),
  }))
  const words = readMulticall(await rpcOf(stage)("eth_call", ...multicall(reads).params))
  const rich = [...deposits.map(({ address }) => address), stage.roles.owner, stage.roles.accomplice]
  const wei = await Promise.all(rich.map(address => stage.anvil.client.getBalance({ address })))
  return [
    ...held.map(({ token, account }, i): [string, bigint] => [`${token} ${account}`, BigInt(words[i] ?? "0x")]),
    ...rich.map((account, i): [string, bigint] => [`${ZERO} ${account}`, wei[i] ?? 0n]),
  ]
}

async function compareBalances(run: Run): Promise<void> {
  for (const [at, amount] of await readBalances(run)) {
    const [token, account] = at.split(" ") as [Address, Address]
    const expected = balanceIn(run.state, token, account)
    if (amount !== expected) throw new Mismatch(`${account} holds ${amount} of ${token}, not ${expected}`)
  }
}

/** Undoes what an earlier run left at the factory and the tokens. */
async function restore(run: Run): Promise<void> {
  const { roles, tokens } = run.stage
  for (const act of [{ kind: "unpause" }, { kind: "setOperator", next: "operator" }] as const) {
    const { to, data } = await encode(run, act, run.time)
    await send(run, roles.guardian, to, data)
  }
  const disarm = encodeFunctionData({ abi: oddTokenAbi, functionName: "interrupt", args: [ZERO, "0x"] })
  for (const token of tokens) await send(run, roles.thief, token, disarm)
}
