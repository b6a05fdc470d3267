/** Which service is asked, and with which key: the environment, or a profile that `sluice login` has saved. */
import { randomUUID } from "node:crypto"
import { chmodSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs"
import { homedir } from "node:os"
import { dirname, join } from "node:path"
import { Sluice } from "../../sdk/src/sluice.ts"
import { Failure } from "./failure.ts"
import { readSecret, removeSecret, storeSecret } from "./keyring.ts"

/** The sandbox of this machine. */
export const DEFAULT_URL = "http://127.0.0.1:4000"
const DEFAULT_PROFILE = "default"

/** What `sluice login` keeps. */
interface Profile {
  url: string
  name: string
  merchantId: string
  expiresAt: string
  /** The key, or where it is in the keyring. */
  apiKey?: string
  keyring?: string
}

/** The options of every command that asks the service. */
export interface ConnectOptions {
  profile?: string
  url?: string
}

/** The file of the profiles: `SLUICE_CONFIG`, or one below `XDG_CONFIG_HOME`. */
export const profilesFile = (): string =>
  process.env.SLUICE_CONFIG ||
  join(process.env.XDG_CONFIG_HOME || join(homedir(), ".config"), "sluice", "profiles.json")

/** All profiles by name; throws a {@link Failure} for a file that others can read. */
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
 * Saves a profile, its key in the keyring of the system, or in the file where there is none. The profile that it replaces is removed.
 * Returns which of the two has the key.
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

/** Removes a profile with its key. */
export const removeProfile = (name: string | undefined): void => replaceProfile(name, undefined)

/** The file is replaced at once, and only its owner can read it. */
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

/** The profile of this name, or the default one; undefined if there is none. */
export const profileOf = ({ profile = DEFAULT_PROFILE }: ConnectOptions): Profile | undefined => {
  const all = readProfiles()
  return Object.hasOwn(all, profile) ? all[profile] : undefined
}

/**
 * The service and the key. `SLUICE_API_KEY` wins over every profile, and then no file is read. A profile's key is sent to its own
 * service alone, whatever `SLUICE_URL` and `--url` say. Without a profile, the sandbox that `DATA_DIR` belongs to has a key.
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
      `The profile is for ${profile.url}, not ${trimmed(url)}. Set SLUICE_API_KEY, or sign in there.`,
      3,
    )
  return { baseUrl: profile.url, apiKey: keyOf(profile) }
}

function keyOf({ apiKey, keyring = "" }: Profile): string {
  const key = apiKey ?? readSecret(keyring)
  if (key) return key
  throw new Failure("The keyring of the system does not give the key. Unlock it, or run `sluice login` again.", 3)
}

/** The sandbox of `sandbox.json`, on whatever port it is, with its first merchant's key. Its key goes to no other address. */
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

/** The address without slashes at its end; throws a {@link Failure} for what is no address. */
export function trimmed(url: string): string {
  if (!URL.canParse(url) || !/^https?:\/\//.test(url))
    throw new Failure(`${url} is no address: it begins with http:// or https://.`, 2)
  return url.replace(/\/+$/, "")
}

/** The client, with a key; throws a {@link Failure} where there is none. `more` are further options of the client. */
export function connect(options: ConnectOptions, more: { fetch?: typeof fetch } = {}): Sluice & { baseUrl: string } {
  const { baseUrl, apiKey } = credentialOf(options)
  if (!apiKey) throw new Failure("There is no key. Run `sluice login`, or set SLUICE_API_KEY.", 3)
  return Object.assign(new Sluice({ baseUrl, apiKey, ...more }), { baseUrl })
}
