/** What can be done with one checkout. */
import { Button } from "@mantine/core"
import { useNavigate } from "@tanstack/react-router"
import { useRight } from "../api/me.ts"
import type { Checkout } from "../api/types.ts"
import { copyText } from "../ui/copy.tsx"
import { isSure } from "../ui/sure.ts"
import { useAct } from "../ui/use-act.ts"

export function CheckoutActions({ checkout }: { checkout: Checkout }) {
  const may = useRight("catalog")
  const navigate = useNavigate()
  const close = useAct({ done: "The checkout is closed: nobody can pay it now" })
  if (checkout.status !== "pending") return null
  return (
    <>
      <Button
        disabled={!may}
        loading={close.isPending}
        onClick={async () => {
          const words = "Nobody can pay the checkout then, and its page says that it has ended."
          if (!(await isSure({ title: "Close this checkout?", words, yes: "Close it" }))) return
          close.mutate(
            { method: "DELETE", path: `/api/console/checkouts/${checkout.id}` },
            { onSuccess: () => void navigate({ to: "/checkouts" }) },
          )
        }}
      >
        Close it
      </Button>
      <Button variant="filled" onClick={() => copyText(checkout.url, "Address")}>
        Copy the payer's address
      </Button>
    </>
  )
}
