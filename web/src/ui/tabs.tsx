/** Tabs: arrow keys move between them, and only the chosen one is in the Tab key's order. */
import type { ComponentChildren } from "preact"
import { useRef } from "preact/hooks"

interface Tab<K extends string> {
  key: K
  title: string
}

interface Props<K extends string> {
  id: string
  label: string
  tabs: Tab<K>[]
  chosen: K
  choose: (key: K) => void
  children: ComponentChildren
}

/** The tabs and, below them, the content of the chosen one. */
export function Tabs<K extends string>({ id, label, tabs, chosen, choose, children }: Props<K>) {
  const list = useRef<HTMLDivElement>(null)
  const move = (event: KeyboardEvent) => {
    const forward = document.dir === "rtl" ? "ArrowLeft" : "ArrowRight"
    const back = document.dir === "rtl" ? "ArrowRight" : "ArrowLeft"
    const at = tabs.findIndex(({ key }) => key === chosen)
    const steps: Record<string, number> = { [forward]: at + 1, [back]: at - 1, Home: 0, End: tabs.length - 1 }
    const next = steps[event.key]
    if (next === undefined) return
    event.preventDefault()
    const index = (next + tabs.length) % tabs.length
    const tab = tabs[index]
    if (!tab) return
    choose(tab.key)
    ;(list.current?.children[index] as HTMLElement | undefined)?.focus()
  }
  return (
    <>
      <div class="tabs" role="tablist" aria-label={label} ref={list} onKeyDown={move}>
        {tabs.map(({ key, title }) => (
          <button
            key={key}
            type="button"
            role="tab"
            id={`${id}-${key}`}
            aria-selected={key === chosen}
            aria-controls={`${id}-panel`}
            tabIndex={key === chosen ? 0 : -1}
            onClick={() => choose(key)}
          >
            {title}
          </button>
        ))}
      </div>
      <div role="tabpanel" id={`${id}-panel`} aria-labelledby={`${id}-${chosen}`} class="panel">
        {children}
      </div>
    </>
  )
}
