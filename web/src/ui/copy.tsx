/** A value with a button that copies it. */
import { useEffect, useState } from "preact/hooks"
import { useWords } from "./context.ts"

const SHOWN_MS = 2_000

/** A row of a list of facts; `value` is what is copied, `text` what is shown where it differs. */
export function CopyRow({ name, value, text = value }: { name: string; value: string; text?: string }) {
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
      <dt>{name}</dt>
      <dd>
        <code dir="ltr">{text}</code>
        <button type="button" class="copy" aria-label={t("copyOf", { what: name })} onClick={copy}>
          {copied ? t("copied") : t("copy")}
        </button>
      </dd>
    </div>
  )
}

/** Where a page may not write to the clipboard (plain HTTP): copies by way of a selection. */
function selectText(value: string): void {
  const area = document.createElement("textarea")
  area.value = value
  area.className = "aside"
  document.body.append(area)
  area.select()
  document.execCommand("copy")
  area.remove()
}
