/** Checks secrets for publicly known keys, keys of a sandbox, and files that other users can read. */
// I/O: reads the modes of files, and a sandbox's keys. The checks also run before the service starts, so they need no
// context.
import { statSync } from "node:fs"
import { join } from "node:path"
import { privateKeyToAddress } from "viem/accounts"
import { readJsonIfThere } from "../../platform/config/data-dir.ts"
import { isDevelopmentWallet } from "../../platform/config/live-mode.ts"
import type { SecretFile, Settings } from "../../platform/config/settings.ts"
import { type Finding, fine } from "./finding.ts"

/** The bits of a file's mode that give access to users other than the owner. */
const OTHERS = 0o077
const ALL_BUT_GROUP = 0o007
/** Files in DATA_DIR that only their owner may read. */
const KEPT = ["db", "keys.json", "sandbox.json", "admin.sock"]

/** Checks the wallets' keys, SECRET_KEY, and the modes of the files that hold secrets. */
export function checkSecrets(settings: Settings): Finding[] {
  const bad = [...knownKeys(settings), ...sandboxKeys(settings), ...openFiles(settings)]
  return bad.length > 0
    ? bad
    : [fine("secrets", "secrets", "no publicly known key is in use, and no other user can read a secret")]
}

const walletsOf = ({ payoutWallet, relayWallet }: Settings) =>
  [
    { lane: "payout", wallet: payoutWallet },
    { lane: "relay", wallet: relayWallet },
  ] as const

/** Reports publicly known keys in test mode. Live mode itself refuses such keys. */
const knownKeys = (settings: Settings): Finding[] =>
  walletsOf(settings)
    .filter(({ wallet }) => settings.mode === "test" && wallet !== undefined && isDevelopmentWallet(wallet))
    .map(({ lane }) => ({
      part: "secrets",
      check: `${lane}_key`,
      level: "alarm",
      message: `the ${lane} wallet has a well-known development key, so anyone can take its money`,
      todo: `Set another key for the ${lane} wallet${lane === "payout" ? ", and a factory whose operator is that wallet" : ""}. Live mode refuses this key.`,
    }))

interface SandboxKeys {
  secretKey?: string
  payout?: `0x${string}`
  relay?: `0x${string}`
}

/** Reports keys of a sandbox, which stores its keys next to its data and gives a token to anyone. */
function sandboxKeys(settings: Settings): Finding[] {
  if (settings.mode === "sandbox") return []
  const keys = keysOfSandbox(settings.dataDir)
  if (!keys) return []
  const isWallet = (key: `0x${string}` | undefined, wallet: string | undefined) =>
    key !== undefined && wallet !== undefined && privateKeyToAddress(key).toLowerCase() === wallet
  const used = [
    ...(keys.secretKey === Buffer.from(settings.secretKeys[0] ?? []).toString("hex") ? ["SECRET_KEY"] : []),
    ...walletsOf(settings)
      .filter(({ wallet }) => isWallet(keys.payout, wallet) || isWallet(keys.relay, wallet))
      .map(({ lane }) => `the ${lane} wallet's key`),
  ]
  if (used.length === 0) return []
  return [
    {
      part: "secrets",
      check: "sandbox_keys",
      level: settings.mode === "live" ? "fault" : "alarm",
      message: `${used.join(" and ")} of a sandbox must not be used with MODE=${settings.mode}`,
      todo: `Create new ones, and use a DATA_DIR that no sandbox has used: this one contains keys.json.`,
    },
  ]
}

function keysOfSandbox(dir: string): SandboxKeys | undefined {
  try {
    return readJsonIfThere(join(dir, "keys.json")) as SandboxKeys | undefined
  } catch {
    // The file is damaged or belongs to another program, so it contains no keys of a sandbox.
    return undefined
  }
}

function openFiles({ secretFiles, dataDir }: Settings): Finding[] {
  const kept = KEPT.map((name): SecretFile => ({ setting: `${name} in DATA_DIR`, path: join(dataDir, name) }))
  return [...secretFiles, ...kept].flatMap(({ setting, path, isOfGroup }) => {
    const mode = modeOf(path)
    if (mode === undefined || (mode & (isOfGroup ? ALL_BUT_GROUP : OTHERS)) === 0) return []
    return [
      {
        part: "secrets",
        check: "file_mode",
        level: "alarm",
        message: `${setting} can be used by users other than its owner (mode ${mode.toString(8)})`,
        todo: `Run \`chmod ${isOfGroup ? "o=" : "go="} ${path}\`. If others use this machine, treat the contents as compromised.`,
      },
    ]
  })
}

/**
 * The mode of a file; undefined if there is no such file. If the settings need the file, they have already been refused
 * for that reason.
 */
function modeOf(path: string): number | undefined {
  try {
    return statSync(path).mode & 0o777
  } catch {
    return undefined
  }
}
