-- Payments, and what they are made of.

create table submissions (
  id bigint generated always as identity primary key,
  chain_id integer not null,
  tx_hash evm_hash not null,
  address evm_address,
  status text not null check (status in ('verifying', 'granted', 'failed', 'reversed')),
  reason text check (reason in ('reverted', 'no_transfer', 'wrong_recipient', 'wrong_sender', 'wrong_asset', 'underpaid', 'already_used', 'not_found', 'sanctioned', 'late')),
  message text not null,
  block_number bigint,
  attempts integer not null default 0,
  run_at timestamptz,
  submitted_at timestamptz not null,
  updated_at timestamptz not null,
  resource_id text not null,
  by_sender boolean not null,
  traceparent text,
  constraint submissions_check check ((status = 'failed') = (reason is not null)),
  constraint submissions_sender check (not by_sender or address is not null),
  constraint submissions_resource foreign key (resource_id) references resources(id)
);
comment on table submissions is
  'Transactions that buyers say they paid with: hints that find a transfer sooner, never evidence.';
comment on column submissions.address is 'The claimed payer; null if a checkout does not know it.';
comment on column submissions.run_at is
  'When its receipt is asked for next; null: its transfers, or its end, are known.';
comment on column submissions.by_sender is
  'Whether only a transfer from `address` answers it; otherwise a transfer from anyone does.';
create index submissions_due on submissions (chain_id, run_at) where run_at is not null;
create unique index submissions_of_anybody on submissions (resource_id, tx_hash) where not by_sender;
create index submissions_of_hash on submissions (chain_id, tx_hash);
create index submissions_of_resource on submissions (resource_id, address, tx_hash);
create unique index submissions_of_sender on submissions (resource_id, tx_hash, address) where by_sender;
-- What a round reads, however many have ended.
create index submissions_open on submissions (chain_id, tx_hash)
  where status = 'verifying' or (status = 'failed' and reason = 'not_found');
create index submissions_verifying on submissions (resource_id, address) where status = 'verifying';

create table payments (
  id text primary key,
  chain_id integer not null,
  payer evm_address not null,
  amount base_units not null,
  tx_hash evm_hash not null,
  status text not null check (status in ('granted', 'reversed', 'open', 'returned')),
  created_at timestamptz not null,
  updated_at timestamptz not null,
  merchant_id text not null,
  exception text check (exception in ('underpaid', 'overpaid', 'late', 'duplicate', 'wrong_asset', 'sanctioned', 'no_buyer')),
  sweep_at timestamptz,
  notify_by timestamptz,
  token evm_address not null,
  deposit_id bigint references deposits,
  accepted_at timestamptz,
  beside boolean not null default false,
  returned_at timestamptz,
  returned_to evm_address,
  notified_paid boolean not null default false,
  event_sequence integer not null default 0,
  resource_id text not null,
  agent boolean not null default false,
  traceparent text,
  reopened boolean not null default false,
  constraint payments_accepted check (accepted_at is null or status in ('granted', 'reversed')),
  constraint payments_beside check (not beside or accepted_at is not null),
  constraint payments_open_why check (status not in ('open', 'returned') or exception is not null and deposit_id is not null),
  constraint payments_returned check ((status = 'returned') = (returned_at is not null) and (returned_at is null) = (returned_to is null)),
  constraint payments_resource foreign key (resource_id, merchant_id, chain_id) references resources(id, merchant_id, chain_id)
);
comment on table payments is
  'A price that was paid, or money that waits for a decision. It is reversed if a reorg removes a transfer of it, '
  'and granted again if the transfer comes back.';
comment on column payments.sweep_at is 'When a sweep takes what no sweep has taken yet.';
comment on column payments.notify_by is
  'Until when the merchant''s event waits for the shares; null: it is notified, or does not wait.';
comment on column payments.token is 'The token that was sent, which may be another than the network''s.';
comment on column payments.deposit_id is 'The deposit with the money of a payment that is, or was, open.';
comment on column payments.accepted_at is 'When the merchant accepted it as paid.';
comment on column payments.beside is 'Accepted when the session was already paid by another payment.';
comment on column payments.returned_at is 'When the merchant returned it; `returned_to` is the address.';
comment on column payments.notified_paid is
  'Whether the newest event about it says that it was paid: then a reversal is an event too.';
comment on column payments.event_sequence is 'Numbers its events, which may arrive in another order.';
comment on column payments.agent is 'Set by the database: an agent''s authorization paid it (x402).';
comment on column payments.reopened is
  'Set by the database: a return failed or was cancelled; the merchant must be notified that the payment is open.';
create index payments_exceptional on payments (merchant_id, created_at desc, id desc) where exception is not null;
create index payments_of_deposit on payments (deposit_id, token);
create index payments_of_exception on payments (merchant_id, exception, created_at desc, id desc)
  where exception is not null;
