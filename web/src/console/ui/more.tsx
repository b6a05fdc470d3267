/** Further actions; their menu is loaded after the page. */
import { Button } from "@mantine/core"
import { later } from "./later.tsx"

export const More = later(async () => (await import("./more-menu.tsx")).default, <Button disabled>More</Button>)
