/** The name of the person who runs a command, for the records of operators' actions. */
import { userInfo } from "node:os"

/**
 * The name of the Unix user; `uid N` if the system has no name for the user, for example in a container with a custom
 * user.
 */
export function operatorName(): string {
  try {
    return userInfo().username
  } catch {
    return `uid ${process.getuid?.() ?? "unknown"}`
  }
}
