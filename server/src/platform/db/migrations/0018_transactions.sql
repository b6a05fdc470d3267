-- What went out is listed with what it was paid for: its session or paywall.
drop view transactions;
create view transactions as
  select id, merchant_id, 'payment'::text as type, status, exception, chain_id, token::text as token,
    amount::numeric(78,0) as amount, tx_hash::text as tx_hash, payer::text as payer, null::text as recipient, paywall_id,
    session_id, id as payment_id, created_at
  from payments
  union all
  -- What an authorization brings in is listed as the payment that it makes.
  select i.id::text, i.merchant_id, i.kind, i.state, null, i.chain_id, i.token::text, i.amount::numeric(78,0),
    i.tx_hash::text, null, i.recipient::text, d.paywall_id, d.session_id, i.payment_id, i.created_at
  from intents i left join deposits d on d.id = i.deposit_id where i.kind <> 'authorize';
