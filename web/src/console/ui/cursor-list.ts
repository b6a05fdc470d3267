/** A list of the API by its path, page by page. */
import { read } from "../api/client.ts"
import type { Page } from "../api/types.ts"
import { type Listed, useList } from "./use-list.ts"

/** `query` filters it. */
export const usePages = <T extends { id: string }>(
  path: string,
  query: Record<string, unknown> = {},
  idOf?: (row: T) => string,
): Listed<T> =>
  useList<T>([path, query], async (part, signal) => {
    const page = await read<Page<T>>(path, { ...query, ...part }, signal)
    return idOf ? { ...page, data: page.data.map(row => ({ ...row, id: idOf(row) })) } : page
  })
