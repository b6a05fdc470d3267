/** The deposit contracts with one check taken out of each, to show that the property tests would notice. Pure. */
import type { Kind } from "./deposit-steps.ts"

/** One check that is missing. */
export interface Mutant {
  /** The calls that would notice it soonest. */
  kind: Kind
  /** The check that is missing. */
  without: string
  file?: "Deposit.sol"
  /** A text that the source has once, and what is there instead. */
  change: readonly [string, string]
}

const FACTORY = "DepositFactory.sol"
const refusals = (kind: Kind, conditions: Record<string, string>): Mutant[] =>
  Object.entries(conditions).map(([without, condition]) => ({
    kind,
    without,
    change: [condition, condition.replace(/\) revert$/, " && false) revert")],
  }))

const USE_THEN_SEND = `isUsed[address(deposit)][nonce] = true;
        emit GivenBack(address(deposit), address(token), to, amount, nonce);
        _send(deposit, token, to, amount);`

/** One for each check. */
export const MUTANTS: readonly Mutant[] = [
  ...refusals("rule", {
    "a guardian": "if (guardian_ == address(0)) revert",
    "an operator": "if (next == address(0)) revert",
    "the guardian's key": "if (msg.sender != guardian) revert",
  }),
  ...refusals("release", {
    "the committed payees": "if (keccak256(abi.encode(payees, percentsE4)) != terms.payeesHash) revert",
    "a payee as recipient": "if (!_includes(payees, to)) revert",
  }),
  ...refusals("giveBack", {
    "the deadline": "if (block.timestamp > deadline) revert",
    "the nonce": "if (isUsed[address(deposit)][nonce]) revert",
    "zero as no recipient": "if (to == address(0)) revert",
    "the deposit as no recipient": "if (to == address(deposit)) revert",
    "the factory as no recipient": "if (to == address(this)) revert",
    "the token as no recipient": "if (to == address(token)) revert",
  }),
  ...refusals("recover", { "the opening time": "if (block.timestamp <= terms.openAfter) revert" }),
  {
    kind: "giveBack",
    without: "the signature",
    change: ["digest, signature)) {", "digest, signature) && false) {"],
  },
  {
    kind: "release",
    without: "the operator's key",
    change: ["        _checkOperator();\n        if (to", "        if (to"],
  },
  {
    kind: "byOperator",
    without: "the operator's key where the factory approves",
    change: ["            _checkOperator();\n        } else", "        } else"],
  },
  {
    kind: "byOperator",
    without: "the pause where the factory approves",
    change: ["            _requireNotPaused();\n", ""],
  },
  {
    kind: "giveBack",
    without: "a signature where the factory does not approve",
    change: ["if (approver == address(this)) {", "if (approver == address(this) || msg.sender == operator) {"],
  },
  {
    kind: "byOperator",
    without: "the operator's own call where the factory approves: a signature would do",
    change: [
      "            _checkOperator();\n        } else",
      "if (!SignatureChecker.isValidSignatureNowCalldata(operator, digest, signature)) _checkOperator(); } else",
    ],
  },
  { kind: "rule", without: "the pause", change: ["external whenNotPaused {", "external {"] },
  {
    kind: "release",
    without: "payees other than the operator's own",
    change: ["if (to != terms.owner) {", "if (to != msg.sender && to != terms.owner) {"],
  },
  {
    kind: "recover",
    without: "the last second before the opening",
    change: ["block.timestamp <= terms.openAfter", "block.timestamp < terms.openAfter"],
  },
  {
    kind: "giveBack",
    without: "the last second of a signature",
    change: ["block.timestamp > deadline", "block.timestamp >= deadline"],
  },
  { kind: "giveBack", without: "the nonce's use", change: ["isUsed[address(deposit)][nonce] = true;", ""] },
  {
    kind: "giveBack",
    without: "the nonce's use before the transfer",
    change: [USE_THEN_SEND, USE_THEN_SEND.split("\n").toReversed().join("\n")],
  },
  {
    kind: "giveBack",
    without: "a deposit of the nonce's own",
    change: ["isUsed[address(deposit)][nonce] = true", "isUsed[address(0)][nonce] = true"],
  },
  {
    kind: "recover",
    without: "the owner as who recovers",
    change: ["_send(deposit, token, terms.owner, token", "_send(deposit, token, msg.sender, token"],
  },
  {
    kind: "recover",
    without: "the owner of ether",
    change: ["sendEther(payable(terms.owner))", "sendEther(payable(msg.sender))"],
  },
  {
    kind: "recover",
    without: "the recipient of ether",
    change: ["            _checkRecipient(deposit, token, terms.owner);\n", ""],
  },
  {
    kind: "rule",
    without: "pausing by the guardian alone",
    change: ["function pause() external onlyGuardian", "function pause() external"],
  },
  {
    kind: "rule",
    without: "unpausing by the guardian alone",
    change: ["function unpause() external onlyGuardian", "function unpause() external"],
  },
  {
    kind: "rule",
    without: "the guardian's word for an operator",
    change: ["address next) external onlyGuardian", "address next) external"],
  },
  {
    kind: "release",
    without: "terms in the address",
    change: [
      "keccak256(abi.encode(salt, terms))",
      "keccak256(abi.encode(salt, terms.owner, terms.approver, terms.payeesHash))",
    ],
  },
  {
    kind: "direct",
    without: "the factory's word for tokens",
    file: "Deposit.sol",
    change: ["uint256 amount) external onlyFactory", "uint256 amount) external"],
  },
  {
    kind: "direct",
    without: "the factory's word for ether",
    file: "Deposit.sol",
    change: ["payable to) external onlyFactory", "payable to) external"],
  },
  {
    kind: "release",
    without: "heed of a transfer that fails",
    file: "Deposit.sol",
    change: ["token.safeTransfer(to, amount)", "token.trySafeTransfer(to, amount)"],
  },
]

const SEEDS: Record<string, number> = {
  "the committed payees": 9,
  "a payee as recipient": 2,
  "the nonce": 7,
  "the deposit as no recipient": 7,
  "the operator's key": 3,
  "the pause where the factory approves": 4,
  "payees other than the operator's own": 2,
  "the last second of a signature": 2,
  "the nonce's use": 7,
  "the nonce's use before the transfer": 7,
  "a deposit of the nonce's own": 7,
  "unpausing by the guardian alone": 3,
}

/** The seed of the attacks: one whose first attack notices the mutant, found by trying. With any other it takes a few of forty. */
export const seedOf = ({ without }: Mutant): number => SEEDS[without] ?? 1

/** The sources of all mutants, each pair in a folder named by its number; throws where a text is not found just once. */
export function mutantSources(sources: Record<string, string>): Record<string, string> {
  const mutated = MUTANTS.flatMap(({ without, file = FACTORY, change: [from, to] }, i) =>
    [FACTORY, "Deposit.sol"].map((name): [string, string] => {
      const source = sources[name] ?? ""
      if (name !== file) return [`${i}/${name}`, source]
      const parts = source.split(from)
      if (parts.length !== 2) throw new Error(`${without}: the source has the text ${parts.length - 1} times`)
      return [`${i}/${name}`, parts.join(to)]
    }),
  )
  return Object.fromEntries(mutated)
}
