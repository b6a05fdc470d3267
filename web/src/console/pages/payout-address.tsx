/** Where the merchant's money goes: the payout address of each network. */
import { TextInput } from "@mantine/core"
import { useQuery } from "@tanstack/react-query"
import { read } from "../api/client.ts"
import { facts } from "../api/facts.ts"
import { retries } from "../api/live.ts"
import type { Settings } from "../api/types.ts"
import { RequestForm } from "../ui/form.tsx"
import { PageHead } from "../ui/page.tsx"
import { Problem } from "../ui/problem.tsx"
import { Time } from "../ui/time.tsx"

const path = "/api/console/settings"

export function PayoutAddress() {
  const query = useQuery({
    queryKey: ["settings"],
    queryFn: ({ signal }) => read<Settings>(path, {}, signal),
    ...retries,
  })
  if (query.error && !query.data) return <Problem error={query.error} retry={() => void query.refetch()} />
  const settings = query.data
  return (
    <div style={{ maxWidth: 640 }}>
      <PageHead title="Where your money goes" request={{ path }} />
      {settings &&
        facts.networks.map(({ network, title }) => {
          const now = (settings.payoutAddresses as Record<string, string | undefined>)[network] ?? ""
          const pending = settings.pendingPayoutAddresses[network] as
            | { address?: string; effectiveAt?: string }
            | undefined
          return (
            <section key={network} className="card pad stack" style={{ marginBottom: 16 }}>
              <h2>{title}</h2>
              {pending?.address && (
                <p className="note wait">
                  <span>
                    It changes to <span className="mono">{pending.address}</span>
                    {pending.effectiveAt && (
                      <>
                        {" "}
                        <Time at={pending.effectiveAt} />
                      </>
                    )}
                    . Change it back before then if that was not you.
                  </span>
                </p>
              )}
              <RequestForm
                first={{ address: now }}
                right="payouts"
                submit="Save"
                done="Saved. A change takes effect after 24 hours."
                request={({ address }) => ({
                  method: "PUT",
                  path,
                  body: { payoutAddresses: { [network]: address.trim() } },
                })}
                fields={form => (
                  <TextInput
                    label="Payout address"
                    description="A wallet of yours on this network. Never an exchange: only its key can empty your receiving addresses."
                    placeholder="0x…"
                    classNames={{ input: "mono" }}
                    {...form.getInputProps("address")}
                  />
                )}
              />
            </section>
          )
        })}
    </div>
  )
}