create index payments_of_hash on payments (tx_hash);
create index payments_of_merchant on payments (merchant_id, created_at desc, id desc);
create index payments_of_merchant_status on payments (merchant_id, status, created_at desc, id desc);
create index payments_of_payer on payments (resource_id, payer);
create index payments_of_sender on payments (merchant_id, payer);
-- A session is paid once; several senders' money may also wait, or have been accepted or returned.
create unique index payments_once_a_session on payments (resource_id)
  where starts_with(resource_id, 'cs_') and status = 'granted' and not beside;
create index payments_open_at on payments (deposit_id, token) include (amount) where status = 'open';
create index payments_reopened on payments (chain_id) where reopened;
-- Settling asks for the returned payments of a payer, or of a session.
create index payments_returned_of_payer on payments (resource_id, payer) where status = 'returned';
create index payments_to_notify on payments (notify_by) where notify_by is not null;
create index payments_to_sweep on payments (chain_id, sweep_at) where sweep_at is not null;
-- An agent makes thousands of calls to a bundle, and each is a payment: those that are not settled are found without the others.
create index payments_unsettled_of_payer on payments (resource_id, payer) where status in ('open', 'reversed');

create table claims (
  transfer_id bigint primary key references transfers,
  payment_id text not null references payments,
  given_back base_units not null default 0
);
comment on table claims is 'Which payment a transfer counts for. By the primary key it counts once.';
comment on column claims.given_back is
  'What a final return has sent back of the transfer while its payment had more, in base units.';
create index claims_of_payment on claims (payment_id);

create table claim_books (
  payment_id text primary key references payments on delete cascade,
  claims bigint not null,
  transfer_ids numeric not null
);
comment on table claim_books is
  'How many claims a payment has, and the sum of their transfers'' ids, kept by triggers: the reconciliation finds a '
  'claim that was deleted or moved by hand.';

create table surpluses (
  payment_id text primary key references payments on delete cascade,
  transfer_id bigint not null references transfers,
  deposit_id bigint not null references deposits,
  token evm_address not null,
  amount base_units not null check (amount > 0),
  state text not null check (state in ('open', 'accepted', 'returned')),
  returned_at timestamptz,
  returned_to evm_address,
  constraint surpluses_check check ((state = 'returned') = (returned_at is not null) and (returned_at is null) = (returned_to is null))
);
comment on table surpluses is
  'What an overpayment brought beyond the price. The status of the payment says whether it counts.';
comment on column surpluses.transfer_id is
  'The transfer that holds it: all of it is one sender''s, and in one deposit.';
create index surpluses_of_transfer on surpluses (transfer_id);
create index surpluses_open_at on surpluses (deposit_id, token) where state = 'open';

create table grants (
  id text primary key,
  payment_id text not null unique references payments,
  paywall_id text not null references paywalls,
  address evm_address not null,
  tx_hash evm_hash not null,
  duration_s bigint check (duration_s > 0),
  granted_at timestamptz not null,
  revoked_at timestamptz,
  revoked_by text check (revoked_by in ('merchant', 'reorg')),
  revoke_reason text,
  calls integer check (calls > 0),
  calls_used integer not null default 0,
  constraint grants_check check ((revoked_at is null) = (revoked_by is null)),
  constraint grants_check1 check (calls_used >= 0 and calls_used <= coalesce(calls, 0))
);
comment on table grants is 'What a payment bought at a paywall.';
comment on column grants.duration_s is 'Null: without end.';
comment on column grants.calls is 'Null: any number of calls in its time.';
create index grants_of_address on grants (paywall_id, address, granted_at);
-- Without it, a filter that few rows match read all of a merchant's rows: half a second to two seconds of a million.
create index grants_of_paywall on grants (paywall_id, granted_at desc, id desc);
create index grants_revoked on grants (paywall_id, address) where revoked_by = 'merchant';
create index grants_unused on grants (paywall_id, address, granted_at, id) where revoked_at is null and calls_used < calls;

create table return_addresses (
  id bigint generated always as identity primary key,
  resource_id text not null,
  payer evm_address not null,
  address evm_address not null,
  message text not null,
  signature text not null,
  named_at timestamptz not null
);
comment on table return_addresses is
  'Where payers want their money back, signed by them. The newest counts; all are kept.';
comment on column return_addresses.resource_id is 'The paywall or session that `payer` sent money to.';
create index return_addresses_of_payer on return_addresses (resource_id, payer, id desc);

create table screenings (
  id bigint generated always as identity primary key,
  address evm_address not null,
  listed boolean not null,
  source text not null,
  subject text not null,
  screened_at timestamptz not null
);
comment on table screenings is 'Each comparison of an address with a sanctions list, with its source.';
create index screenings_of_address on screenings (address, source, screened_at);

