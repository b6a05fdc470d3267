-- Rounds in which an escrow could not be advanced, since the last in which it was: three are an alarm.
--
-- Locks: `escrows` against reads and writes until all migrations of this start are committed.
alter table escrows add column failed_rounds integer not null default 0;
create index escrows_failing on escrows (chain_id) where failed_rounds >= 3;
