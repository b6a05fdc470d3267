/** One of the merchant's products, such as that whose subscribers a paywall is open to. */
import { NativeSelect, type NativeSelectProps } from "@mantine/core"
import { useQuery } from "@tanstack/react-query"
import { read } from "../api/client.ts"
import { retries } from "../api/live.ts"
import type { Page, Product } from "../api/types.ts"

interface Given extends NativeSelectProps {
  /** Which of them can be chosen. */
  may: (product: Product) => boolean
  /** What no choice means. */
  none: string
}

/** Nothing where there is no such product. The first hundred. */
export function ProductInput({ may, none, ...props }: Given) {
  const { data } = useQuery({
    queryKey: ["products", "choices"],
    queryFn: ({ signal }) => read<Page<Product>>("/api/console/products", { limit: 100, active: true }, signal),
    staleTime: 30_000,
    ...retries,
  })
  const choices = data?.data.filter(may) ?? []
  if (choices.length === 0) return null
  return (
    <NativeSelect
      data={[
        { value: "", label: none },
        ...choices.map(({ id, name, price, currency }) => ({ value: id, label: `${name}, ${price} ${currency}` })),
      ]}
      {...props}
    />
  )
}
