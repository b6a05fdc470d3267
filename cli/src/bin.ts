/** What the package installs as `sluice`: the command line, of compiled code that Node keeps from the run before. */
import { enableCompileCache } from "node:module"

enableCompileCache()
await import("./sluice.ts")
