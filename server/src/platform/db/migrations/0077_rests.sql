-- A reorg can leave a payment whose return was signed with more money than the return sent back. What is left over was listed nowhere.
-- Once the return is final, the payment waits for a decision again, about the rest. `given_back` is how much of a transfer such a return
-- has sent back: it counts for nothing any more.
--
-- Locks: `claims`, `payouts` and `payments` against writes until all migrations of this start are committed; no row is rewritten.
alter table claims add column given_back base_units not null default 0;

-- The rest may be returned too, once the return before it is final.
drop index payouts_one_return;
create unique index payouts_one_return on payouts (payment_id)
  where kind = 'return' and state not in ('reverted', 'cancelled', 'final');

-- Settling asks for the returned payments of a payer, or of a session.
create index payments_returned_of_payer on payments (resource_id, payer) where status = 'returned';
