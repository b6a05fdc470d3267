/** The form of a command in the table of commands. */
import type { Output } from "./output.ts"
import type { ConnectOptions } from "./profiles.ts"

/** What a command receives: its arguments in order, its options by name, and where to print. */
export interface Input {
  args: string[]
  options: ConnectOptions & Record<string, unknown>
  out: Output
  /** Every command, for the completion in shells. */
  table: Record<string, Command>
}

/** A command, or a group of commands. Its module is loaded only when the command is named. */
export interface Command {
  does: string
  /** The arguments, as commander writes them: `<id> [name]`. */
  takes?: string
  /** The flags, and what they mean. */
  options?: readonly (readonly [flags: string, does: string])[]
  /** The values that an argument may have, for the completion in shells. */
  among?: readonly string[]
  load?: () => Promise<{ run: (input: Input) => Promise<void> }>
  commands?: Record<string, Command>
}
