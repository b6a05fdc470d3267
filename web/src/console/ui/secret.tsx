/** A secret, shown once. */
import { Button } from "@mantine/core"
import { copyText } from "./copy.tsx"

interface Given {
  title: string
  secret: string
  words: string
  close: () => void
}

export function Secret({ title, secret, words, close }: Given) {
  return (
    <section className="card pad stack" aria-label={title}>
      <p>
        {words} <b>It is shown only now.</b>
      </p>
      <pre className="code">{secret}</pre>
      <div className="row">
        <Button variant="filled" onClick={() => copyText(secret, title)}>
          Copy it
        </Button>
        <Button onClick={close}>I have it</Button>
      </div>
    </section>
  )
}
