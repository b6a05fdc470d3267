/** Why something stands as it does, what happened to it, and what carried its money out. */
import { Button } from "@mantine/core"
import { Link } from "@tanstack/react-router"
import { useState } from "react"
import { personText } from "../api/me.ts"
import type { NextAction, Part, Story, StoryEntry } from "../api/story.ts"
import { Hash } from "./copy.tsx"
import { Money } from "./money.tsx"
import { Status, type Tone } from "./status.tsx"
import { Moment, Time } from "./time.tsx"

/** The reason, in words, and the next steps. */
export function Why({ story, tone, here }: { story: Story | undefined; tone: Tone; here?: string }) {
  if (!story) return null
  const { why } = story.status
  // What leads to the page itself leads nowhere.
  const next = story.status.next.filter(({ route }) => here === undefined || LOOK.exec(route ?? "")?.[2] !== here)
  return (
    <div className={`note ${tone}`} role="status" style={{ marginBottom: 16 }}>
      <div>
        <p className="strong">
          <Text of={why} />
        </p>
        {next.length > 1 && <p className="second">What you can do:</p>}
        <ul>
          {next.map(each => (
            <li key={each.text}>
              <Next action={each} />
            </li>
          ))}
        </ul>
      </div>
    </div>
  )
}

const LOOK = /^GET \/api\/console\/(timeline|payouts|payments|checkouts)\/([a-z]+_[a-z0-9]+)/
const URL_TEXT = /(https?:\/\/[^\s]+[^\s.,])/

/** A step that is only to look leads there; the others are the buttons at the top. */
function Next({ action: { text, route } }: { action: NextAction }) {
  const [, list, id] = LOOK.exec(route ?? "") ?? []
  if (id)
    return (
      <Link to={list === "payouts" ? "/payouts/$id" : "/payments/$id"} params={{ id }} className="plain-link">
        {text}
      </Link>
    )
  return text.split(URL_TEXT).map(part =>
    URL_TEXT.test(part) ? (
      <a key={part} href={part} target="_blank" rel="noreferrer" className="plain-link">
        {part.replace(/^https?:\/\//, "")}
      </a>
    ) : (
      part
    ),
  )
}

const tones: Record<string, Tone> = {
  needs_decision: "wait",
  due: "wait",
  gone: "bad",
  ended: "off",
}

interface StoryGiven {
  story: Story | undefined
  error: unknown
}

export function Happened({ story, error }: StoryGiven) {
  const [isWhole, setWhole] = useState(false)
  if (!story && error)
    return <p className="quiet">The history could not be loaded. The facts beside it are complete.</p>
  if (!story)
    return (
      <div className="stack late">
        <span className="bone" style={{ width: "50%" }} />
        <span className="bone" style={{ width: "40%" }} />
      </div>
    )
  const steps = isWhole ? story.data : story.data.filter(({ kind }) => !machinery.has(kind))
  const hidden = story.data.length - steps.length
  return (
    <>
      <ol className="story">
        {steps.map(entry => (
          <Entry key={`${entry.at}${entry.kind}${entry.object}${entry.text}`} entry={entry} />
        ))}
      </ol>
      {hidden > 0 && (
        <div>
          <Button size="xs" onClick={() => setWhole(true)}>
            {hidden === 1 ? "Show one more step" : `Show ${hidden} more steps`}
          </Button>
        </div>
      )}
    </>
  )
}

/** How the service works, beside what happened to the money: there for whoever asks for it. */
const machinery: ReadonlySet<string> = new Set(["event", "signed", "sent"])
const HASHES = /(0x[0-9a-fA-F]{40,64})/

/** A sentence of the server; the addresses and hashes in it are shortened, to be copied by a click. */
function Text({ of }: { of: string }) {
  const parts = of.split(HASHES)
  return parts.map((part, i) =>
    HASHES.test(part) ? <Hash key={`${part}${parts.indexOf(part, i)}`} value={part} dot={false} /> : part,
  )
}

/** What happened; a person without an e-mail address by what is known of them, as in the audit log. */
const wordsOf = ({ text, actor }: StoryEntry): string =>
  actor?.kind === "console" && actor.id !== null && !actor.id.includes("@")
    ? text.replace(actor.id, personText({ email: null, subject: actor.id }))
    : text

function Entry({ entry }: { entry: StoryEntry }) {
  const { at, kind, text, txHash, object } = entry
  const isQuiet = machinery.has(kind)
  const failed = kind === "delivery" && /has not accepted|did not accept/.test(text)
  return (
    <li className={isQuiet ? "minor" : ""}>
      <i className={failed ? "bad" : isQuiet ? "" : (tones[kind] ?? "good")} />
      <div>
        <Text of={wordsOf(entry)} />
      </div>
      <div className="quiet row" style={{ gap: 8 }}>
        <Moment at={at} />
        {txHash && <Hash value={txHash} what="Hash" dot={false} />}
        {kind === "delivery" && object && (
          <Link to="/webhooks/deliveries/$id" params={{ id: object }}>
            see each attempt
          </Link>
        )}
      </div>
    </li>
  )
}

const kinds: Record<string, string> = {
  share: "Share",
  sweep: "Payout",
  return: "Return",
  reserve: "Reservation",
  capture: "Capture",
  void: "Release",
  refund: "Refund",
}

/**
 * Where the money went: each share, sweep and return, not how it came in by a signature. A reservation is named only
 * while nothing followed it.
 */
export function Parts({ of: calls }: { of: Part[] }) {
  const all = calls.filter(({ kind }) => kind !== "authorize")
  const followed = all.filter(({ kind }) => kind !== "reserve")
  const of = followed.length > 0 ? followed : all
  if (of.length === 0) return null
  return (
    <section className="card" aria-label="Where the money went">
      <div className="pad head">
        <h2>Where the money went</h2>
      </div>
      <table className="list">
        <tbody>
          {of.map(({ id, kind, state, recipient, amount, currency, createdAt }) => (
            <tr key={id} className="open">
              <td>
                <Link to="/payouts/$id" params={{ id }} className="whole">
                  <Money amount={amount} currency={currency} />
                </Link>
              </td>
              <td>
                <Status state={state} />
              </td>
              <td>{kinds[kind] ?? kind}</td>
              <td>
                <Hash value={recipient} />
              </td>
              <td className="r wide">
                <Time at={createdAt} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  )
}
