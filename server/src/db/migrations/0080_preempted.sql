-- Whether another transaction carried a relay's authorization out before the relay failed: then its payer paid, and the failure is not held
-- against it. Null where the relay did not fail, or the chain has not been asked.
--
-- Locks: `payouts` against writes while the index is made: some seconds for each million rows.
alter table payouts add column preempted boolean;
create index payouts_unexplained on payouts (chain_id, updated_at)
  where succeeded = false and preempted is null and kind in ('authorize', 'settle');

-- A payer's relays by how they ended: those that failed limit it for a day, those that succeeded let more be in flight.
drop index payouts_failed_of_payer;
create index payouts_ended_of_payer on payouts (payer, succeeded, updated_at) where payer is not null and succeeded is not null;
