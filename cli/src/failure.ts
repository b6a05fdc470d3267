/**
 * How a command fails: with a sentence and an exit code, and, if the service refused, with its error code and request
 * id.
 */

import { SluiceError } from "../../sdk/src/errors.ts"
import { SignatureError } from "../../sdk/src/webhooks.ts"

/** The meaning of each exit code; docs/developers/cli.md has the same list. */
export const exitCodes = {
  0: "it was done",
  1: "the service refused the request, or the command can't be done",
  2: "the command line is wrong; no request was sent",
  3: "the credential is missing, refused, or not allowed to do this",
  4: "there was no usable answer; the same command may succeed later",
} as const

export type ExitCode = keyof typeof exitCodes

/** A failure with a sentence for people and an exit code. */
export class Failure extends Error {
  readonly exitCode: ExitCode

  constructor(message: string, exitCode: ExitCode = 1) {
    super(message)
    this.exitCode = exitCode
  }
}

/** What is printed about a failure with `--json`. */
export interface FailureFacts {
  error: string
  message: string
  exitCode: ExitCode
  requestId?: string
  details?: unknown[]
  idempotencyKey?: string
}

/** The facts about anything that a command throws. */
export function factsOf(error: unknown): FailureFacts {
  if (error instanceof SluiceError) {
    const { code, message, requestId, details, idempotencyKey } = error
    return {
      error: code,
      message,
      exitCode: exitCodeOf(error),
      ...(requestId === undefined ? {} : { requestId }),
      ...(details.length > 0 ? { details } : {}),
      ...(error.status === undefined && idempotencyKey !== undefined ? { idempotencyKey } : {}),
    }
  }
  const { message } = error as Error
  if (error instanceof Failure) return { error: "FAILED", message, exitCode: error.exitCode }
  if (error instanceof TypeError || error instanceof SignatureError) return { error: "FAILED", message, exitCode: 2 }
  return { error: "FAILED", message, exitCode: 1 }
}

function exitCodeOf({ status, retryable, code }: SluiceError): ExitCode {
  if (status === 401 || status === 403) return 3
  return retryable || status === undefined || code === "UNREADABLE_ANSWER" ? 4 : 1
}

/** The lines about a failure that people read. */
export function failureText(facts: FailureFacts): string {
  const details = (facts.details ?? []) as { path?: string; message: string }[]
  return [
    facts.error === "FAILED" ? facts.message : `${facts.message} (${facts.error})`,
    ...details.map(({ path, message }) => `  ${path ? `${path}: ` : ""}${message}`),
    ...(facts.requestId ? [`  request ${facts.requestId}`] : []),
    ...(facts.idempotencyKey
      ? [`  The request may have taken effect. Repeat it with --idempotency-key ${facts.idempotencyKey}`]
      : []),
  ].join("\n")
}
