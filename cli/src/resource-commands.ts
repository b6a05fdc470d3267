/** The commands for resources, such as `sluice checkouts list`, which are built from the operations of the API. */
import type { Command } from "./command.ts"
import { type Field, type Operation, optionOf } from "./operation.ts"
import { operations } from "./operations.ts"

/** The group of commands for each resource. */
export const resourceCommands = (): Record<string, Command> =>
  Object.fromEntries(
    Object.entries(operations).map(([name, methods]) => [
      name,
      {
        does: Object.keys(methods).join(", "),
        commands: Object.fromEntries(Object.entries(methods).map(([method, each]) => [method, commandOf(each)])),
      },
    ]),
  )

function commandOf(operation: Operation): Command {
  const { does, ids, fields = {}, body, pages, key } = operation
  return {
    does,
    takes: ids.map(id => `<${id}>`).join(" "),
    options: [
      ...Object.entries(fields).map(([name, field]) => [flagsOf(name, field), field.does] as const),
      ...(body ? ([["--data <json>", "the whole body; @FILE reads a file, - reads the standard input"]] as const) : []),
      ...(pages ? ([["--all", "every page, one row per line"]] as const) : []),
      ...(key ? ([["--idempotency-key <key>", "makes the call take effect only once"]] as const) : []),
    ],
    load: async () => {
      const { callOperation } = await import("./commands/call-operation.ts")
      return { run: input => callOperation(operation, input) }
    },
  }
}

const flagsOf = (name: string, { type }: Field): string => `--${optionOf(name)} <${type === "text" ? "text" : type}>`
