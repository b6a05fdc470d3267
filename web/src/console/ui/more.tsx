/** Further actions; their menu is loaded after the page. */
import { Button } from "@mantine/core"
import { type ComponentProps, lazy, Suspense } from "react"

const MoreMenu = lazy(() => import("./more-menu.tsx"))

export function More(props: ComponentProps<typeof MoreMenu>) {
  return (
    <Suspense fallback={<Button disabled>More</Button>}>
      <MoreMenu {...props} />
    </Suspense>
  )
}
