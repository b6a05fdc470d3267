// Random calls of the escrow by everyone who has a part in it end as the model says, in both versions: no more is captured than
// was authorized, no more refunded than was captured, and every token that came in went out or is held. They do not with any
// contract from which one check is taken out.

import fc from "fast-check"
import { afterAll, beforeAll, expect, test } from "vitest"
import {
  authCaptureEscrowBytecode,
  authCaptureEscrowV10Bytecode,
  erc3009CollectorBytecode,
  refundCollectorBytecode,
} from "../server/src/platform/chain/abi.ts"
import { type Anvil, startAnvil } from "../server/test/anvil.ts"
import { compileMutants, readSources } from "./compile.ts"
import { contractOf, MUTANTS, type Mutant, mutantSources, seedOf } from "./escrow-mutants.ts"
import { type Focus, runs } from "./escrow-steps.ts"
import { type Codes, carryOut, Mismatch, type Stage, setScene, setStage } from "./escrow-world.ts"

const RUNS = Number.parseInt(process.env.CONTRACT_RUNS ?? "30", 10)
const STEPS = 30

const codes: Codes = {
  version: "v1.1",
  escrow: authCaptureEscrowBytecode,
  payments: erc3009CollectorBytecode,
  refunds: refundCollectorBytecode,
}

let anvil: Anvil
let stage: Stage

beforeAll(async () => {
  anvil = await startAnvil({ prunesHistory: true })
  stage = await setStage(anvil)
})
afterAll(() => anvil.stop())

const property = async (of: Codes, focus?: Focus) => {
  const scene = await setScene(stage, of)
  return fc.asyncProperty(runs(STEPS, focus), run => carryOut(scene, run))
}

test.each([codes, { ...codes, version: "v1.0", escrow: authCaptureEscrowV10Bytecode } as const])(
  "an escrow of $version moves what was agreed, to whom it was agreed, and knows what it holds",
  async of => {
    await fc.assert(await property(of), { numRuns: RUNS })
  },
)

/** Why a contract is no good, or undefined when nothing was found. */
async function faultOf(of: Codes, mutant: Mutant): Promise<unknown> {
  try {
    const checked = await fc.check(await property(of, mutant), {
      seed: seedOf(mutant),
      numRuns: 20,
      endOnFailure: true,
    })
    return checked.errorInstance
  } catch (error) {
    return error
  }
}

test("the contracts without any one of their checks fail this", async () => {
  const fileOf = (i: number, mutant: Mutant) => `${i}/${contractOf(mutant)}`
  const wanted = MUTANTS.map((mutant, i) => [fileOf(i, mutant), contractOf(mutant).replace(".sol", "")])
  const compiled = compileMutants(mutantSources(readSources()), Object.fromEntries(wanted))
  const parts = {
    "AuthCaptureEscrow.sol": "escrow",
    "Erc3009Collector.sol": "payments",
    "RefundCollector.sol": "refunds",
  }
  const faults: unknown[] = []
  for (const [i, mutant] of MUTANTS.entries()) {
    const part = parts[contractOf(mutant) as keyof typeof parts]
    // Each begins with the chain as it was, so that its seed leads to the same calls.
    const id = await anvil.client.snapshot()
    faults.push(await faultOf({ ...codes, [part]: compiled[fileOf(i, mutant)] }, mutant))
    await anvil.client.revert({ id })
  }
  expect(
    MUTANTS.filter((_, i) => !(faults[i] instanceof Mismatch)).map(({ without }, i) => [without, faults[i]]),
  ).toEqual([])
})
