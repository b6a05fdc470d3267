/** The command line for merchants only. The server's `sluice` has these commands and those for operators. */
import { runCli } from "./run.ts"

await runCli(process.argv.slice(2))
