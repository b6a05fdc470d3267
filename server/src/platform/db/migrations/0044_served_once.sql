-- When an answer was handed to the network: a process that dies while it answers leaves this empty, and the payment can be served
-- again when its lease is over.
alter table settlements add column answered_at timestamptz;
-- Set when nothing was paid and nothing can be any more, so that the chain is not asked again.
alter table settlements add column failed_at timestamptz;
-- Where the first request came from, as a MAC of its address: once the payment is public, nobody elsewhere is served for it.
alter table settlements add column caller text not null default '';
-- Whether the transaction that was found is in a final block; before, a reorg may remove it.
alter table settlements add column found_block bigint;
alter table settlements add column found_final boolean not null default false;
-- Who was asked to pay this checkout: a second 402 for the same agent names the same one.
alter table checkout_sessions add column agent_caller text;
create index checkout_sessions_of_agent on checkout_sessions (link_id, agent_caller, created_at) where agent;

-- An identifier is the buyer's: another buyer can't take it. An Idempotency-Key of a server is the merchant's.
drop index settlements_of_identifier;
create unique index settlements_of_identifier on settlements
  (coalesce(resource_id, merchant_id), (case when resource_id is null then '' else payer::text end), identifier)
  where identifier is not null;

-- A payment is an agent's where what it pays for was sold to one. What the facilitator moved to a checkout of ours is an ordinary
-- payment there, and its merchant is notified of it.
create or replace function set_agent() returns trigger language plpgsql as $$
begin
  new.agent := exists (select from transaction_attempts a join payouts i on i.id = a.payout_id
      join deposits d on d.id = i.deposit_id
      where a.hash = new.tx_hash and i.kind = 'settle' and d.resource_id = new.resource_id)
    or exists (select from settlements s where s.found_hash = new.tx_hash and s.resource_id = new.resource_id);
  return new;
end $$;

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
  -- What was moved for another server, to an address that is not ours; at ours it is a payment.
  select s.id, s.merchant_id, 'agent', i.state, null, s.chain_id, s.token::text, s.amount::numeric(78,0),
    coalesce(s.found_hash, i.tx_hash)::text, s.payer::text, s.pay_to::text, null, null, s.created_at
  from settlements s join payouts i on i.id = s.payout_id
  where s.resource_id is null
    and not exists (select from deposits d where d.chain_id = s.chain_id and d.address = s.pay_to);
