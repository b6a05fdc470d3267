/** What a subscription or an invoice says of its product. */
import { useQuery } from "@tanstack/react-query"
import { Link } from "@tanstack/react-router"
import { read } from "../api/client.ts"
import { retries } from "../api/live.ts"
import type { Page, Product } from "../api/types.ts"
import { IdLink } from "./linked.tsx"

/** How often a product or a subscription is paid, as in `every month`; `once` without an interval. */
export const rhythmOf = (each: Pick<Product, "billingInterval" | "billingCount">): string => {
  const { billingInterval: unit, billingCount: count } = each
  return unit === null ? "once" : count === null || count === 1 ? `every ${unit}` : `every ${count} ${unit}s`
}

/** The first hundred products by their ids. */
export const useProducts = () =>
  useQuery({
    queryKey: ["products", "names"],
    queryFn: async ({ signal }) => {
      const { data } = await read<Page<Product>>("/api/console/products", { limit: 100 }, signal)
      return new Map(data.map(each => [each.id, each]))
    },
    staleTime: 60_000,
    ...retries,
  })

/** A product's page, by its name; by its id where the name is not known. */
export function ProductLink({ id }: { id: string }) {
  const product = useProducts().data?.get(id)
  if (!product) return <IdLink to="/products" id={id} />
  return (
    <Link to={`/products/${id}`} className="plain-link" title={id}>
      {product.name}
    </Link>
  )
}
