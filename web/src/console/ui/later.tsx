/** A part that is loaded when it is first wanted. A failed load takes only its own place, and can be tried again. */
import { Button } from "@mantine/core"
import { type ComponentType, type ReactNode, useEffect, useState } from "react"

type Part<P> = ((props: P) => ReactNode) & { preload: () => Promise<void> }

/** Not `lazy` with `Suspense`: `lazy` keeps a failure for ever, and throws it at the whole page. */
export function later<P extends object>(load: () => Promise<ComponentType<P>>, meanwhile: ReactNode = null): Part<P> {
  let Loaded: ComponentType<P> | undefined
  const ask = async () => {
    Loaded ??= await load()
  }
  function Later(props: P) {
    const [state, setState] = useState<"asked" | "there" | "failed">(Loaded ? "there" : "asked")
    const [failures, setFailures] = useState(0)
    useEffect(() => {
      if (state !== "asked") return
      let isOver = false
      ask().then(
        () => isOver || setState("there"),
        () => {
          if (isOver) return
          setFailures(count => count + 1)
          setState("failed")
        },
      )
      return () => {
        isOver = true
      }
    }, [state])
    if (Loaded) return <Loaded {...props} />
    if (state === "failed") return <Missing retry={failures > 1 ? () => location.reload() : () => setState("asked")} />
    return meanwhile
  }
  return Object.assign(Later, { preload: () => ask().catch(() => undefined) })
}

/** Some browsers keep a failed file until the page is loaded anew, so the second try does that. */
function Missing({ retry }: { retry: () => void }) {
  return (
    <div className="state" role="alert">
      <h2>This part could not be loaded</h2>
      <p>The connection broke, or the console has a new version.</p>
      <Button onClick={retry}>Try again</Button>
    </div>
  )
}
