-- 13_escrows

create table escrows (
  session_id text primary key references checkout_sessions,
  merchant_id text not null references merchants,
  chain_id integer not null,
  token evm_address not null,
  escrow evm_address not null,
  version text not null check (version in ('v1.0', 'v1.1')),
  collector evm_address not null,
  refund_collector evm_address,
  operator evm_address not null,
  receiver evm_address not null,
  max_amount base_units not null check (max_amount > 0),
  pre_approval_expiry timestamptz not null,
  authorization_expiry timestamptz not null,
  refund_expiry timestamptz not null,
  void_at timestamptz not null,
  salt evm_hash not null,
  nonce evm_hash not null,
  payer evm_address,
  auth_id evm_hash unique,
  authorized base_units not null default 0,
  captured base_units not null default 0,
  voided base_units not null default 0,
  refunded base_units not null default 0,
  reclaimed base_units not null default 0,
  authorized_at timestamptz,
  voided_at timestamptz,
  run_at timestamptz,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  reclaimed_at timestamptz,
  failed_rounds integer not null default 0,
  unique (chain_id, escrow, nonce),
  constraint escrows_check check (pre_approval_expiry <= authorization_expiry and authorization_expiry <= refund_expiry),
  constraint escrows_check1 check (void_at < authorization_expiry),
  constraint escrows_check2 check ((payer is null) = (auth_id is null)),
  constraint escrows_check3 check ((captured + voided + reclaimed) <= authorized),
  constraint escrows_check4 check (refunded <= captured),
  constraint escrows_check5 check (authorized = 0 or payer is not null)
);
comment on table escrows is
  'The escrow of a checkout session: its terms, and the sums of its calls (`payouts.escrow_id`) in base units. The '
  'payer signs the hash of the terms, so they never change.';
comment on column escrows.escrow is 'The contract of the network when the session was made.';
comment on column escrows.operator is 'The relay wallet: only it may call the escrow for this session.';
comment on column escrows.receiver is 'The merchant''s payout address when the session was made.';
comment on column escrows.pre_approval_expiry is 'In whole seconds, like the two other expiries.';
comment on column escrows.void_at is 'When the uncaptured rest goes back to the payer.';
comment on column escrows.nonce is 'What the payer signs: the hash of the terms, with the payer zero.';
comment on column escrows.payer is 'Null until a reservation is written, and again when it ended without money.';
comment on column escrows.authorized is 'The sum of the calls in base units, as are captured, voided and refunded.';
comment on column escrows.reclaimed is 'What the payer took back without the service.';
comment on column escrows.run_at is 'When it is computed next; null while nothing can change without a call.';
comment on column escrows.reclaimed_at is 'When `reclaimed` was first known; set by a trigger.';
comment on column escrows.failed_rounds is 'Failed rounds since the last that advanced it.';
create index escrows_due on escrows (run_at) where run_at is not null;
create index escrows_failing on escrows (chain_id) where failed_rounds >= 3;
-- The order of the merchant's list, so that a page reads no more than its rows.
create index escrows_listed on escrows (merchant_id, authorized_at desc, session_id desc) where authorized > 0;
create index escrows_of_merchant on escrows (merchant_id, escrow);
create index escrows_paid on escrows (chain_id, session_id) where auth_id is not null;
create index escrows_reclaimed on escrows (merchant_id, reclaimed_at desc, session_id desc) where reclaimed > 0;
-- Each check of the alarms asks for reserved money that obeys an earlier relay wallet.
create index escrows_reserved on escrows (chain_id) where authorized > captured + voided + reclaimed;

create table counted_calls (
  payout_id uuid primary key references payouts,
  block_hash evm_hash not null
);
comment on table counted_calls is
  'A call of an escrow that was deep enough to count while it was in this block. After a reorg, a call that is still '
  'in its block counts as before.';

create table refunds (
  id text primary key check (starts_with(id, 're_')),
  session_id text not null references escrows,
  merchant_id text not null references merchants,
  amount base_units not null check (amount > 0),
  reason text check (char_length(reason) between 1 and 500),
  payout_id uuid not null unique references payouts,
  status text not null default 'pending' check (status in ('pending', 'succeeded', 'failed')),
  notified_at timestamptz,
  created_at timestamptz not null,
  updated_at timestamptz not null
);
comment on table refunds is
  'Money that goes back from a merchant''s wallet to a payer: one call of an escrow. If the call fails finally, so '
  'does the refund.';
comment on column refunds.reason is 'The merchant''s own words.';
comment on column refunds.status is 'The state on chain: a reorg turns `succeeded` back into `pending`.';
comment on column refunds.notified_at is 'When its merchant was notified: once, whatever a reorg does afterwards.';
create index refunds_of_merchant on refunds (merchant_id, created_at desc, id desc);
create index refunds_of_session on refunds (session_id);

alter table payouts add foreign key (escrow_id) references escrows(session_id);

create function set_reclaimed() returns trigger language plpgsql as $$
begin
  new.reclaimed_at := case when new.reclaimed > 0 then coalesce(old.reclaimed_at, new.updated_at) end;
  return new;
end $$;

create trigger escrows_set_reclaimed before update of reclaimed on escrows for each row execute function set_reclaimed();
