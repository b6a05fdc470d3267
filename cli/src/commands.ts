/**
 * The table of commands. `--help`, the completion in shells and docs/developers/cli.md are made from this table
 * alone.
 */
import type { Command } from "./command.ts"
import { resourceCommands } from "./resource-commands.ts"
import { triggered } from "./triggers.ts"

const own: Record<string, Command> = {
  login: {
    does: "signs in: a person approves at /console/device, and a profile stores the key",
    options: [["--scopes <list>", "what the key may do, such as read,checkouts"]],
    load: () => import("./commands/login.ts"),
  },
  logout: { does: "removes the profile from this machine", load: () => import("./commands/logout.ts") },
  listen: {
    does: "forwards events to a receiver on this machine, and reports its answers",
    options: [
      ["--forward-to <address>", "the address that gets the events, such as localhost:3000/webhooks"],
      ["--events <list>", "the names of the events, separated by commas; all by default"],
      ["--callbacks", "also forwards copies of the events sent to a callbackUrl; not in live mode"],
      [
        "--exec <command>",
        "runs this command with the secret in SLUICE_WEBHOOK_SECRET, and ends when the command ends",
      ],
      ["--print", "also prints the body of each event; without --forward-to, forwards nothing"],
      ["--skip-verify-tls", "accepts any certificate from the receiver"],
    ],
    load: () => import("./commands/listen.ts"),
  },
  mcp: {
    does: "provides tools for an assistant (MCP), over standard input and output",
    options: [
      ["--write", "also provides tools that create objects and, with a limited key, move money"],
      ["--buyer", "provides tools that buy with a wallet on this machine instead"],
      ["--key-file <file>", "the file with the wallet's private key; only its owner may read it"],
      [
        "--keyring <account>",
        "reads the key from this account of the service sluice in the system's keyring, not from a file",
      ],
      ["--max-per-call <amount>", "the most that one purchase may cost, in whole tokens"],
      ["--max-per-day <amount>", "the most that may be spent in a day (UTC), in whole tokens"],
      ["--allow-host <host...>", "a host that may be paid; all others are refused"],
      ["--token <token...>", "a token to spend, as NETWORK/ADDRESS/DECIMALS; USDC of Base by default"],
    ],
    load: () => import("./commands/mcp.ts"),
  },
  pay: {
    does: "pays a checkout in the sandbox with a test buyer",
    takes: "<id>",
    options: [
      ["--partial", "pays half of the missing amount"],
      ["--over", "pays the missing amount plus half of the price"],
      ["--late", "pays after the expiry, by moving the sandbox's clock"],
      ["--twice", "pays the missing amount, then the whole price again"],
      ["--as-agent", "pays through x402: the buyer signs, and the service sends the transaction"],
      ["--buyer <index>", "which of the five buyers pays, from 0"],
      ["--no-wait", "does not wait for the confirmation"],
    ],
    load: () => import("./commands/pay.ts"),
  },
  trigger: {
    does: "triggers an event in the sandbox, with a real payment on its chain",
    takes: "<event>",
    options: [
      ["--on <id>", "the checkout, paywall or subscription to use; for `ping`, the webhook"],
      ["--amount <amount>", "the amount of the new checkout or paywall; 1.00 by default"],
      ["--metadata <name=value...>", "metadata of the new checkout"],
    ],
    among: triggered,
    load: () => import("./commands/trigger.ts"),
  },
  open: {
    does: "prints the address of the console, or of the page for an id there",
    takes: "[id]",
    load: () => import("./commands/open.ts"),
  },
  export: {
    does: "prints a report as CSV",
    takes: "<report>",
    among: ["books", "payouts", "balance", "tax"],
    options: [
      ["--from <day>", "the first day, such as 2026-01-01"],
      ["--to <day>", "the day after the last day"],
      ["--tz <zone>", "the time zone of the tax report's days"],
      ["--out <file>", "writes a new file instead of printing"],
    ],
    load: () => import("./commands/export.ts"),
  },
  api: {
    does: "sends one request to the API and prints the answer",
    takes: "<method> <path>",
    options: [
      ["--data <json>", "the body; @FILE reads a file, - reads standard input"],
      ["--idempotency-key <key>", "makes a POST take effect only once"],
    ],
    load: () => import("./commands/api.ts"),
  },
  init: {
    does: "creates a working shop for a framework",
    takes: "<framework> [folder]",
    among: ["express", "fastify", "hono", "next", "fastapi"],
    options: [["--pay-to <address>", "your own address, which receives agents' payments"]],
    load: () => import("./commands/init.ts"),
  },
  doctor: {
    does: "checks the address, the key, the clock and the service",
    load: () => import("./commands/doctor.ts"),
  },
  completion: {
    does: "prints the completion script for a shell",
    takes: "<shell>",
    among: ["bash", "zsh"],
    load: () => import("./commands/completion.ts"),
  },
}

const ofEvents: Record<string, Command> = {
  tail: {
    does: "prints events as they happen, one per line",
    options: [
      ["--type <event>", "only events of this name"],
      ["--since <time>", "starts with events after this time instead of the next event"],
      ["--count <number>", "ends after printing this many"],
    ],
    load: () => import("./commands/tail-events.ts"),
  },
  resend: {
    does: "resends an event to each of its endpoints",
    takes: "<id>",
    load: () => import("./commands/resend-event.ts"),
  },
}

const ofRequests: Record<string, Command> = {
  tail: {
    does: "prints requests as they are answered, one per line, with the reason for each refusal",
    options: [
      ["--status <class>", "only 2xx, 3xx, 4xx, 5xx or refused"],
      ["--key <id>", "only requests of one API key"],
      ["--route <pattern>", "only requests to one route, such as /api/checkouts"],
      ["--since <time>", "starts with requests after this time instead of the next request"],
      ["--count <number>", "ends after printing this many"],
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
