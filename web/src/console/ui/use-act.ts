/** A write that a button does: it is busy meanwhile, says what happened, and what is shown is read again. */
import { notifications } from "@mantine/notifications"
import { useMutation, useQueryClient } from "@tanstack/react-query"
import { type Act, act } from "../api/act.ts"
import { failureOf } from "../api/failure.ts"

interface Options<T> {
  /** Said when it is done. */
  done?: string
  onDone?: (answer: T) => void
  /** Whether a failure is shown by the form itself. */
  isQuiet?: boolean
}

export function useAct<T>({ done, onDone, isQuiet }: Options<T> = {}) {
  const queries = useQueryClient()
  return useMutation<T, unknown, Act>({
    mutationFn: request => act<T>(request),
    onSuccess: answer => {
      void queries.invalidateQueries()
      if (done) notifications.show({ message: done })
      onDone?.(answer)
    },
    onError: error => {
      const { message, requestId, status } = failureOf(error)
      if (!isQuiet && status !== 401)
        notifications.show({
          title: "That did not work",
          message: requestId ? `${message} (request ${requestId})` : message,
          color: "red",
          autoClose: 12_000,
        })
    },
  })
}
