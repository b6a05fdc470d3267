/** Finds the name of a contract's error in a node's message about a failed call. Pure. */
import { decodeErrorResult, type Hex, parseAbiItem } from "viem"
import {
  authCaptureEscrowAbi,
  authCaptureEscrowV10Abi,
  depositFactoryAbi,
  erc3009CollectorAbi,
  refundCollectorAbi,
} from "./abi.ts"

/** The errors of the factory, of the escrow in both versions with its collectors, and of 0G's contract. */
const abi = [
  parseAbiItem("error NotEnoughFee(uint256 price, uint256 sectors, uint256 paid)"),
  ...depositFactoryAbi,
  ...authCaptureEscrowAbi,
  ...authCaptureEscrowV10Abi,
  ...erc3009CollectorAbi,
  ...refundCollectorAbi,
].filter(each => each.type === "error")

/**
 * Returns a node's message, preceded by the name of the error that the revert's data encodes, if it is one of our
 * contracts' errors. Nodes report the data in the message or in a separate field.
 *
 * @example withRevertName("execution reverted", "0xf80dbaea…") // "Expired(1790000000): execution reverted"
 */
export function withRevertName(message: string, data: string | undefined): string {
  const named = [data, ...(message.match(/0x[0-9a-f]{8,}/gi) ?? [])].map(nameOf).find(name => name !== undefined)
  return named === undefined || message.includes(named) ? message : `${named}: ${message}`
}

function nameOf(data: string | undefined): string | undefined {
  if (data === undefined || !/^0x[0-9a-f]{8,}$/i.test(data)) return undefined
  try {
    const { errorName, args = [], abiItem } = decodeErrorResult({ abi, data: data as Hex })
    // The text of a revert, if any, is already in the message.
    return abiItem.type === "error" && abi.some(each => each.name === errorName)
      ? `${errorName}(${args.map(String).join(", ")})`
      : undefined
  } catch {
    return undefined
  }
}
