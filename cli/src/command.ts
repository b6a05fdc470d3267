/** What a command is, in the table of commands. */
import type { Output } from "./output.ts"
import type { ConnectOptions } from "./profiles.ts"

/** What a command gets: its arguments in their order, its options by name, and where it prints. */
export interface Input {
  args: string[]
  options: ConnectOptions & Record<string, unknown>
  out: Output
  /** Every command, for the completion of a shell. */
  table: Record<string, Command>
}

/** A command, or a group of commands. Its module is loaded when it is named. */
export interface Command {
  does: string
  /** As commander writes them: `<id> [name]`. */
  takes?: string
  /** Flags, and what they mean. */
  options?: readonly (readonly [flags: string, does: string])[]
  /** The values that an argument may have, for the completion of a shell. */
  among?: readonly string[]
  load?: () => Promise<{ run: (input: Input) => Promise<void> }>
  commands?: Record<string, Command>
}
