/**
 * The program that the package installs as `sluice`: the command line, for which Node caches the compiled code
 * between runs.
 */
import { enableCompileCache } from "node:module"

enableCompileCache()
await import("./sluice.ts")