-- One per statement, whatever the number of its rows: a payment can be made of thousands of transfers.
create function keep_claim_books() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' then
    update claim_books b set claims = claims + changed.n, transfer_ids = transfer_ids + changed.ids
      from (select payment_id, count(*) as n, sum(transfer_id) as ids from added group by 1) as changed
      where b.payment_id = changed.payment_id;
  elsif tg_op = 'DELETE' then
    update claim_books b set claims = claims - changed.n, transfer_ids = transfer_ids - changed.ids
      from (select payment_id, count(*) as n, sum(transfer_id) as ids from removed group by 1) as changed
      where b.payment_id = changed.payment_id;
  else
    update claim_books b set claims = claims + changed.n, transfer_ids = transfer_ids + changed.ids
      from (select payment_id, sum(n) as n, sum(ids) as ids from (
          select payment_id, 1 as n, transfer_id as ids from added
          union all select payment_id, -1, -transfer_id from removed) as moved
        group by 1 having sum(n) <> 0 or sum(ids) <> 0) as changed
      where b.payment_id = changed.payment_id;
  end if;
  return null;
end $$;

create function keep_past_claims() returns trigger language plpgsql as $$
begin
  insert into past_claims (transfer_id, payment_id)
    select r.transfer_id, r.payment_id from removed r
    where exists (select from payouts i where i.payment_id = r.payment_id and i.kind in ('share', 'return'))
      and not exists (select from claims c where c.transfer_id = r.transfer_id and c.payment_id = r.payment_id)
    on conflict do nothing;
  return null;
end $$;

-- By triggers, because processes of the version before reopen payments too, and so does `reopen_payment`.
create function note_reopened() returns trigger language plpgsql as $$
begin
  new.reopened := true;
  return new;
end $$;

create function note_reopened_surplus() returns trigger language plpgsql as $$
begin
  update payments set reopened = true where id = new.payment_id;
  return null;
end $$;

create function open_claim_book() returns trigger language plpgsql as $$
begin
  insert into claim_books (payment_id, claims, transfer_ids) values (new.id, 0, 0);
  return null;
end $$;

-- A payment is an agent's where what it pays for was sold to one, alone or in a batch.
create function set_agent() returns trigger language plpgsql as $$
begin
  new.agent := exists (select from transaction_attempts a join payouts i on i.id = a.payout_id
      join deposits d on d.id = i.deposit_id
      where a.hash = new.tx_hash and i.kind = 'settle' and d.resource_id = new.resource_id)
    or exists (select from transaction_attempts a join payouts i on i.batch_id = a.payout_id
      join deposits d on d.id = i.deposit_id
      where a.hash = new.tx_hash and d.resource_id = new.resource_id)
    or exists (select from settlements s where s.found_hash = new.tx_hash and s.resource_id = new.resource_id);
  return new;
end $$;

create function unapply_transfer() returns trigger language plpgsql as $$
begin
  update transfers set applied = false where id = old.transfer_id and applied;
  return null;
end $$;

create function unapply_transfers() returns trigger language plpgsql as $$
begin
  update transfers t set applied = false from claims c where c.payment_id = new.id and t.id = c.transfer_id and t.applied;
  return null;
end $$;

create function unfold_access() returns trigger language plpgsql as $$
declare
  changed grants := coalesce(new, old);
begin
  update access set folded_at = null
    where paywall_id = changed.paywall_id and address = changed.address and folded_at is not null;
  return null;
end $$;

-- What is left out of the payouts of the payment that a transfer counts for, in these states of the surplus.
create function withheld(transfer bigint, states text[]) returns numeric language sql stable as $$
  select coalesce((select sum(s.amount) from surpluses s
    join claims c on c.transfer_id = s.transfer_id and c.payment_id = s.payment_id
    join payments p on p.id = s.payment_id and p.status = 'granted'
    where s.transfer_id = $1 and s.state = any($2)), 0)
$$;

create trigger claims_keep_books_added after insert on claims
  referencing new table as added for each statement execute function keep_claim_books();
create trigger claims_keep_books_moved after update on claims
  referencing old table as removed new table as added for each statement execute function keep_claim_books();
create trigger claims_keep_books_removed after delete on claims
  referencing old table as removed for each statement execute function keep_claim_books();
create trigger claims_keep_past_moved after update on claims
  referencing old table as removed for each statement execute function keep_past_claims();
create trigger claims_keep_past_removed after delete on claims
  referencing old table as removed for each statement execute function keep_past_claims();
create trigger payments_note_reopened before update of status on payments for each row
  when (old.status = 'returned' and new.status = 'open') execute function note_reopened();
create trigger surpluses_note_reopened after update of state on surpluses for each row
  when (old.state = 'returned' and new.state = 'open') execute function note_reopened_surplus();
create trigger payments_open_claim_book after insert on payments for each row execute function open_claim_book();
create trigger payments_set_agent before insert or update of tx_hash on payments for each row execute function set_agent();
create trigger claims_unapply_moved after update of payment_id on claims for each row
  when (old.payment_id <> new.payment_id) execute function unapply_transfer();
create trigger claims_unapply_removed after delete on claims for each row execute function unapply_transfer();
create trigger payments_unapply_transfers after update of status on payments for each row
  when (old.status in ('granted', 'returned') and new.status not in ('granted', 'returned')) execute function unapply_transfers();
-- Not `calls_used`, which `calls_left` follows.
create trigger grants_unfold_access after insert or delete or update of granted_at, duration_s, calls, revoked_at on grants
  for each row execute function unfold_access();
