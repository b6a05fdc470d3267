/** A value with a button that copies it. */
import { useEffect, useState } from "preact/hooks"
import { useWords } from "./context.ts"

const SHOWN_MS = 2_000

interface Props {
  name: string
  /** The value to copy. */
  value: string
  /** The text to show, if it differs. */
  text?: string
  /** Whether it is text from other people, in any language. */
  isProse?: boolean
}

/** A row of a list of facts. */
export function CopyRow({ name, value, text = value, isProse = false }: Props) {
  const { t } = useWords()
  const [copied, setCopied] = useState(false)
  useEffect(() => {
    if (!copied) return
    const timer = setTimeout(() => setCopied(false), SHOWN_MS)
    return () => clearTimeout(timer)
  }, [copied])
  const copy = async () => {
    await navigator.clipboard.writeText(value).catch(() => selectText(value))
    setCopied(true)
  }
  return (
    <div>
      <dt>
        <bdi>{name}</bdi>
      </dt>
      <dd>
        {isProse ? <bdi class="prose">{text}</bdi> : <code dir="ltr">{text}</code>}
        <button
          type="button"
          class="copy"
          aria-label={copied ? t("copied") : t("copyOf", { what: name })}
          onClick={copy}
        >
          {copied ? t("copied") : t("copy")}
        </button>
      </dd>
    </div>
  )
}

/** For pages that may not write to the clipboard (plain HTTP): copies with a selection. */
function selectText(value: string): void {
  const area = document.createElement("textarea")
  area.value = value
  area.className = "aside"
  document.body.append(area)
  area.select()
  document.execCommand("copy")
  area.remove()
}
