-- Each check of the alarms asks for reserved money that obeys an earlier relay wallet, and read all escrows there ever were.
--
-- Locks: while the index is built, `escrows` can be read and not written to: some seconds for each million rows.
create index escrows_reserved on escrows (chain_id) where authorized > captured + voided + reclaimed;
