/** The text of docs/developers/cli.md, made of the table of commands. */
import type { Command } from "./command.ts"
import { commandTable } from "./commands.ts"
import { exitCodes } from "./failure.ts"
import { untriggered } from "./triggers.ts"

const intro = `# Command line

\`sluice\` has the operator's commands and, for merchants, those of this page. From a folder of sources it is \`script/sluice\`.

**Which service, which key.** \`SLUICE_API_KEY\` wins over every profile, and then no profile is read. \`SLUICE_URL\` or \`--url\` has the
address; without them it is the sandbox at \`http://127.0.0.1:4000\`. Otherwise the profile counts that \`sluice login\` has saved, in a
file that only its owner may read: \`SLUICE_CONFIG\`, or \`sluice/profiles.json\` below \`XDG_CONFIG_HOME\` or \`~/.config\`. Its key is in
the keyring of the system: on Linux by \`secret-tool\` (Debian: libsecret-tools), on macOS by \`security\`. Where no keyring answers, or with
\`SLUICE_KEYRING=off\`, the key is in the file too. It is sent to its own service alone. \`sluice login\` opens no browser: it prints an address and a code.

**For programs.** Every command takes \`--json\`: one line of JSON for each value. Errors are on the standard error, with the id of the
request, and with \`--json\` they are JSON too. \`NO_COLOR\` is respected. Text of payers reaches a terminal without control characters.

**Events on your machine.** \`sluice listen --forward-to localhost:3000/webhooks\` makes a listener and prints its secret. It posts each
event with the bytes and headers of a webhook, and the console shows what your program answered. Retries and resends arrive too, and are
shown as repeats. If it is killed, start the same command within ten minutes: it continues with its listener, and nothing is lost. For that
it keeps the listener's id and secret in \`listeners/\` next to the profiles. Ctrl-C ends the listener. \`--exec "npm test"\` is for CI: the
command finds the secret in \`SLUICE_WEBHOOK_SECRET\`, and \`sluice listen\` ends with its exit code.

**For assistants** \`sluice mcp\` has tools, over the standard input and output: [Assistants](mcp.md).

**In the sandbox** \`script/sluice\` uses the key of its first merchant: nobody has to sign in. \`sluice pay\` and \`sluice trigger\` make
real payments on its chain. \`sluice trigger\` also reserves, captures and voids, refunds from the merchant's wallet, and lets the chain take
a payment back by a reorg, which takes all later transactions too. With \`--on\` it does that to a checkout of yours.
Time passes by the sandbox's clock: half a minute for a reversal, five minutes for \`checkout.failed\`, \`checkout.expired\` and \`--late\`, half a
day for \`subscription.renewal.created\` and four days for \`subscription.past_due\`. After that \`--as-agent\` is refused, because the buyer
signs by this machine's clock. \`checkout.expired\` takes about a minute.

${Object.entries(untriggered)
  .map(([event, reason]) => `\`${event}\` can't be triggered: ${reason}.`)
  .join("\n")}

\`sluice doctor\` is the operator's command where the server is installed; \`node cli/src/sluice.ts doctor\` checks the connection.
`

/** The whole page. */
export function cliDocument(): string {
  const codes = Object.entries(exitCodes).map(([code, means]) => `| ${code} | ${means} |`)
  const rows = Object.entries(commandTable()).flatMap(([name, command]) => rowsOf(name, command))
  return `${intro}
## Exit codes

| code | meaning |
|---|---|
${codes.join("\n")}

## Commands

\`sluice COMMAND --help\` has the options of a command.

| command | what it does |
|---|---|
${rows.join("\n")}
`
}

function rowsOf(path: string, { does, takes = "", commands = {}, load }: Command): string[] {
  const own = load
    ? [`| \`${[path, takes].filter(part => part !== "").join(" ")}\` | ${does.replaceAll("|", "\\|")} |`]
    : []
  return [...own, ...Object.entries(commands).flatMap(([name, each]) => rowsOf(`${path} ${name}`, each))]
}
