/** The merchant's settings: one request for each page that shows some of them. */
import { useQuery } from "@tanstack/react-query"
import { read } from "./client.ts"
import { retries } from "./live.ts"
import type { Settings } from "./types.ts"

export const settingsPath = "/api/console/settings"

export const useSettings = () =>
  useQuery({
    queryKey: ["settings"],
    queryFn: ({ signal }) => read<Settings>(settingsPath, {}, signal),
    ...retries,
  })
