/** The menu of a list's columns. */
import { Menu } from "@mantine/core"

interface Given {
  heads: string[]
  shown: string[]
  flip: (head: string) => void
  /** Back to the usual ones; undefined where they are shown. */
  reset: (() => void) | undefined
}

export default function ColumnsMenu({ heads, shown, flip, reset }: Given) {
  return (
    <Menu width={200} closeOnItemClick={false}>
      <Menu.Target>
        <button type="button" className="chip columns">
          Columns
        </button>
      </Menu.Target>
      <Menu.Dropdown>
        {heads.map(head => (
          <Menu.CheckboxItem key={head} checked={shown.includes(head)} onChange={() => flip(head)}>
            {head}
          </Menu.CheckboxItem>
        ))}
        {reset && (
          <>
            <Menu.Divider />
            <Menu.Item onClick={reset}>The usual ones</Menu.Item>
          </>
        )}
      </Menu.Dropdown>
    </Menu>
  )
}
