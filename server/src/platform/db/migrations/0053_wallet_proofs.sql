-- The payout wallets that signed when a merchant switched its wallet lock on: refunds out of a wallet are of the merchant that proved it last.
create table wallet_proofs (
  merchant_id text not null references merchants,
  chain_id integer not null,
  address evm_address not null,
  -- A key's address is its own on every network. A contract's signature is good on its network alone.
  by_key boolean not null,
  proven_at timestamptz not null,
  primary key (merchant_id, chain_id, address)
);
create index wallet_proofs_of_address on wallet_proofs (address, proven_at desc);
