-- Whether another transaction carried a relay's authorization out before the relay failed: then its payer paid, and the failure is not held
-- against it. Null where the relay did not fail, or the chain has not been asked.
--
-- Locks: `payouts` against reads and writes until all migrations of this start are committed: some seconds for each million rows.
alter table payouts add column preempted boolean;
create index payouts_unexplained on payouts (chain_id, updated_at)
  where succeeded = false and preempted is not true and kind in ('authorize', 'settle');
-- A payer's relays that succeeded: they let more be in flight at this merchant.
create index payouts_succeeded_of_payer on payouts (payer, merchant_id, updated_at) where payer is not null and succeeded;
