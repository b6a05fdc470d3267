/** Who runs a command, for the records of what operators do. */
import { userInfo } from "node:os"

/** The name of the Unix user; `uid N` where the system has none for it, as in a container with a user of its own choice. */
export function operatorName(): string {
  try {
    return userInfo().username
  } catch {
    return `uid ${process.getuid?.() ?? "unknown"}`
  }
}
