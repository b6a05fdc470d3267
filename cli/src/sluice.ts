/** The command line for merchants alone. The server's `sluice` has these commands and the operator's. */
import { runCli } from "./run.ts"

await runCli(process.argv.slice(2))
