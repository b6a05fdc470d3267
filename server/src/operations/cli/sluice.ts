/**
 * `sluice`: one program for everything that an operator does and, with the command line of `cli/`, everything that a
 * merchant does. Each command is a module that is loaded only when the command is named.
 */
interface Command {
  does: string
  /** Subcommands that belong to the merchants' command of the same name. */
  merchants?: readonly string[]
  load: () => Promise<{ run: () => Promise<void> }>
}

const commands: Record<string, Command> = {
  start: { does: "starts the service, or one role of it", load: () => import("../../main.ts") },
  migrate: { does: "brings the database to this version's schema", load: () => import("./migrate.ts") },
  doctor: {
    does: "checks every setting and every part, and says what to do about problems",
    load: () => import("./doctor.ts"),
  },
  deploy: { does: "deploys the contracts that the service needs on a network", load: () => import("./deploy.ts") },
  backup: { does: "copies the database to a file, while the service runs", load: () => import("./backup.ts") },
  invite: { does: "invites a person to become a merchant", load: () => import("./invite.ts") },
  merchant: { does: "changes how many requests a merchant may make", load: () => import("./limit-merchant.ts") },
  rates: { does: "imports a file of exchange rates", load: () => import("./import-rates.ts") },
  receipts: {
    does: "prints what storing receipts on 0G costs, and replaces the key that signs them",
    merchants: ["list", "export"],
    load: () => import("./receipts.ts"),
  },
  reencrypt: {
    does: "encrypts all secrets with SECRET_KEY after a change of that key",
    load: () => import("./reencrypt.ts"),
  },
  wallet: { does: "shows, halts and repairs the wallets of the running service", load: () => import("./wallet.ts") },
  signer: { does: "prints the wallet of a key in a KMS or a Web3Signer", load: () => import("./signer.ts") },
  recover: { does: "sends the money at receiving addresses to their owners", load: () => import("./recover.ts") },
  "verify-address": {
    does: "checks offline that a receiving address belongs to its terms",
    load: () => import("./verify-address.ts"),
  },
}

const usageOf = (ofMerchants: readonly string[]) => `Sluice: stablecoin payments, self-hosted.

  sluice COMMAND [...]

${Object.entries(commands)
  .map(([name, { does }]) => `  ${name.padEnd(16)}${does}`)
  .join("\n")}

\`sluice COMMAND --help\` explains a command, and \`sluice --version\` prints the version. Each command accepts
\`--env-file FILE\`: a file of settings with one NAME=VALUE per line, read literally, not by a shell. An environment variable
takes precedence over the file. You can repeat the option: the first file that sets a name takes precedence.

Merchants' commands, which call a service with an API key; docs/developers/cli.md has all of them:
${ofMerchants.join(" ")}
`

/**
 * Runs the command that the first argument names, with the other arguments. For an unknown command, the process ends
 * with exit code 2.
 */
export async function run(): Promise<void> {
  const [name = "--help"] = process.argv.splice(2, 1)
  const found = Object.hasOwn(commands, name) ? commands[name] : undefined
  // Only the next word can be a merchants' subcommand: any later word may be the value of an option, such as a
  // reason.
  const command = found?.merchants?.includes(process.argv[2] ?? "") ? undefined : found
  if (!command) {
    const { commandTable } = await import("../../../../cli/src/commands.ts")
    const operators = Object.keys(commands).filter(each => !commands[each]?.merchants)
    const ofMerchants = Object.keys(commandTable()).filter(each => !operators.includes(each))
    if (["--help", "-h", "help"].includes(name)) return void process.stdout.write(usageOf(ofMerchants))
    if (["--version", "version"].includes(name)) {
      const { version } = await import("../../platform/version.ts")
      return void process.stdout.write(`${version}\n`)
    }
    if (ofMerchants.includes(name)) {
      const { runCli } = await import("../../../../cli/src/run.ts")
      return await runCli([name, ...process.argv.slice(2)], operators)
    }
    process.stderr.write(`There is no command ${name}.\nRun \`sluice --help\` for the list of them.\n`)
    process.exitCode = 2
    return
  }
  const { run: runCommand } = await command.load()
  await runCommand()
}

if (import.meta.main) void run()
