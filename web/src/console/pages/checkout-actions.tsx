/** What can be done with one checkout. */
import { Button } from "@mantine/core"
import { useNavigate } from "@tanstack/react-router"
import { useRight } from "../api/me.ts"
import type { Checkout } from "../api/types.ts"
import { copyText } from "../ui/copy.tsx"
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
        onClick={() =>
          confirm("Close this checkout? Its page then says that it is over.") &&
          close.mutate(
            { method: "DELETE", path: `/api/console/checkouts/${checkout.id}` },
            { onSuccess: () => void navigate({ to: "/checkouts" }) },
          )
        }
      >
        Close it
      </Button>
      <Button variant="filled" onClick={() => copyText(checkout.url, "Address")}>
        Copy the payer's address
      </Button>
    </>
  )
}
