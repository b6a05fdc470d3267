/** The thing whose id is in the page's address. */
import { useParams } from "@tanstack/react-router"
import { read } from "../api/client.ts"
import { useLive } from "../api/live.ts"

const EVERY_MS = 15_000

/** Reads it below `base`, and again every 15 seconds. `name` says what it is among all that is kept. */
export function useThing<T>(name: string, base: string) {
  const { id } = useParams({ strict: false }) as { id: string }
  const path = `${base}/${encodeURIComponent(id)}`
  const query = useLive([name, id], signal => read<T>(path, {}, signal), { every: EVERY_MS })
  return { id, path, query }
}
