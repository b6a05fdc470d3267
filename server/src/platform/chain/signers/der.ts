/** The form in which a KMS writes a signature. Pure. */
import { fromDerBytes } from "ox/Signature"
import { type SignatureNumbers, SignerError } from "../signer.ts"

/**
 * Reads a signature's numbers; throws a {@link SignerError} for anything but strict DER: no trailing bytes, superfluous
 * zeros or negative numbers.
 */
export function numbersOfDer(bytes: Uint8Array): SignatureNumbers {
  try {
    const { r, s } = fromDerBytes(Uint8Array.from(bytes))
    return { r, s }
  } catch (cause) {
    throw new SignerError("answered with something that is not a signature", { isWrong: true, cause })
  }
}
