/** What few paywalls need: who else it is open to, and what agents get. */
import { Checkbox, Textarea, TextInput } from "@mantine/core"
import type { ReactNode } from "react"
import { MoreFields } from "./more-fields.tsx"
import { ProductInput } from "./product-input.tsx"

interface PaywallForm {
  errors: Record<string, ReactNode>
  // biome-ignore lint/suspicious/noExplicitAny: it is what Mantine's form gives to an input.
  getInputProps: (name: any, options?: { type: "checkbox" }) => any
}

const more = ["subscriptionProductId", "slug", "listed", "contentData"] as const

/** Who else it is open to, and what agents get: the same of a new paywall and of one to be changed. */
export default function MoreOfPaywall({ form, chain }: { form: PaywallForm; chain: string }) {
  return (
    <MoreFields errors={form.errors} of={more}>
      <ProductInput
        label="Open to subscribers of"
        none="Nobody: only who pays here"
        may={each => each.billingInterval !== null && each.chain === chain}
        {...form.getInputProps("subscriptionProductId")}
      />
      <TextInput
        label="Name in its address, for agents"
        description="Agents pay at /api/p/ followed by this name"
        placeholder="weather-report"
        {...form.getInputProps("slug")}
      />
      <Checkbox
        label="List it for agents, where they look for what they can buy"
        {...form.getInputProps("listed", { type: "checkbox" })}
      />
      <Textarea
        label="What an agent gets, as JSON"
        description="At most 64 KB. It is never shown here again; leave this empty to keep it as it is"
        placeholder='{"text":"Sun"}'
        rows={3}
        classNames={{ input: "mono" }}
        {...form.getInputProps("contentData")}
      />
    </MoreFields>
  )
}
