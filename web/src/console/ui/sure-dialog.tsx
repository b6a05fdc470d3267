/** Asks before what can't be undone, in the console's own dialog. */
import { Button, Modal } from "@mantine/core"
import { sureNow } from "./sure.ts"

export default function SureDialog() {
  const asked = sureNow.use()
  if (!asked) return null
  const { title, words, yes, answer } = asked
  const end = (is: boolean) => {
    sureNow.set(undefined)
    answer(is)
  }
  return (
    <Modal opened onClose={() => end(false)} title={title} size="sm">
      <div className="stack">
        <p className="second">{words}</p>
        <div className="row end">
          <Button onClick={() => end(false)}>Cancel</Button>
          <Button variant="filled" onClick={() => end(true)} data-autofocus>
            {yes}
          </Button>
        </div>
      </div>
    </Modal>
  )
}
