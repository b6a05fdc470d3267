-- Escrow: a session whose money is reserved first (authorize), and captured, voided or refunded later, in a contract that the
-- payer's signature names. Every call of that contract is a payout; how a session stands is the fold of its calls.
--
-- Locks: `checkout_sessions` and `payouts` against reads and writes until all migrations of this start are committed. Every row of
-- both is read once, for the constraints.

-- `direct`: the merchant owns what was paid. `manual`, `automatic`: it is reserved first, and captured by the merchant or at once.
alter table checkout_sessions add column capture text not null default 'direct'
  check (capture in ('direct', 'manual', 'automatic'));
alter table checkout_sessions drop constraint checkout_sessions_status_check;
alter table checkout_sessions add constraint checkout_sessions_status_check check (status in
  ('pending', 'verifying', 'authorized', 'confirmed', 'voided', 'partially_refunded', 'refunded', 'failed', 'expired'));
alter table checkout_sessions drop constraint checkout_sessions_check;
alter table checkout_sessions add constraint checkout_sessions_paid
  check (status not in ('confirmed', 'partially_refunded', 'refunded') or (confirmed_at is not null and tx_hash is not null));
-- Such a session has no address: settling never looks at it.
alter table checkout_sessions add constraint checkout_sessions_escrow check (capture = 'direct' or run_at is null);
alter table checkout_sessions add constraint checkout_sessions_direct
  check (capture <> 'direct' or status in ('pending', 'verifying', 'confirmed', 'failed', 'expired'));

create table escrows (
  session_id text primary key references checkout_sessions,
  merchant_id text not null references merchants,
  chain_id integer not null,
  token evm_address not null,
  -- The contracts of the network when the session was made, and the relay wallet of that time: it alone may call them.
  escrow evm_address not null,
  version text not null check (version in ('v1.0', 'v1.1')),
  collector evm_address not null,
  refund_collector evm_address,
  operator evm_address not null,
  -- The merchant's payout address of that time: what is captured goes there, and refunds come from there.
  receiver evm_address not null,
  max_amount base_units not null check (max_amount > 0),
  -- Reserved before the first, captured before the second, refunded before the third; in whole seconds.
  pre_approval_expiry timestamptz not null,
  authorization_expiry timestamptz not null,
  refund_expiry timestamptz not null,
  -- When what is not captured goes back to the payer.
  void_at timestamptz not null,
  salt evm_hash not null,
  -- What the payer signs: the hash of all of the above with the payer zero.
  nonce evm_hash not null,
  -- Whose signature is being carried out or was, and the payment's id on chain.
  payer evm_address,
  auth_id evm_hash unique,
  -- What the calls come to, in base units.
  authorized base_units not null default 0,
  captured base_units not null default 0,
  voided base_units not null default 0,
  refunded base_units not null default 0,
  -- What the payer took back itself after the authorization ended; a fact of the chain, and of no call of ours.
  reclaimed base_units not null default 0,
  authorized_at timestamptz,
  voided_at timestamptz,
  -- When it is looked at next; null while nothing can change by itself.
  run_at timestamptz,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  unique (chain_id, escrow, nonce),
  check (pre_approval_expiry <= authorization_expiry and authorization_expiry <= refund_expiry),
  check (void_at < authorization_expiry),
  check ((payer is null) = (auth_id is null)),
  check (captured + voided + reclaimed <= authorized),
  check (refunded <= captured),
  check (authorized = 0 or payer is not null)
);
create index escrows_due on escrows (run_at) where run_at is not null;

alter table payouts add column escrow_id text references escrows;
create index payouts_of_escrow on payouts (escrow_id) where escrow_id is not null;
alter table payouts drop constraint payouts_kind_check;
alter table payouts add constraint payouts_kind_check
  check (kind in ('share', 'sweep', 'return', 'authorize', 'settle', 'reserve', 'capture', 'void', 'refund'));
alter table payouts add constraint payouts_escrow check ((escrow_id is not null) = (kind in ('reserve', 'capture', 'void', 'refund')));
alter table payouts drop constraint payouts_deposit;
alter table payouts add constraint payouts_deposit check (deposit_id is not null or kind = 'settle' or escrow_id is not null);
alter table payouts drop constraint payouts_lane;
alter table payouts add constraint payouts_lane check (lane =
  case when kind in ('authorize', 'settle', 'reserve', 'capture', 'void', 'refund') then 'relay' else 'payout' end);
create or replace function set_lane() returns trigger language plpgsql as $$
begin
  new.lane := case when new.kind in ('authorize', 'settle', 'reserve', 'capture', 'void', 'refund')
    then 'relay' else 'payout' end;
  return new;
end $$;
-- Every call of the relay lane has a time by which it must be signed; those that carry out a signature have the signature.
alter table payouts drop constraint payouts_relay_whole;
alter table payouts add constraint payouts_relay_whole check ((lane = 'relay') = (relay_by is not null)
  and (kind in ('authorize', 'settle', 'reserve')) = (payer is not null)
  and num_nonnulls(payer, auth_nonce, auth_digest) in (0, 3));
-- One reservation and one void at a time. Captures and refunds add up.
create unique index payouts_one_reserve on payouts (escrow_id)
  where kind = 'reserve' and state in ('queued', 'held', 'assigned', 'mined', 'final');
create unique index payouts_one_void on payouts (escrow_id)
  where kind = 'void' and state in ('queued', 'held', 'assigned', 'mined', 'final');

-- Whatever happens to a call on chain, or ends it, its escrow is looked at. A call that is signed changes nothing yet: the wallet
-- is locked then, and nobody may wait for an escrow meanwhile.
create function wake_escrow() returns trigger language plpgsql as $$
begin
  update escrows set run_at = new.updated_at where session_id = new.escrow_id;
  return null;
end $$;
create trigger payouts_wake_escrow after update on payouts for each row
  when (new.escrow_id is not null and (old.state = 'mined' or new.state in ('mined', 'final', 'reverted', 'cancelled'))
    and (new.state, new.block_hash, new.succeeded) is distinct from (old.state, old.block_hash, old.succeeded))
  execute function wake_escrow();
