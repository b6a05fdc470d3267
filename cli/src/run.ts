/** Parses the command line by the table of commands, runs one command, and ends with its exit code. */
import { CommanderError, Command as Parser } from "commander"
import type { Command } from "./command.ts"
import { commandTable } from "./commands.ts"
import { exitCodes, factsOf, failureText } from "./failure.ts"
import { openOutput, printable } from "./output.ts"

/**
 * Runs the command that these arguments name, and sets the exit code of the process. `operator` lists commands that
 * the server has itself and that take precedence.
 */
export async function runCli(args: string[], operator: readonly string[] = []): Promise<void> {
  const isJson = args.includes("--json")
  const program = parserOf(operator)
  try {
    await program.parseAsync(args.length === 0 ? ["--help"] : args, { from: "user" })
  } catch (error) {
    if (error instanceof CommanderError) {
      process.exitCode = error.exitCode === 0 ? 0 : 2
      if (process.exitCode === 2) {
        const message = error.message.replace(/^error: /, "")
        report(isJson, { error: "USAGE", message, exitCode: 2 })
      }
      return
    }
    const facts = factsOf(error)
    process.exitCode = facts.exitCode
    report(isJson, facts)
  }
}

function report(isJson: boolean, facts: ReturnType<typeof factsOf>): void {
  const text = isJson
    ? JSON.stringify(facts)
    : printable(failureText({ ...facts, error: facts.error === "USAGE" ? "FAILED" : facts.error }))
  process.stderr.write(`${text}\n`)
}

function parserOf(operator: readonly string[]): Parser {
  const quiet = { writeOut: (text: string) => void process.stdout.write(text), writeErr: () => {} }
  const program = new Parser("sluice")
    .description("Sluice: stablecoin payments, self-hosted.")
    .configureOutput(quiet)
    .exitOverride()
  for (const [name, command] of Object.entries(commandTable()))
    if (!operator.includes(name)) add(program, name, command)
  program.addHelpText("after", afterHelp())
  return program
}

function add(parent: Parser, name: string, command: Command): void {
  const parser = parent.command(name).description(command.does)
  if (command.takes) parser.arguments(command.takes)
  for (const [flags, does] of command.options ?? []) parser.option(flags, does)
  for (const [child, each] of Object.entries(command.commands ?? {})) add(parser, child, each)
  const { load } = command
  if (!load) return
  parser
    .option("--json", "print JSON, one value per line")
    .option("--profile <name>", "use this profile of `sluice login`")
    .option("--url <address>", "the address of the service")
    .action(async () => {
      const options = parser.opts()
      const { run } = await load()
      await run({ args: parser.args, options, out: openOutput(options.json === true), table: commandTable() })
    })
}

function afterHelp(): string {
  const codes = Object.entries(exitCodes).map(([code, means]) => `  ${code}  ${means}`)
  return `\nExit codes:\n${codes.join("\n")}`
}
