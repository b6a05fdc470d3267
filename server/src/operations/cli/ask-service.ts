/** Sends the running service requests that only an operator may make: HTTP over the socket in its data folder. */
// I/O: the service's socket.
import { request } from "node:http"
import { readDataDir } from "../../platform/config/data-dir.ts"
import { socketPath } from "../operator/socket.ts"
import { operatorName } from "./operator-name.ts"
import { Failure } from "./run-command.ts"

/** The exit code if no service answers on the socket. */
const UNREACHABLE = 3

/**
 * Sends a request to the service and returns its answer, whatever its status. Undefined fields are left out. With a
 * body, the request is a POST in the name of the operator who runs the command. Rejects with a {@link Failure} if no
 * service answers.
 */
export async function askService(
  path: string,
  body?: object,
  // biome-ignore lint/suspicious/noExplicitAny: the service's answer, which each command prints in its own way.
): Promise<{ status: number; answer: any }> {
  const sent = body && JSON.stringify({ ...body, by: operatorName() })
  const { status, text } = await exchange(socketPath(readDataDir()), path, sent)
  return { status, answer: JSON.parse(text) }
}

/**
 * Replaces control characters. A contract's reason for a failure can be any text, which must not move the cursor or
 * colour other output.
 */
export const plain = (text: string): string => text.replace(/(?!\n)\p{C}/gu, "\ufffd")

function exchange(socketPath: string, path: string, body?: string): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const sent = request(
      {
        socketPath,
        path,
        method: body === undefined ? "GET" : "POST",
        headers: body === undefined ? {} : { "content-type": "application/json" },
      },
      async response => {
        let text = ""
        for await (const chunk of response) text += chunk
        resolve({ status: response.statusCode ?? 0, text })
      },
    )
    sent.once("error", (error: NodeJS.ErrnoException) =>
      reject(
        new Failure(
          error.code === "EACCES"
            ? `You have no permission to open ${socketPath}. Run this command as the user of the service.`
            : `No service answers at ${socketPath} (${error.code}). Check that the service is running, with this DATA_DIR.`,
          UNREACHABLE,
        ),
      ),
    )
    sent.end(body)
  })
}
