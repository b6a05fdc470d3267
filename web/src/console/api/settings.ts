/** The merchant's settings: one request for each page that shows some of them. */
import { read } from "./client.ts"
import { useLive } from "./live.ts"
import type { Settings } from "./types.ts"

export const settingsPath = "/api/console/settings"

export const useSettings = () =>
  useLive(["settings"], signal => read<Settings>(settingsPath, {}, signal), { every: 60_000 })
