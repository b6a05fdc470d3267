-- A merchant can give back more than a payment brought, with its own wallet. What is beyond the payment is no part of it: the payer's
-- next payment must not be taken for it.
--
-- Locks: `payouts` against writes until all migrations of this start are committed; only returns without a nonce are rewritten.
alter table payouts add column excess base_units;

update payouts i set excess = i.amount - p.amount from payments p
  where p.id = i.payment_id and p.status = 'returned' and i.kind = 'return' and i.nonce is null and i.state = 'final'
    and i.amount > p.amount and not exists (select from payouts o where o.payment_id = p.id and o.kind = 'return' and o.id <> i.id);
