/** Builds the text of docs/developers/cli.md from the table of commands. */
import type { Command } from "./command.ts"
import { commandTable } from "./commands.ts"
import { exitCodes } from "./failure.ts"
import { untriggered } from "./triggers.ts"

const intro = `# Command line

\`sluice\` has the merchants' commands on this page, and the operator's commands. In a source checkout, run \`script/sluice\`.

**Address and key.** If \`SLUICE_API_KEY\` is set, the command uses that key and reads no profile. The address is then \`--url\` or
\`SLUICE_URL\`. Without either, the address is \`http://127.0.0.1:4000\`, where the sandbox runs. If \`SLUICE_API_KEY\` is not set, the
command uses the profile that \`sluice login\` saved. Profiles are in a file that only its owner may read: \`SLUICE_CONFIG\`, or
\`sluice/profiles.json\` in \`XDG_CONFIG_HOME\` or \`~/.config\`. The key itself is in the system's keyring, through \`secret-tool\` on
Linux (Debian: libsecret-tools) and \`security\` on macOS. If there is no keyring, or with \`SLUICE_KEYRING=off\`, the profile's file
contains the key. The key is sent only to the service that issued it. \`sluice login\` does not open a browser. It prints an address and a
code.

**For programs.** Every command accepts \`--json\` and then prints one line of JSON for each value. Errors go to standard error, with
the id of the request. With \`--json\` they are JSON too. \`NO_COLOR\` is respected. Control characters in payers' text never reach the
terminal.

**Events on your machine.** \`sluice listen --forward-to localhost:3000/webhooks\` creates a listener and prints its secret. It posts each
event with the bytes and headers of a webhook, and the console shows your program's answers. Retries and resent events arrive too, marked as
repeats. If \`sluice listen\` is killed, run the same command again within ten minutes. It then continues with the same listener, and no
event is lost. For that, \`sluice listen\` keeps the listener's id and secret in \`listeners/\` next to the profiles. Ctrl-C ends the
listener. \`--exec "npm test"\` is for CI: the command gets the secret in \`SLUICE_WEBHOOK_SECRET\`, and \`sluice listen\` exits with that
command's exit code.

**For assistants**, \`sluice mcp\` provides tools over standard input and output: [Assistants](mcp.md).

**In the sandbox**, \`script/sluice\` uses the key of the first merchant, so you don't need to sign in. \`sluice pay\` and \`sluice
trigger\` make real payments on the sandbox's chain. \`sluice trigger\` can also reserve, capture and void, and refund from the merchant's
wallet. It can reverse a payment with a reorg, which also removes all later transactions. With \`--on\`, it uses one of your own checkouts.

Some triggers move the sandbox's clock forward: half a minute for a reversal, five minutes for \`checkout.failed\`, \`checkout.expired\` and
\`--late\`, half a day for \`subscription.renewal.created\`, and four days for \`subscription.past_due\`. After that, \`--as-agent\` is
refused, because the buyer signs with the time of this machine's clock. \`checkout.expired\` takes about a minute.

${Object.entries(untriggered)
  .map(([event, reason]) => `\`${event}\` can't be triggered: ${reason}.`)
  .join("\n")}

On a machine that has the server, \`sluice doctor\` is the operator's command. There, check the connection with
\`node cli/src/sluice.ts doctor\`.
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

\`sluice COMMAND --help\` lists the options of a command.

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
