/** The command of `sluice listen --exec`: it runs while deliveries are forwarded, and its end ends them. */
import { spawn } from "node:child_process"

/**
 * Runs the command in a shell, which finds the listener's secret in SLUICE_WEBHOOK_SECRET. Calls `ended` with its exit code, 1 if a
 * signal ended it. Returns what ends it.
 */
export function runCommand(
  command: string,
  { secret, isJson, ended }: { secret: string; isJson: boolean; ended: (code: number) => void },
): () => void {
  const child = spawn(command, {
    shell: true,
    // With --json the standard output is for JSON alone.
    stdio: ["inherit", isJson ? 2 : 1, 2],
    env: { ...process.env, SLUICE_WEBHOOK_SECRET: secret },
  })
  child.once("exit", code => ended(code ?? 1))
  return () => void (child.exitCode === null && child.signalCode === null && child.kill())
}
