/** At the top left: the merchant, the others of this person, the look, and the way out. */
import { Menu } from "@mantine/core"
import { useQueryClient } from "@tanstack/react-query"
import { chosenMerchant } from "../api/client.ts"
import { isSandbox } from "../api/facts.ts"
import { useMe, useMembership } from "../api/me.ts"
import { signOut } from "./sign-out.ts"
import { TeamName } from "./team-name.tsx"
import { themeChoice } from "./theme-choice.ts"

const looks = { system: "As the system", light: "Light", dark: "Dark" } as const

export default function TeamSwitch() {
  const queries = useQueryClient()
  const { data: me } = useMe()
  const current = useMembership()
  const look = themeChoice.use()
  const choose = (id: string) => {
    chosenMerchant.set(id)
    // What is shown belongs to the other merchant.
    void queries.resetQueries()
  }
  return (
    <Menu width={232} position="bottom-start">
      <Menu.Target>
        <TeamName />
      </Menu.Target>
      <Menu.Dropdown>
        {me.merchants.length > 1 && <Menu.Label>Accounts</Menu.Label>}
        {me.merchants.length > 1 &&
          me.merchants.map(each => (
            <Menu.Item
              key={each.merchantId}
              onClick={() => choose(each.merchantId)}
              rightSection={each.merchantId === current?.merchantId ? "✓" : null}
            >
              {each.name || each.merchantId}
              <span className="quiet"> · {each.role}</span>
            </Menu.Item>
          ))}
        <Menu.Label>Look</Menu.Label>
        {(Object.keys(looks) as (keyof typeof looks)[]).map(each => (
          <Menu.Item key={each} onClick={() => themeChoice.set(each)} rightSection={each === look ? "✓" : null}>
            {looks[each]}
          </Menu.Item>
        ))}
        <Menu.Divider />
        <Menu.Label>
          {me.person.email ?? (isSandbox ? "The sandbox's person" : me.person.subject)}
          {current ? ` · ${current.role}` : ""}
        </Menu.Label>
        <Menu.Item onClick={signOut}>Sign out</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  )
}
