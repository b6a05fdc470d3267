#!/usr/bin/env node
/** The command `sluice` for merchants. The server's own command has these and the operator's. */
import { runCli } from "./run.ts"

await runCli(process.argv.slice(2))
