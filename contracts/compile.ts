/** The compiler with its settings, pinned: the same sources give the same bytecode on every machine. About 3 s for all, as solc is wasm. */
import { readdirSync, readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import solc from "solc"
import type { Hex } from "viem"

const sourceDir = fileURLToPath(new URL("./src/", import.meta.url))

const OUTPUTS = ["abi", "evm.bytecode.object", "evm.deployedBytecode"]

/** A contract as the compiler gives it. */
export type Compiled = {
  abi: unknown[]
  evm: {
    bytecode: { object: string }
    /** The immutables by the number of their declaration: smaller is earlier in the source. */
    deployedBytecode: { object: string; immutableReferences: Record<string, { start: number; length: number }[]> }
  }
}
type Output = {
  errors?: { severity: string; formattedMessage: string }[]
  contracts?: Record<string, Record<string, Compiled>>
}

/** The texts of all Solidity files of `contracts/src`, by their paths there. */
export function readSources(): Record<string, string> {
  const files = readdirSync(sourceDir, { recursive: true, encoding: "utf8" }).filter(name => name.endsWith(".sol"))
  return Object.fromEntries(files.map(name => [name, readFileSync(sourceDir + name, "utf8")]))
}

/** The contracts in the given files, by file and name; throws what the compiler says, warnings included. */
export function compile(sources: Record<string, string>): Record<string, Record<string, Compiled>> {
  // What the files import is not compiled by itself.
  const wanted = Object.fromEntries(Object.keys(sources).map(name => [name, { "*": OUTPUTS }]))
  const { contracts = {} } = run(sources, true, wanted)
  return Object.fromEntries(Object.keys(sources).map(name => [name, contracts[name] ?? {}]))
}

/**
 * The bytecode of one contract of each given file, by the file; `wanted` has its name. It is not optimized: that takes a third of
 * the CPU, for code that behaves the same and is not the one that is deployed.
 */
export function compileMutants(sources: Record<string, string>, wanted: Record<string, string>): Record<string, Hex> {
  const files = Object.entries(wanted)
  const outputs = files.map(([file, name]) => [file, { [name]: ["evm.bytecode.object"] }])
  const { contracts = {} } = run(sources, false, Object.fromEntries(outputs))
  return Object.fromEntries(files.map(([file, name]) => [file, `0x${contracts[file]?.[name]?.evm.bytecode.object}`]))
}

function run(sources: Record<string, string>, optimize: boolean, outputSelection: object): Output {
  const input = {
    language: "Solidity",
    sources: Object.fromEntries(Object.entries(sources).map(([name, content]) => [name, { content }])),
    settings: {
      optimizer: { enabled: optimize, runs: 200 },
      // The newest EVM version that every supported network has; a later one would only add opcodes we do not use.
      evmVersion: "cancun",
      // Without the hash of the sources, a changed comment does not change the bytecode.
      metadata: { bytecodeHash: "none" },
      outputSelection,
    },
  }
  const findImport = (path: string) => ({ contents: readFileSync(fileURLToPath(import.meta.resolve(path)), "utf8") })
  const output: Output = JSON.parse(solc.compile(JSON.stringify(input), { import: findImport }))
  // Warnings fail too, because nobody reads them in passing builds.
  const faults = (output.errors ?? []).filter(error => error.severity !== "info")
  if (faults.length > 0) throw new Error(faults.map(error => error.formattedMessage).join("\n"))
  return output
}
