/** A real SMTP server on a free port of loopback, for tests. */
import { text } from "node:stream/consumers"
import { SMTPServer } from "smtp-server"

export interface Got {
  to: string[]
  raw: string
  subject: string
  id: string
}

/** Where an exchange is: connected, its sender named, its recipient named, and its whole text received, before the answer to each. */
export type MailStep = "connect" | "from" | "to" | "text"

export interface MailServer {
  url: string
  /** What happens before the answer to a step. */
  before: ((step: MailStep, to: string) => Promise<void>) | undefined
  /** What it accepted. */
  got: Got[]
  /** The status with which it refuses a recipient, or the whole mail. */
  refuse: { rcpt?: number; data?: number }
  stop(): Promise<void>
}

export async function startMailServer(): Promise<MailServer> {
  const mail: Pick<MailServer, "got" | "refuse" | "before"> = { got: [], refuse: {}, before: undefined }
  const at = async (step: MailStep, to = ""): Promise<void> => await mail.before?.(step, to)
  const refusal = (status: number | undefined) =>
    status === undefined ? null : Object.assign(new Error("later"), { responseCode: status })
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ["STARTTLS"],
    onConnect: (_session, done) => void at("connect").then(() => done()),
    onMailFrom: (_address, _session, done) => void at("from").then(() => done()),
    onRcptTo: ({ address }, _session, done) => void at("to", address).then(() => done(refusal(mail.refuse.rcpt))),
    onData: (stream, session, done) => {
      void text(stream).then(async raw => {
        const header = (name: string) => new RegExp(`^${name}: (.*)$`, "mi").exec(raw)?.[1]?.trim() ?? ""
        const to = session.envelope.rcptTo.map(({ address }) => address)
        await at("text", to[0])
        const refused = refusal(mail.refuse.data)
        if (!refused) mail.got.push({ to, raw, subject: header("Subject"), id: header("Message-ID") })
        done(refused)
      })
    },
  })
  // A client that was killed resets its connection.
  server.on("error", () => {})
  await new Promise<void>(resolve => server.listen(0, "127.0.0.1", () => resolve()))
  const { port } = server.server.address() as { port: number }
  return Object.assign(mail, {
    url: `smtp://127.0.0.1:${port}`,
    stop: () => new Promise<void>(resolve => server.close(() => resolve())),
  })
}
