/** A real SMTP server on a free port of loopback, for tests. */
import { text } from "node:stream/consumers"
import { SMTPServer } from "smtp-server"

export interface Got {
  to: string[]
  raw: string
  subject: string
  id: string
}

export interface MailServer {
  url: string
  /** What it accepted. */
  got: Got[]
  /** The status with which it refuses a recipient, or the whole mail. */
  refuse: { rcpt?: number; data?: number }
  stop(): Promise<void>
}

export async function startMailServer(): Promise<MailServer> {
  const mail: Pick<MailServer, "got" | "refuse"> = { got: [], refuse: {} }
  const refusal = (status: number | undefined) =>
    status === undefined ? null : Object.assign(new Error("later"), { responseCode: status })
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ["STARTTLS"],
    onRcptTo: (_address, _session, done) => done(refusal(mail.refuse.rcpt)),
    onData: (stream, session, done) => {
      void text(stream).then(raw => {
        const header = (name: string) => new RegExp(`^${name}: (.*)$`, "mi").exec(raw)?.[1]?.trim() ?? ""
        const to = session.envelope.rcptTo.map(({ address }) => address)
        const refused = refusal(mail.refuse.data)
        if (!refused) mail.got.push({ to, raw, subject: header("Subject"), id: header("Message-ID") })
        done(refused)
      })
    },
  })
  await new Promise<void>(resolve => server.listen(0, "127.0.0.1", () => resolve()))
  const { port } = server.server.address() as { port: number }
  return Object.assign(mail, {
    url: `smtp://127.0.0.1:${port}`,
    stop: () => new Promise<void>(resolve => server.close(() => resolve())),
  })
}
