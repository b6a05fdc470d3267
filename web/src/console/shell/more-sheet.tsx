/** On a phone: all that the bottom bar has no room for. */
import { Drawer } from "@mantine/core"
import { openFind } from "./find-store.ts"
import { Places } from "./place-list.tsx"
import TeamSwitch from "./team-switch.tsx"

export default function MoreSheet({
  path,
  count,
  close,
}: {
  path: string
  count: number | undefined
  close: () => void
}) {
  return (
    <Drawer opened onClose={close} position="bottom" size="auto" title="More" radius="10px">
      <div className="more-sheet">
        <TeamSwitch />
        <button
          type="button"
          className="find"
          onClick={() => {
            close()
            openFind()
          }}
        >
          Find anything
        </button>
        <Places path={path} count={count} onClick={close} />
      </div>
    </Drawer>
  )
}
