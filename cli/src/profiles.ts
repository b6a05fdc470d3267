/**
 * Determines which service is called and with which key, from the environment or from a profile that `sluice login`
 * has saved.
 */
import { randomUUID } from "node:crypto"
import { chmodSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs"
import { homedir } from "node:os"
import { dirname, join } from "node:path"
import { Sluice } from "../../sdk/src/sluice.ts"
import { Failure } from "./failure.ts"
import { readSecret, removeSecret, storeSecret } from "./keyring.ts"

/** The address of a sandbox on this machine. */
export const DEFAULT_URL = "http://127.0.0.1:4000"
const DEFAULT_PROFILE = "default"

/** What `sluice login` saves. */
interface Profile {
  url: string
  name: string
  merchantId: string
  expiresAt: string
  /** The key, or the id of its entry in the keyring. */
  apiKey?: string
  keyring?: string
}

/** The options of every command that calls the service. */
export interface ConnectOptions {
  profile?: string
  url?: string
}

/** The file with the profiles: `SLUICE_CONFIG`, or a file below `XDG_CONFIG_HOME`. */
export const profilesFile = (): string =>
  process.env.SLUICE_CONFIG ||
  join(process.env.XDG_CONFIG_HOME || join(homedir(), ".config"), "sluice", "profiles.json")

/** All profiles by name; throws a {@link Failure} if other users can read the file. */
function readProfiles(): Record<string, Profile> {
  const file = profilesFile()
  try {
    if (process.platform !== "win32" && (statSync(file).mode & 0o077) !== 0)
      throw new Failure(`Other users can read ${file}, which holds keys. Run \`chmod 600 ${file}\`.`, 3)
    return JSON.parse(readFileSync(file, "utf8"))
  } catch (error) {
    if ((error as { code?: string }).code === "ENOENT") return {}
    if (error instanceof SyntaxError)
      throw new Failure(`${file} is not JSON. Repair it, or remove it and sign in again.`, 3)
    throw error
  }
}

/**
 * Saves a profile, with the key in the system's keyring, or in the file if there is no keyring. The profile that it
 * replaces is removed. Returns where the key was saved.
 */
export function saveProfile(name: string | undefined, { apiKey, ...profile }: Profile): "keyring" | "file" {
  const keyring = randomUUID()
  const isInKeyring = storeSecret(keyring, `Sluice: ${profile.name} at ${profile.url}`, `${apiKey}`)
  try {
    replaceProfile(name, { ...profile, ...(isInKeyring ? { keyring } : { apiKey: `${apiKey}` }) })
  } catch (error) {
    if (isInKeyring) removeSecret(keyring)
    throw error
  }
  return isInKeyring ? "keyring" : "file"
}

/** Removes a profile and its key. */
export const removeProfile = (name: string | undefined): void => replaceProfile(name, undefined)

/** Replaces or removes a profile. The file is replaced atomically, and only its owner can read it. */
function replaceProfile(name = DEFAULT_PROFILE, profile: Profile | undefined): void {
  const file = profilesFile()
  const { [name]: before, ...others } = readProfiles()
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 })
  const unfinished = `${file}.${process.pid}`
  try {
    const all = profile ? { ...others, [name]: profile } : others
    writeFileSync(unfinished, `${JSON.stringify(all, undefined, 2)}\n`, { mode: 0o600, flag: "wx" })
    chmodSync(unfinished, 0o600)
    renameSync(unfinished, file)
  } catch (error) {
    rmSync(unfinished, { force: true })
    throw error
  }
  if (before?.keyring) removeSecret(before.keyring)
}

/** The profile with this name, or the default profile; undefined if there is none. */
export const profileOf = ({ profile = DEFAULT_PROFILE }: ConnectOptions): Profile | undefined => {
  const all = readProfiles()
  return Object.hasOwn(all, profile) ? all[profile] : undefined
}

/**
 * The service and the key. `SLUICE_API_KEY` wins over every profile, in which case no file is read. A profile's key
 * is sent only to the profile's own service, whatever `SLUICE_URL` and `--url` say. Without a profile, the key comes
 * from the sandbox to which `DATA_DIR` belongs.
 */
export function credentialOf(options: ConnectOptions): { baseUrl: string; apiKey: string | undefined } {
  const url = options.url ?? process.env.SLUICE_URL
  const { SLUICE_API_KEY: apiKey } = process.env
  if (apiKey) return { baseUrl: trimmed(url ?? DEFAULT_URL), apiKey }
  const profile = profileOf(options)
  if (!profile) {
    if (options.profile !== undefined)
      throw new Failure(`There is no profile ${options.profile}. Run \`sluice login --profile ${options.profile}\`.`, 3)
    return sandboxCredential(url === undefined ? undefined : trimmed(url))
  }
  if (url !== undefined && trimmed(url) !== profile.url)
    throw new Failure(
      `The profile is for ${profile.url}, not ${trimmed(url)}. Set SLUICE_API_KEY, or sign in at ${trimmed(url)}.`,
      3,
    )
  return { baseUrl: profile.url, apiKey: keyOf(profile) }
}

function keyOf({ apiKey, keyring = "" }: Profile): string {
  const key = apiKey ?? readSecret(keyring)
  if (key) return key
  throw new Failure("The system's keyring does not return the key. Unlock the keyring, or run `sluice login` again.", 3)
}

/**
 * The sandbox of `sandbox.json`, whatever its port is, and the key of its first merchant. That key is sent to no
 * other address.
 */
function sandboxCredential(url: string | undefined): { baseUrl: string; apiKey: string | undefined } {
  const { DATA_DIR } = process.env
  const none = { baseUrl: url ?? DEFAULT_URL, apiKey: undefined }
  if (!DATA_DIR) return none
  try {
    const sandbox = JSON.parse(readFileSync(join(DATA_DIR, "sandbox.json"), "utf8"))
    const isItsOwn = url === undefined || url === sandbox.baseUrl
    return isItsOwn ? { baseUrl: sandbox.baseUrl, apiKey: sandbox.merchants[0].apiKey } : none
  } catch {
    return none
  }
}

/** The address without slashes at its end; throws a {@link Failure} if it is not an address. */
export function trimmed(url: string): string {
  if (!URL.canParse(url) || !/^https?:\/\//.test(url))
    throw new Failure(`${url} is not an address: it must begin with http:// or https://.`, 2)
  return url.replace(/\/+$/, "")
}

/**
 * Creates the client with a key; throws a {@link Failure} if there is no key. `more` are further options for the
 * client.
 */
export function connect(options: ConnectOptions, more: { fetch?: typeof fetch } = {}): Sluice & { baseUrl: string } {
  const { baseUrl, apiKey } = credentialOf(options)
  if (!apiKey) throw new Failure("There is no key. Run `sluice login`, or set SLUICE_API_KEY.", 3)
  return Object.assign(new Sluice({ baseUrl, apiKey, ...more }), { baseUrl })
}
