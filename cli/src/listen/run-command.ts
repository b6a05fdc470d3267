/**
 * The program of `sluice listen --exec`. It runs while deliveries are forwarded, and when it ends, forwarding ends
 * too.
 */
import { spawn } from "node:child_process"

/**
 * Runs the program in a shell, with the listener's secret in SLUICE_WEBHOOK_SECRET. Calls `ended` with the program's
 * exit code, or with 1 if a signal ended it. Returns a function that ends the program.
 */
export function runCommand(
  command: string,
  { secret, isJson, ended }: { secret: string; isJson: boolean; ended: (code: number) => void },
): () => void {
  const child = spawn(command, {
    shell: true,
    // With --json, only JSON goes to the standard output.
    stdio: ["inherit", isJson ? 2 : 1, 2],
    env: { ...process.env, SLUICE_WEBHOOK_SECRET: secret },
  })
  child.once("exit", code => ended(code ?? 1))
  return () => void (child.exitCode === null && child.signalCode === null && child.kill())
}
