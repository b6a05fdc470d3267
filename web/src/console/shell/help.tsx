/** The keys, on `?`. */
import { Modal } from "@mantine/core"
import { places } from "./places.ts"

const keys: [string, string][] = [
  ["⌘ K or /", "Find anything, and every command"],
  ["j  k", "Next row, row before"],
  ["Enter", "Open the row"],
  ["x", "Choose the row"],
  ["Esc", "Back, or close"],
  ["c", "Create a checkout"],
  ["e", "Export the list as CSV"],
  ["?", "These keys"],
]

export default function Help({ opened, close }: { opened: boolean; close: () => void }) {
  const all = [...keys, ...places.map(({ key, name }): [string, string] => [`g ${key}`, name])]
  return (
    <Modal opened={opened} onClose={close} title="Keys">
      <dl className="facts">
        {all.map(([key, words]) => (
          <div key={key} style={{ display: "contents" }}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd style={{ textAlign: "start" }}>{words}</dd>
          </div>
        ))}
      </dl>
    </Modal>
  )
}
