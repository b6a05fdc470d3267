/** A form over one request: the server's faults stand at their fields, its other words below. */
import { Button } from "@mantine/core"
import { useForm } from "@mantine/form"
import { useBlocker, useNavigate } from "@tanstack/react-router"
import { type ReactNode, useState } from "react"
import type { Act } from "../api/act.ts"
import { failureOf, fieldFaults } from "../api/failure.ts"
import { useRight } from "../api/me.ts"
import type { Right } from "../api/types.ts"
import { copyCurl } from "./copy.tsx"
import { NoRight, RequestId } from "./problem.tsx"
import { isSure } from "./sure.ts"
import { useAct } from "./use-act.ts"

type Form<V extends Record<string, unknown>> = ReturnType<typeof useForm<V, V>>

interface Given<V extends Record<string, unknown>, T> {
  first: V
  /** The request that the values make; a string is what is wrong before anything is sent. */
  request: (values: V) => Act | string
  fields: (form: Form<V>) => ReactNode
  submit: string
  done: string
  onDone?: (answer: T) => void
  right: Right
  /** Whether it changes what is there, so that without a change there is nothing to send. */
  isChange?: boolean
  /** Where "Cancel" leads, or what it does. */
  cancel?: string
  onCancel?: () => void
}

export function RequestForm<V extends Record<string, unknown>, T>(given: Given<V, T>) {
  const { first, request, fields, submit, done, onDone, right, isChange = false, cancel, onCancel } = given
  const form = useForm<V>({ initialValues: first })
  const may = useRight(right)
  const navigate = useNavigate()
  const [wrong, setWrong] = useState("")
  const action = useAct<T>({
    done,
    isQuiet: true,
    onDone: answer => {
      form.resetDirty()
      onDone?.(answer)
    },
  })
  useBlocker({
    shouldBlockFn: async () =>
      form.isDirty() &&
      !action.isSuccess &&
      !(await isSure({ title: "Leave without saving?", words: "Then what you typed is lost.", yes: "Leave" })),
    enableBeforeUnload: () => form.isDirty() && !action.isSuccess,
  })
  const send = (values: V) => {
    const made = request(values)
    setWrong(typeof made === "string" ? made : "")
    if (typeof made === "string") return
    action.mutate(made, {
      onError: error => {
        const faults = fieldFaults(error)
        const known = Object.fromEntries(Object.entries(faults).filter(([name]) => name in first))
        form.setErrors(Object.fromEntries(Object.entries(known).map(([name, text]) => [name, sentence(text)])))
      },
    })
  }
  const failure = action.error ? failureOf(action.error) : undefined
  const made = request(form.values)
  // Faults of fields stand at the fields; what belongs to none is said here.
  const others = failure?.details.filter(({ path }) => !(path.replace(/^\//, "").replace(/\//g, ".") in first)) ?? []
  const isOfFields = failure?.code === "VALIDATION_ERROR" && failure.details.length > 0
  const words = isOfFields
    ? ["Check the marked fields.", ...others.map(({ path, message }) => `${path}: ${message}.`)].slice(
        others.length === failure.details.length ? 1 : 0,
      )
    : [failure?.message]
  return (
    <form className="form" onSubmit={form.onSubmit(send)} noValidate>
      {fields(form)}
      {(wrong || failure) && (
        <div className="note bad" role="alert">
          <div>{wrong || words.join(" ")}</div>
          {/* A typing error needs no log. */}
          {failure?.requestId && !(isOfFields && others.length === 0) && <RequestId id={failure.requestId} />}
        </div>
      )}
      <div className="row">
        <Button
          type="submit"
          variant="filled"
          loading={action.isPending}
          disabled={!may || (isChange && !form.isDirty())}
        >
          {submit}
        </Button>
        {cancel && <Button onClick={() => navigate({ to: cancel })}>Cancel</Button>}
        {onCancel && <Button onClick={onCancel}>Cancel</Button>}
        {typeof made !== "string" && (
          <Button variant="subtle" className="plain" onClick={() => copyCurl({ ...made })}>
            Copy as curl
          </Button>
        )}
        {!may && <NoRight right={right} />}
      </div>
    </form>
  )
}

/** The server names the field and its grammar; a person needs an example. */
const sentence = (text: string): string =>
  /plain decimal number/.test(text) ? "Enter an amount such as 5 or 4.99." : capital(text)

const capital = (text: string): string =>
  `${text.replace(/^./, first => first.toUpperCase())}${/[.!?]$/.test(text) ? "" : "."}`

/** A value that was left empty is not sent. */
export const given = (text: string): string | undefined => (text.trim() === "" ? undefined : text.trim())

/** The body without what is undefined. */
export const bodyOf = (values: Record<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined))
