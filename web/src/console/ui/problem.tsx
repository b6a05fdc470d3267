/** What failed, in the server's words, with the id by which its log is found. */
import { Button } from "@mantine/core"
import { Link, useRouterState } from "@tanstack/react-router"
import { failureOf, wordsOf } from "../api/failure.ts"
import { rolesOf } from "../api/me.ts"
import type { Right } from "../api/types.ts"
import { copyText } from "./copy.tsx"
import { clockText } from "./time.tsx"

const titles: Record<string, string> = {
  ROLE_REQUIRED: "Your role does not allow this",
  NOT_FOUND: "There is nothing here",
  TIMEOUT: "This is taking too long",
  OFFLINE: "The server can't be reached",
}

/** What a failure is called where it stands in place of something. */
export const titleOf = (error: unknown): string => titles[failureOf(error).code] ?? "This could not be loaded"

/** In place of what could not be loaded: what failed, and a way on. */
export function Problem({ error, retry }: { error: unknown; retry?: () => void }) {
  const { requestId, code } = failureOf(error)
  const isHome = useRouterState({ select: ({ location }) => location.pathname === "/" })
  return (
    <div className="state" role="alert">
      <h2>{titleOf(error)}</h2>
      <p>
        {wordsOf(error)}
        {code === "ROLE_REQUIRED" && " An owner of the account can change that under Team."}
      </p>
      <div className="row">
        {retry && code !== "ROLE_REQUIRED" && <Button onClick={retry}>Try again</Button>}
        {code === "ROLE_REQUIRED" && (
          <Button component={Link} to={isHome ? "/team" : "/"}>
            {isHome ? "Go to Team" : "Go to Home"}
          </Button>
        )}
        {requestId && <RequestId id={requestId} />}
      </div>
    </div>
  )
}

/** Above what stays while the server does not answer. */
export function Stale({ error, asOf, retry }: { error: unknown; asOf: number; retry: () => void }) {
  const { code, requestId } = failureOf(error)
  // The countdown above the page says it.
  if (code === "RATE_LIMITED") return null
  return (
    <div className="strip wait" role="status">
      <span>
        Not up to date: as of {clockText(asOf)}. {wordsOf(error)}
      </span>
      <span className="row">
        {requestId && <RequestId id={requestId} />}
        <Button size="xs" onClick={retry}>
          Try again
        </Button>
      </span>
    </div>
  )
}

export function RequestId({ id }: { id: string }) {
  return (
    <button
      type="button"
      className="hash"
      title="The server's log has this id (click to copy)"
      onClick={() => copyText(id, "Request id")}
    >
      Request {id}
    </button>
  )
}

/** Beside an action that the person's role does not have. */
export function NoRight({ right }: { right: Right }) {
  return <span className="quiet">The role {rolesOf[right] ?? "owner"} can do this.</span>
}
