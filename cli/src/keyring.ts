/**
 * The keyring of the operating system, which keeps secrets encrypted while nobody is signed in. It is used through
 * `secret-tool` (libsecret) on Linux and `security` on macOS. A secret is never an argument of these programs,
 * because every process of the machine can read those.
 */
import { spawnSync } from "node:child_process"

/** How long one of these programs may take, because a person may have to unlock the keyring. */
const MAX_WAIT_MS = 60_000
const SERVICE = "sluice"

interface Keyring {
  store(id: string, label: string, secret: string): void
  read(id: string): string | undefined
  remove(id: string): void
}

/**
 * The ids are random and contain only letters, digits and dashes, because `security -i` reads a line as a shell
 * would.
 */
const keyrings: Partial<Record<NodeJS.Platform, Keyring>> = {
  linux: {
    store: (id, label, secret) =>
      void run("secret-tool", ["store", `--label=${label}`, "service", SERVICE, "account", id], secret),
    read: id => run("secret-tool", ["lookup", "service", SERVICE, "account", id]),
    remove: id => void run("secret-tool", ["clear", "service", SERVICE, "account", id]),
  },
  darwin: {
    store: (id, _, secret) =>
      void run("security", ["-i"], `add-generic-password -U -s ${SERVICE} -a ${id} -w ${secret}\n`),
    read: id => run("security", ["find-generic-password", "-s", SERVICE, "-a", id, "-w"]),
    remove: id => void run("security", ["delete-generic-password", "-s", SERVICE, "-a", id]),
  },
}

const keyring = (): Keyring | undefined =>
  process.env.SLUICE_KEYRING === "off" ? undefined : keyrings[process.platform]

/**
 * Stores a secret of printable characters without spaces. Returns false if there is no keyring, or if the keyring
 * does not return the secret. In that case the secret is removed from it again, because nothing would remember its
 * id.
 */
export function storeSecret(id: string, label: string, secret: string): boolean {
  const into = keyring()
  if (!into || !/^[\w-]+$/.test(id) || !/^[\w.-]+$/.test(secret)) return false
  into.store(id, label, secret)
  if (into.read(id) === secret) return true
  into.remove(id)
  return false
}

/** The secret; undefined if it is not in the keyring, or if the keyring stays locked. */
export const readSecret = (id: string): string | undefined => keyring()?.read(id)

/** Removes the secret, if it is in the keyring. */
export const removeSecret = (id: string): void => keyring()?.remove(id)

/** Returns what the program printed; undefined if the program is missing, failed, or took too long. */
function run(program: string, args: string[], input = ""): string | undefined {
  const { status, stdout } = spawnSync(program, args, {
    input,
    encoding: "utf8",
    timeout: MAX_WAIT_MS,
    stdio: ["pipe", "pipe", "ignore"],
  })
  return status === 0 ? stdout.trim() : undefined
}
