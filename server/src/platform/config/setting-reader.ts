/** Reads settings one by one and collects their faults, so that a start reports all faults together. */
import type { Setting } from "./setting.ts"
import { settingsTable } from "./settings-table.ts"

type Table = typeof settingsTable
type Name = keyof Table
type ValueOf<N extends Name> = Table[N] extends { fallback: string; parse: (text: string) => infer T }
  ? T
  : Table[N] extends { parse: (text: string) => infer T }
    ? T | undefined
    : never

export interface SettingReader {
  env: Record<string, string | undefined>
  /** The faults so far; each starts with the name of a setting. */
  faults: string[]
  /** A setting's value, or its default. If the value is invalid, the reader records a fault and returns undefined. */
  read: <N extends Name>(name: N) => ValueOf<N>
  /** Parses `value`. If `parse` throws, the reader records a fault and returns undefined. */
  attempt: <T>(name: string, value: string, parse: (text: string) => T) => T | undefined
  /** Records that a setting is missing. */
  required: (name: string) => undefined
}

/** Opens a reader of `env`, without faults yet. */
export function settingReader(env: Record<string, string | undefined>): SettingReader {
  const faults: string[] = []
  const attempt: SettingReader["attempt"] = (name, value, parse) => {
    try {
      return parse(value)
    } catch (error) {
      faults.push(`${name} ${(error as Error).message}`)
      return undefined
    }
  }
  return {
    env,
    faults,
    attempt,
    read: <N extends Name>(name: N) => {
      const setting: Setting<unknown> = settingsTable[name]
      const value = env[name] || setting.fallback
      return (value === undefined ? undefined : attempt(name, value, setting.parse)) as ValueOf<N>
    },
    required: name => {
      // An invalid value was already recorded.
      if (!faults.some(fault => fault.startsWith(`${name} `) || fault.startsWith(`${name}_FILE `)))
        faults.push(`${name} must be set when MODE is not sandbox`)
      return undefined
    },
  }
}
