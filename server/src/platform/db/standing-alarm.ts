/** Alarms of a wallet that stay active until their cause no longer exists. */
export type StandingAlarm =
  | "low_gas"
  | "gas_warning"
  | "fee_cap"
  | "rpc_unavailable"
  | "gas_total"
  | "transfer"
  | "stuck"
  | "given_up"
  | "unswept"
  | "signer"
