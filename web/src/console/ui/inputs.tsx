/** Fields that several forms have. */
import { NativeSelect, type NativeSelectProps, TextInput, type TextInputProps } from "@mantine/core"
import { facts } from "../api/facts.ts"

/** An amount in whole tokens, with the token's name at its end. Text to the last: no digit is lost. */
export function AmountInput({ chain, ...props }: TextInputProps & { chain?: string }) {
  const network = facts.networks.find(each => each.network === chain) ?? facts.networks[0]
  return (
    <TextInput
      inputMode="decimal"
      placeholder="0.00"
      autoComplete="off"
      size="lg"
      classNames={{ input: "num strong" }}
      rightSectionWidth={72}
      rightSection={<span className="quiet">{network?.token.symbol}</span>}
      {...props}
    />
  )
}

/** Only where there is a choice. */
export function NetworkInput(props: NativeSelectProps) {
  if (facts.networks.length < 2) return null
  const data = facts.networks.map(({ network, title }) => ({ value: network, label: title }))
  return <NativeSelect label="Network" data={data} {...props} />
}
