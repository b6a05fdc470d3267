// Random attacks on the deposit contracts, with the operator's key or the guardian's, end as the model says, on the chain and
// in the books; and they do not on any contract from which one check is taken out.

import fc from "fast-check"
import type { Hex } from "viem"
import { afterAll, beforeAll, describe, expect, test } from "vitest"
import { depositFactoryAbi, depositFactoryBytecode } from "../server/src/platform/chain/abi.ts"
import type { Address } from "../server/src/platform/chain/hex.ts"
import { type Anvil, deploy, startAnvil } from "../server/test/anvil.ts"
import { compileMutants, readSources } from "./compile.ts"
import { type Kind, type Role, stepsBy } from "./deposit-steps.ts"
import { carryOut, Mismatch, refusesNobody, type Stage, setStage } from "./deposit-world.ts"
import { MUTANTS, type Mutant, mutantSources, seedOf } from "./mutants.ts"

const RUNS = Number.parseInt(process.env.CONTRACT_RUNS ?? "12", 10)
const STEPS = 40

let anvil: Anvil
let stage: Stage

beforeAll(async () => {
  anvil = await startAnvil({ prunesHistory: true })
  stage = await setStage(anvil)
})
afterAll(() => anvil.stop())

const deployed = (bytecode: Hex): Promise<Address> =>
  deploy(anvil.client, depositFactoryAbi, bytecode, [stage.roles.guardian, stage.roles.operator])

const attack = (factory: Address, attacker: Role, focus?: Kind) =>
  fc.asyncProperty(stepsBy(attacker, STEPS, focus), steps => carryOut(stage, factory, steps))

describe.each<Role>(["operator", "guardian"])("whoever holds the key of the %s", attacker => {
  test("moves money to nobody but those whom the deposits' addresses name, or whom an approver signed for", async () => {
    await refusesNobody(stage, depositFactoryAbi, depositFactoryBytecode)
    const factory = await deployed(depositFactoryBytecode)
    await fc.assert(attack(factory, attacker), { numRuns: RUNS })
  })
})

/** Why a contract is no good, or undefined when nothing was found. */
async function faultOf(bytecode: Hex, mutant: Mutant): Promise<unknown> {
  try {
    await refusesNobody(stage, depositFactoryAbi, bytecode)
  } catch (error) {
    return error
  }
  const factory = await deployed(bytecode)
  for (const attacker of ["operator", "guardian"] as const) {
    const checked = await fc.check(attack(factory, attacker, mutant.kind), {
      seed: seedOf(mutant),
      numRuns: 40,
      endOnFailure: true,
    })
    if (checked.failed) return checked.errorInstance
  }
}

test("the contracts without any one of their checks fail this", async () => {
  const fileOf = (i: number) => `${i}/DepositFactory.sol`
  const wanted = Object.fromEntries(MUTANTS.map((_, i) => [fileOf(i), "DepositFactory"]))
  const compiled = compileMutants(mutantSources(readSources()), wanted)
  const faults: unknown[] = []
  for (const [i, mutant] of MUTANTS.entries()) {
    // Each begins with the chain as it was: after a hundred attacks, a block took anvil four times as long.
    const id = await anvil.client.snapshot()
    faults.push(await faultOf(compiled[fileOf(i)] ?? "0x", mutant))
    await anvil.client.revert({ id })
  }
  expect(MUTANTS.filter((_, i) => !(faults[i] instanceof Mismatch)).map(({ without }) => without)).toEqual([])
}, 300_000)
