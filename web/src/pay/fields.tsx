/** The fields that a merchant asks for before the payment. The answers are stored in the browser and on the server. */
import { useState } from "preact/hooks"
import { useWords } from "../ui/context.ts"
import { Field } from "../ui/field.tsx"
import { fieldTitle } from "../ui/field-title.ts"
import { post } from "./api.ts"
import { problemMessage } from "./problems.ts"
import { recall, remember } from "./store.ts"

const MAX_LETTERS = 500

interface Kind {
  type: "text" | "email" | "tel"
  autocomplete: string
}
const kinds: [pattern: RegExp, kind: Kind][] = [
  [/e-?mail/i, { type: "email", autocomplete: "email" }],
  [/phone|mobile/i, { type: "tel", autocomplete: "tel" }],
  [/^(full_?)?name$/i, { type: "text", autocomplete: "name" }],
  [/company|organi[sz]ation/i, { type: "text", autocomplete: "organization" }],
  [/country/i, { type: "text", autocomplete: "country-name" }],
  [/(zip|post(al)?_?code)/i, { type: "text", autocomplete: "postal-code" }],
  [/city/i, { type: "text", autocomplete: "address-level2" }],
  [/address|street/i, { type: "text", autocomplete: "street-address" }],
]
const plain: Kind = { type: "text", autocomplete: "off" }
const kindOf = (name: string): Kind => kinds.find(([pattern]) => pattern.test(name))?.[1] ?? plain

/** A merchant may name a field `constructor`, which every object has. */
const ownOf = (texts: Record<string, string>, name: string): string | undefined =>
  Object.hasOwn(texts, name) ? texts[name] : undefined

interface Props {
  sessionId: string
  names: string[]
  done: () => void
}

/** The form. Each fault is next to its field, and the first one gets the focus. */
export function Fields({ sessionId, names, done }: Props) {
  const { t } = useWords()
  const [answers, setAnswers] = useState<Record<string, string>>(() => recall(sessionId).answers ?? {})
  const [faults, setFaults] = useState<Record<string, string>>({})
  const [problem, setProblem] = useState("")
  const faultOf = (name: string): string | undefined => {
    const text = (ownOf(answers, name) ?? "").trim()
    if (text === "") return t("fieldRequired")
    if (text.length > MAX_LETTERS) return t("fieldLong")
    if (kindOf(name).type === "email" && !/^[^@\s]+@[^@\s]+\.[^@\s]+$/.test(text)) return t("fieldEmail")
    return undefined
  }
  const change = (name: string, value: string) => {
    const next = { ...answers, [name]: value }
    setAnswers(next)
    remember(sessionId, { answers: next })
  }
  const submit = async (event: Event) => {
    event.preventDefault()
    const found = names.flatMap(name => {
      const fault = faultOf(name)
      return fault === undefined ? [] : [[name, fault] as const]
    })
    setFaults(Object.fromEntries(found))
    const [first] = found
    if (first) return document.getElementById(`field-${first[0]}`)?.focus()
    try {
      const payerInfo = Object.fromEntries(names.map(name => [name, (ownOf(answers, name) ?? "").trim()]))
      await post("/api/pay/payer-info", { sessionId, payerInfo })
      remember(sessionId, { answered: true, answers: undefined })
      done()
    } catch (error) {
      setProblem(problemMessage(t, error as Error, {}))
    }
  }
  return (
    <form class="stack" onSubmit={submit} noValidate>
      <h2 class="state">{t("yourDetails")}</h2>
      {names.map(name => (
        <Field
          key={name}
          {...(kindOf(name) as Kind & { type: "text" })}
          id={`field-${name}`}
          name={name}
          label={fieldTitle(name)}
          value={ownOf(answers, name) ?? ""}
          change={value => change(name, value)}
          fault={ownOf(faults, name)}
        />
      ))}
      {problem && (
        <p class="note bad" role="alert">
          {problem}
        </p>
      )}
      <button type="submit" class="primary">
        {t("continue")}
      </button>
    </form>
  )
}
