-- Money that is not as it should be: whose it is, in which token, and what the merchant decided.

-- What a payment is in: of what came in another token this is not the network's.
alter table payments add column token evm_address;
update payments p set token = (
  select t.token from transfers t join deposits d on d.id = t.deposit_id
    left join claims c on c.transfer_id = t.id and c.payment_id = p.id
  where t.chain_id = p.chain_id and t.tx_hash = p.tx_hash
    and (d.paywall_id = p.paywall_id or d.session_id = p.session_id)
  order by c.payment_id is null limit 1);
alter table payments alter column token set not null;

-- One that waits for the merchant is one sender's money in one deposit, so that a return can reach nobody else.
alter table payments add column deposit_id bigint references deposits;
update payments p set deposit_id = d.id from deposits d where d.session_id = p.session_id and p.status = 'open';

-- When the merchant let it count as paid; whether beside a payment that had paid the session already.
alter table payments add column accepted_at timestamptz;
alter table payments add column beside boolean not null default false;
-- When and to whom the merchant sent it back.
alter table payments add column returned_at timestamptz;
alter table payments add column returned_to evm_address;

alter table payments drop constraint payments_status_check;
alter table payments add constraint payments_status_check check (status in ('granted', 'reversed', 'open', 'returned'));
alter table payments drop constraint payments_exception_check;
alter table payments add constraint payments_exception_check
  check (exception in ('underpaid', 'overpaid', 'late', 'duplicate', 'wrong_asset', 'sanctioned'));
alter table payments drop constraint payments_open_why;
alter table payments add constraint payments_open_why
  check (status not in ('open', 'returned') or (exception is not null and deposit_id is not null));
alter table payments add constraint payments_accepted check (accepted_at is null or status in ('granted', 'reversed'));
alter table payments add constraint payments_beside check (not beside or accepted_at is not null);
alter table payments add constraint payments_returned
  check ((status = 'returned') = (returned_at is not null) and (returned_at is null) = (returned_to is null));

-- A session is paid once; beside that, several senders' money may wait, or may have been accepted or returned.
drop index payments_of_session;
create index payments_of_session on payments (session_id) where session_id is not null;
create unique index payments_once_a_session on payments (session_id) where status = 'granted' and not beside;
create index payments_of_exception on payments (merchant_id, exception, created_at desc, id desc)
  where exception is not null;

-- A payment is returned by one intent at a time. One that is cancelled before it was signed has moved nothing, whoever
-- cancelled it, so the merchant may decide anew.
alter table intents add constraint intents_return_of check (kind <> 'return' or payment_id is not null);
create unique index intents_one_return on intents (payment_id)
  where kind = 'return' and state not in ('reverted', 'cancelled');
create function reopen_payment() returns trigger language plpgsql as $$
begin
  update payments set status = 'open', returned_at = null, returned_to = null, updated_at = new.updated_at
    where id = new.payment_id and status = 'returned';
  return null;
end $$;
create trigger intents_reopen_payment after update on intents for each row
  when (new.kind = 'return' and new.state = 'cancelled' and old.state <> 'cancelled') execute function reopen_payment();

-- Where payers want their money back, in their own hand. Kept for ever: the newest is what they want.
create table return_addresses (
  id bigint generated always as identity primary key,
  -- The paywall or session, and who sent money there.
  resource_id text not null,
  payer evm_address not null,
  address evm_address not null,
  message text not null,
  signature text not null,
  named_at timestamptz not null
);
create index return_addresses_of_payer on return_addresses (resource_id, payer, id desc);

-- What other tokens say of themselves; null where they say nothing that can be shown.
create table tokens (
  chain_id integer not null,
  address evm_address not null,
  symbol text,
  decimals integer,
  asked_at timestamptz not null,
  primary key (chain_id, address),
  check (symbol is null or decimals is not null)
);

drop view transactions;
create view transactions as
  select id, merchant_id, 'payment'::text as type, status, exception, chain_id, token::text as token,
    amount::numeric(78,0) as amount, tx_hash::text as tx_hash, payer::text as payer, null::text as recipient, paywall_id,
    session_id, id as payment_id, created_at
  from payments
  union all
  -- What an authorization brings in is listed as the payment that it makes.
  select id::text, merchant_id, kind, state, null, chain_id, token::text, amount::numeric(78,0), tx_hash::text, null,
    recipient::text, null, null, payment_id, created_at
  from intents where kind <> 'authorize';

-- What was there before this migration is looked at again: money at paywalls that nobody was told of, and sessions where
-- several senders' money waits as one payment.
update transfers t set run_at = now() where state in ('confirmed', 'final')
  and not exists (select from claims c where c.transfer_id = t.id);
update checkout_sessions set run_at = now() where id in (select session_id from payments where status = 'open');
