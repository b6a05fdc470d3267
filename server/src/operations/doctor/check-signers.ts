/** Checks the remote signers: they must answer, be allowed to sign, and sign for the configured wallets. */
// I/O: has each signer sign a test message, including before the service starts, when there is no context.
import { SignerError } from "../../platform/chain/signer.ts"
import { trySigner } from "../../platform/chain/signers/remote-signer.ts"
import type { Settings } from "../../platform/config/settings.ts"
import { type Finding, fine } from "./finding.ts"

/** The findings about each remote signer; there are none about a key in this process. */
export async function checkSigners(
  { payoutSigner, relaySigner, storageSigner }: Pick<Settings, "payoutSigner" | "relaySigner" | "storageSigner">,
  signal: AbortSignal,
): Promise<Finding[]> {
  const signers = [
    { lane: "payout", setting: "PAYOUT_SIGNER", signer: payoutSigner },
    { lane: "relay", setting: "RELAY_SIGNER", signer: relaySigner },
    { lane: "storage", setting: "ZEROG_SIGNER", signer: storageSigner },
  ]
  const found = signers.map(async ({ lane, setting, signer }): Promise<Finding[]> => {
    if (!signer?.remote) return []
    const part = "secrets"
    const check = `${lane}_signer`
    const error = await trySigner(signer, signal).then(
      () => undefined,
      (error: unknown) => error,
    )
    if (error === undefined) return [fine(part, check, `the ${lane} wallet's signer answers, and signs for the wallet`)]
    const isWrong = error instanceof SignerError && error.isWrong
    const words = error instanceof Error ? error.message : "failed"
    return [
      {
        part,
        check,
        level: "alarm",
        message: isWrong
          ? `the ${lane} wallet's signer does not sign for the wallet, so its transactions wait`
          : `the ${lane} wallet's signer does not sign, so its transactions wait`,
        todo: `It ${words}. docs/operators/operations.md ("Keys in a KMS") says what ${signer.remote} needs; check ${setting}.`,
      },
    ]
  })
  return (await Promise.all(found)).flat()
}
