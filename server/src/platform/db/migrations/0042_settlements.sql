-- Agent payments (x402): signed authorizations that are claimed for one request, carried out, and served once.

-- A facilitator moves money from a payer to an address that is not ours.
alter table payouts alter column deposit_id drop not null;
alter table payouts add constraint payouts_deposit check (deposit_id is not null or kind = 'settle');
create or replace function set_merchant() returns trigger language plpgsql as $$
begin
  if new.deposit_id is not null then
    new.merchant_id := (select merchant_id from deposits where id = new.deposit_id);
  end if;
  return new;
end $$;

create table settlements (
  id text primary key check (starts_with(id, 'set_')),
  merchant_id text not null references merchants,
  chain_id integer not null,
  token evm_address not null,
  payer evm_address not null,
  nonce evm_hash not null,
  digest evm_hash not null,
  pay_to evm_address not null,
  amount base_units not null check (amount > 0),
  valid_before bigint not null,
  -- What was bought; null where another server sells it, and only the money is moved here.
  resource_id text references resources,
  -- SHA-256 of the request that the payment is for, and of the payload that came with it.
  binding text not null,
  payload_hash text not null,
  -- The caller's own id of the payment (extension payment-identifier).
  identifier text,
  -- The relay at work, or the last one.
  payout_id uuid not null references payouts,
  -- The chain's height when it was claimed: an authorization that somebody else carried out is searched from here.
  from_block bigint not null,
  -- Somebody else's transaction that carried it out.
  found_hash evm_hash,
  -- Who may serve what was bought: one request at a time, until its time is over or its caller has gone.
  claim_id uuid,
  lease_until timestamptz,
  served_at timestamptz,
  -- Why the merchant's server did not answer; it may be retried until then.
  failure text,
  retry_until timestamptz,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  unique (chain_id, token, payer, nonce)
);
create unique index settlements_of_identifier on settlements (coalesce(resource_id, merchant_id), identifier)
  where identifier is not null;
create index settlements_of_merchant on settlements (merchant_id, created_at desc, id desc);
create index settlements_of_resource on settlements (resource_id) where resource_id is not null;
create index settlements_of_payout on settlements (payout_id);

-- No webhook is sent for what an agent paid (service.md), and it is listed as such: the transaction says so.
alter table payments add column agent boolean not null default false;
create function set_agent() returns trigger language plpgsql as $$
begin
  new.agent := exists (select from transaction_attempts a join payouts i on i.id = a.payout_id
      where a.hash = new.tx_hash and i.kind = 'settle')
    or exists (select from settlements s where s.found_hash = new.tx_hash);
  return new;
end $$;
create trigger payments_set_agent before insert or update of tx_hash on payments for each row execute function set_agent();

-- The session that a payment link sells to an agent.
alter table checkout_sessions add column agent boolean not null default false;

create or replace view transactions as
  select id, merchant_id, case when agent then 'agent' else 'payment' end as type, status, exception, chain_id,
    token::text as token, amount::numeric(78,0) as amount, tx_hash::text as tx_hash, payer::text as payer,
    null::text as recipient, resource_id, id as payment_id, created_at
  from payments
  union all
  -- What an authorization brings in is listed as the payment that it makes.
  select i.id::text, i.merchant_id, i.kind, i.state, null, i.chain_id, i.token::text, i.amount::numeric(78,0),
    i.tx_hash::text, null, i.recipient::text, d.resource_id, i.payment_id, i.created_at
  from payouts i left join deposits d on d.id = i.deposit_id where i.lane = 'payout'
  union all
  -- What was moved for another server, to an address that is not ours.
  select s.id, s.merchant_id, 'agent', i.state, null, s.chain_id, s.token::text, s.amount::numeric(78,0),
    coalesce(s.found_hash, i.tx_hash)::text, s.payer::text, s.pay_to::text, null, null, s.created_at
  from settlements s join payouts i on i.id = s.payout_id where s.resource_id is null;
