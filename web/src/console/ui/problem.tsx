/** What failed, in the server's words, with the id by which its log is found. */
import { Button } from "@mantine/core"
import { failureOf } from "../api/failure.ts"
import { rolesOf } from "../api/me.ts"
import type { Right } from "../api/types.ts"
import { copyText } from "./copy.tsx"

/** In place of what could not be loaded. */
export function Problem({ error, retry }: { error: unknown; retry?: () => void }) {
  const { message, requestId, code } = failureOf(error)
  const title =
    code === "ROLE_REQUIRED"
      ? "Your role does not allow this"
      : code === "NOT_FOUND"
        ? "There is nothing here"
        : "This could not be loaded"
  return (
    <div className="state" role="alert">
      <h2>{title}</h2>
      <p>{message}</p>
      <div className="row">
        {retry && code !== "ROLE_REQUIRED" && <Button onClick={retry}>Try again</Button>}
        {requestId && <RequestId id={requestId} />}
      </div>
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
