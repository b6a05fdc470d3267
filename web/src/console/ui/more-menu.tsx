/** Further actions, behind a button. */
import { Button, Menu } from "@mantine/core"

export default function MoreMenu({ items }: { items: { name: string; act: () => void; isBad?: boolean }[] }) {
  return (
    <Menu width={200}>
      <Menu.Target>
        <Button aria-label="More actions">More</Button>
      </Menu.Target>
      <Menu.Dropdown>
        {items.map(({ name, act, isBad }) => (
          <Menu.Item key={name} onClick={act} className={isBad ? "bad" : ""}>
            {name}
          </Menu.Item>
        ))}
      </Menu.Dropdown>
    </Menu>
  )
}
