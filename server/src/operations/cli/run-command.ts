/**
 * How every command of `sluice` reads its command line and ends. For an invalid command line, one sentence is printed,
 * with where to read more, and the exit code is 2. For a failure, its sentence is printed, and the exit code is 1.
 * `--help` has the exit code 0.
 */
import { type ParseArgsConfig, parseArgs } from "node:util"
import { loadEnvFile } from "../../platform/config/env-file.ts"

/**
 * Thrown if the command line, or a file that it names, is wrong. The message is one sentence, and the command has
 * done nothing.
 */
export class UsageError extends Error {}

/** A failure that has its own exit code. */
export class Failure extends Error {
  readonly exitCode: number
  constructor(message: string, exitCode: number) {
    super(message)
    this.exitCode = exitCode
  }
}

/** How the end of a command differs from the default. */
interface Ending {
  /** The sentence that precedes each failure, such as "Nobody was invited." */
  failed?: string
  /** Whether the process exits immediately, because connections that are not worth waiting for may be open. */
  exits?: boolean
  /** Applied to everything that is printed. */
  clean?: (text: string) => string
}

/** Options that every command has. */
const help = { type: "boolean", short: "h" } as const
const envFile = { type: "string", multiple: true } as const
const ENV_FILE = "env-file"

type WithHelp<T extends ParseArgsConfig> = T & { options: T["options"] & { help: typeof help } }

/**
 * Parses the arguments by these options, `--help` and `--env-file`; throws a {@link UsageError} if they don't match.
 * Adds the variables of each file to the environment. Variables that the environment already has win over the files,
 * and earlier files win over later ones.
 */
export function parseCommandLine<const T extends ParseArgsConfig>(
  args: string[],
  config: T,
): ReturnType<typeof parseArgs<WithHelp<T>>> {
  const options = { ...config.options, help, [ENV_FILE]: envFile }
  try {
    const parsed = parseArgs({ ...config, args, options } as unknown as WithHelp<T>)
    const values = parsed.values as { [ENV_FILE]?: string[] }
    const files = values[ENV_FILE] ?? []
    delete values[ENV_FILE]
    for (const file of files) parsedValue(`--${ENV_FILE} ${file}`, file, loadEnvFile)
    return parsed
  } catch (error) {
    if (error instanceof UsageError) throw error
    throw new UsageError(sentenceOf(error as Error & { code?: string }))
  }
}

/**
 * Turns an error of Node's parser into one sentence. Node's messages have several sentences, some about a rare use of
 * `--`.
 */
function sentenceOf({ code, message }: Error & { code?: string }): string {
  const [, name = ""] = /'(?:-\w, )?(--?[^\s'=]+|[^']*)/.exec(message) ?? []
  if (code === "ERR_PARSE_ARGS_UNKNOWN_OPTION") return `There is no option ${name}.`
  if (code === "ERR_PARSE_ARGS_UNEXPECTED_POSITIONAL") return `There is one argument too many: ${name}.`
  if (code === "ERR_PARSE_ARGS_INVALID_OPTION_VALUE")
    return /does not take an argument/.test(message) ? `${name} takes no value.` : `${name} needs a value.`
  return message
}

/** Runs `work`, which is the command `name`, with the arguments of the process, and prints the text that it returns. */
export async function runCommand(
  name: string,
  work: (args: string[]) => Promise<string | undefined>,
  { failed, exits = false, clean = text => text }: Ending = {},
): Promise<void> {
  try {
    const text = await work(process.argv.slice(2))
    if (text !== undefined) process.stdout.write(`${clean(text)}\n`)
  } catch (error) {
    const { message } = error as Error
    const isUsage = error instanceof UsageError
    const text = isUsage
      ? `${message}\nRun \`sluice ${name} --help\` for its usage.`
      : [failed, message].filter(part => part !== undefined).join(" ")
    process.stderr.write(`${clean(text)}\n`)
    process.exitCode = isUsage ? 2 : error instanceof Failure ? error.exitCode : 1
  }
  if (exits) process.exit()
}

/** Parses a value from the command line; throws a {@link UsageError} that starts with the value's name. */
export function parsedValue<T>(name: string, text: string, parse: (text: string) => T): T {
  try {
    return parse(text)
  } catch (error) {
    throw new UsageError(`${name} ${(error as Error).message}.`)
  }
}
