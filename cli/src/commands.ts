/** The table of commands. It is all that `--help`, the completion of shells and docs/developers/cli.md are made of. */
import type { Command } from "./command.ts"
import { resourceCommands } from "./resource-commands.ts"
import { triggered } from "./triggers.ts"

const own: Record<string, Command> = {
  login: {
    does: "signs in: a person approves at /console/device, and a profile keeps the key",
    options: [["--scopes <list>", "what the key may do, such as read,checkouts"]],
    load: () => import("./commands/login.ts"),
  },
  logout: { does: "removes the profile from this machine", load: () => import("./commands/logout.ts") },
  listen: {
    does: "brings events to a receiver on this machine, and reports its answers",
    options: [
      ["--forward-to <address>", "where events are posted, such as localhost:3000/webhooks"],
      ["--events <list>", "the names of the events, with commas; all by default"],
      ["--callbacks", "also a copy of what goes to a callbackUrl; not in live mode"],
      ["--exec <command>", "runs a command meanwhile, with the secret in SLUICE_WEBHOOK_SECRET, and ends with it"],
      ["--print", "prints the body of each event too; alone, it forwards nothing"],
      ["--skip-verify-tls", "takes any certificate of the receiver"],
    ],
    load: () => import("./commands/listen.ts"),
  },
  mcp: {
    does: "tools for an assistant (MCP), over the standard input and output",
    options: [
      ["--write", "also tools that make things, and with a capped key that move money"],
      ["--buyer", "instead tools that buy, with a wallet of this machine"],
      ["--key-file <file>", "the file with the wallet's private key, which only its owner can read"],
      [
        "--keyring <account>",
        "instead of a file, the account of the key in the system's keyring, for the service sluice",
      ],
      ["--max-per-call <amount>", "the most that one thing may cost, in whole tokens"],
      ["--max-per-day <amount>", "the most that is spent in a day (UTC), in whole tokens"],
      ["--allow-host <host...>", "a host that may be paid; no other is"],
      ["--token <token...>", "a token to spend, as NETWORK/ADDRESS/DECIMALS; USDC of Base by default"],
    ],
    load: () => import("./commands/mcp.ts"),
  },
  pay: {
    does: "pays a checkout of the sandbox with a test buyer",
    takes: "<id>",
    options: [
      ["--partial", "half of what is missing"],
      ["--over", "half more than the amount"],
      ["--late", "after the end: this moves the sandbox's clock"],
      ["--twice", "two payments of the whole amount"],
      ["--as-agent", "by x402: the buyer signs, and the service sends it"],
      ["--buyer <index>", "which of the five buyers pays, from 0"],
      ["--no-wait", "does not wait for the confirmation"],
    ],
    load: () => import("./commands/pay.ts"),
  },
  trigger: {
    does: "makes an event happen in the sandbox, by a real payment on its chain",
    takes: "<event>",
    options: [
      ["--on <id>", "the checkout, paywall or subscription to use, or for `ping` the webhook"],
      ["--amount <amount>", "the amount of the new checkout or paywall; 1.00 by default"],
      ["--metadata <name=value...>", "metadata of the new checkout"],
    ],
    among: triggered,
    load: () => import("./commands/trigger.ts"),
  },
  open: {
    does: "prints the address of a thing in the console",
    takes: "[id]",
    load: () => import("./commands/open.ts"),
  },
  export: {
    does: "prints a report as CSV",
    takes: "<report>",
    among: ["books", "payouts", "balance", "tax"],
    options: [
      ["--from <day>", "the first day, such as 2026-01-01"],
      ["--to <day>", "the day after the last"],
      ["--tz <zone>", "the time zone of the tax report's days"],
      ["--out <file>", "writes a new file instead"],
    ],
    load: () => import("./commands/export.ts"),
  },
  api: {
    does: "sends one request to the API and prints the answer",
    takes: "<method> <path>",
    options: [
      ["--data <json>", "the body; @FILE reads a file, - the standard input"],
      ["--idempotency-key <key>", "makes a POST take effect once"],
    ],
    load: () => import("./commands/api.ts"),
  },
  init: {
    does: "writes a shop for a framework, one that works",
    takes: "<framework> [folder]",
    among: ["express", "fastify", "hono", "next", "fastapi"],
    options: [["--pay-to <address>", "your own address, which gets what agents pay"]],
    load: () => import("./commands/init.ts"),
  },
  doctor: {
    does: "checks the address, the key, the clock and the service",
    load: () => import("./commands/doctor.ts"),
  },
  completion: {
    does: "prints the completion of a shell",
    takes: "<shell>",
    among: ["bash", "zsh"],
    load: () => import("./commands/completion.ts"),
  },
}

const ofEvents: Record<string, Command> = {
  tail: {
    does: "prints events as they happen, one a line",
    options: [
      ["--type <event>", "only events of this name"],
      ["--since <time>", "begins with events after this time, not with the next one"],
      ["--count <number>", "ends after so many"],
    ],
    load: () => import("./commands/tail-events.ts"),
  },
  resend: {
    does: "sends an event again to each endpoint that was to get it",
    takes: "<id>",
    load: () => import("./commands/resend-event.ts"),
  },
}

const ofRequests: Record<string, Command> = {
  tail: {
    does: "prints requests as they are answered, one a line, with why each was refused",
    options: [
      ["--status <class>", "only 2xx, 3xx, 4xx, 5xx or refused"],
      ["--key <id>", "only those of one API key"],
      ["--route <pattern>", "only those of one route, such as /api/checkouts"],
      ["--since <time>", "begins with requests after this time, not with the next one"],
      ["--count <number>", "ends after so many"],
    ],
    load: () => import("./commands/tail-requests.ts"),
  },
}

/** Every command by name. */
export function commandTable(): Record<string, Command> {
  const resources = resourceCommands()
  const events = { ...resources.events, commands: { ...resources.events?.commands, ...ofEvents } } as Command
  const logs: Command = { does: "the log of your requests", commands: ofRequests }
  return { ...own, ...resources, events, logs }
}
