/** A list that the API answers as a whole, for the table. */
import type { UseQueryResult } from "@tanstack/react-query"
import type { Listed } from "./use-list.ts"

/** It has no further pages, and no row waits. */
export const wholeList = <T>({ data, error, dataUpdatedAt, refetch }: UseQueryResult<T[], unknown>): Listed<T> => ({
  rows: data,
  total: data?.length ?? 0,
  isLeast: false,
  waiting: 0,
  show: () => undefined,
  fresh: new Set(),
  more: undefined,
  isLoadingMore: false,
  error,
  asOf: dataUpdatedAt,
  retry: () => void refetch(),
  hold: () => undefined,
})
