/** The contracts of the sandbox's chain: a token, the deposit factory, the escrow, a sanctions list and Multicall3. */
import { encodeDeployData, getContractAddress, type Hex, parseUnits } from "viem"
import type { PrivateKeyAccount } from "viem/accounts"
import { factoryDeployment } from "../../ledger/deposits/factory-deployment.ts"
import {
  authCaptureEscrowBytecode,
  erc3009CollectorAbi,
  erc3009CollectorBytecode,
  multicall3Abi,
  multicall3Bytecode,
  sanctionsListAbi,
  sanctionsListBytecode,
  testUsdcAbi,
  testUsdcBytecode,
} from "../../platform/chain/abi.ts"
import { batchDeployment } from "../../platform/chain/authorization-batch.ts"
import { create2Deployment } from "../../platform/chain/create2.ts"
import type { EscrowDeployment } from "../../platform/chain/escrow-deployments.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { MULTICALL3 } from "../../platform/chain/multicall.ts"
import { anchorDeployment } from "../../platform/chain/receipt-anchor.ts"
import { refundCollectorDeployment } from "../../platform/chain/refund-collector.ts"
import type { ChainClient } from "./chain-client.ts"

/** The gas money, in wei, for each account that pays for gas. */
export const GAS_MONEY = parseUnits("100", 18)

/** The addresses of the contracts. */
export interface Contracts {
  token: Address
  depositFactory: Address
  sanctionsOracle: Address
  escrow: EscrowDeployment & { refundCollector: Address }
}

/** The accounts that have rights in the contracts. */
interface Parties {
  guardian: Hex
  /** The account that releases money out of deposits. */
  operator: Hex
  /** The account that operates the escrow. */
  relay: Hex
}

/**
 * Deploys what is missing. The token, Multicall3 and the sanctions list use the deployer's first nonces; the others
 * use the CREATE2 deployer.
 */
export async function deployContracts(
  wallet: ChainClient,
  deployer: PrivateKeyAccount,
  { guardian, operator, relay }: Parties,
): Promise<Contracts> {
  await wallet.setBalance({ address: deployer.address, value: GAS_MONEY })
  const common = { account: deployer, chain: null }
  const place = async (nonce: number, deploy: () => Promise<Hex>): Promise<Address> => {
    const address = getContractAddress({ from: deployer.address, nonce: BigInt(nonce) })
    if ((await wallet.getCode({ address })) === undefined)
      await wallet.waitForTransactionReceipt({ hash: await deploy() })
    return address.toLowerCase() as Address
  }
  /** Deploys through the shared deployer, as on a public network. */
  const placeShared = async ({ address, ...deployment }: { to: Address; data: Hex; address: Address }) => {
    if ((await wallet.getCode({ address })) === undefined)
      await wallet.waitForTransactionReceipt({ hash: await wallet.sendTransaction({ ...common, ...deployment }) })
    return address
  }
  const token = await place(0, () =>
    wallet.deployContract({ ...common, abi: testUsdcAbi, bytecode: testUsdcBytecode, args: [], nonce: 0 }),
  )
  // On a new chain, this deployment takes nonce 1.
  const depositFactory = await placeShared(factoryDeployment({ guardian, operator }))
  const multicall3 = await place(2, () =>
    wallet.deployContract({ ...common, abi: multicall3Abi, bytecode: multicall3Bytecode, nonce: 2 }),
  )
  const sanctionsOracle = await place(3, () =>
    wallet.deployContract({ ...common, abi: sanctionsListAbi, bytecode: sanctionsListBytecode, args: [], nonce: 3 }),
  )
  // On public networks, a pre-signed transaction deploys Multicall3 at this address; here its code is set directly.
  await wallet.setCode({ address: MULTICALL3, bytecode: (await wallet.getCode({ address: multicall3 })) ?? "0x" })
  const escrow = await placeEscrow(placeShared, relay)
  await placeShared(batchDeployment)
  await placeShared(anchorDeployment)
  return { token, depositFactory, sanctionsOracle, escrow }
}

/**
 * Deploys the escrow with v1.1's interface, and its collectors. These don't depend on nonces, because on a chain from
 * an older version the next ones are already used.
 */
async function placeEscrow(
  place: (deployment: ReturnType<typeof create2Deployment>) => Promise<Address>,
  operator: Hex,
): Promise<Contracts["escrow"]> {
  const address = await place(create2Deployment(authCaptureEscrowBytecode))
  const collector = await place(
    create2Deployment(
      encodeDeployData({ abi: erc3009CollectorAbi, bytecode: erc3009CollectorBytecode, args: [address] }),
    ),
  )
  const refundCollector = await place(refundCollectorDeployment({ escrow: address, operator }))
  return { address, version: "v1.1", collector, refundCollector }
}
