/** Which split what is sold is divided by. */
import { NativeSelect, type NativeSelectProps } from "@mantine/core"
import { useQuery } from "@tanstack/react-query"
import { read } from "../api/client.ts"
import { retries } from "../api/live.ts"
import { useRight } from "../api/me.ts"
import type { Page, SplitListed } from "../api/types.ts"

/** Nothing where there is no split, or the person may not attach one. */
export function SplitInput(props: NativeSelectProps) {
  const may = useRight("payouts")
  const { data } = useQuery({
    queryKey: ["splits", "choices"],
    queryFn: ({ signal }) => read<Page<SplitListed>>("/api/console/splits", { limit: 100 }, signal),
    enabled: may,
    staleTime: 30_000,
    ...retries,
  })
  if (!data || data.data.length === 0) return null
  return (
    <NativeSelect
      label="Split"
      description="Divides each payment among its recipients"
      data={[{ value: "", label: "None" }, ...data.data.map(({ id, name }) => ({ value: id, label: name }))]}
      {...props}
    />
  )
}
