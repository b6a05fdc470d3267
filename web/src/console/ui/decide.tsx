/** Accepting a payment that waits, and sending it back: what the merchant decides, said before it is done. */
import { Button } from "@mantine/core"
import { useState } from "react"
import { useRight } from "../api/me.ts"
import { later } from "./later.tsx"
import { NoRight } from "./problem.tsx"
import type { Waiting } from "./waiting.ts"

/** The dialog of a decision about one payment or several. */
export const DecideDialog = later(async () => (await import("./decide-dialogs.tsx")).default)

export function Decide({ payment, size = "sm" }: { payment: Waiting; size?: "xs" | "sm" }) {
  const may = useRight("money")
  const [open, setOpen] = useState<"accept" | "return" | undefined>()
  return (
    <span className="row over end" style={{ flexWrap: "nowrap" }}>
      <Button
        size={size}
        disabled={!may}
        title={may ? undefined : "Your role can't do this"}
        onClick={() => setOpen("return")}
      >
        Return
      </Button>
      {payment.acceptable && (
        <Button size={size} disabled={!may} variant="filled" onClick={() => setOpen("accept")}>
          Accept
        </Button>
      )}
      {!may && size === "sm" && <NoRight right="money" />}
      {open && <DecideDialog kind={open} payments={[payment]} close={() => setOpen(undefined)} />}
    </span>
  )
}
