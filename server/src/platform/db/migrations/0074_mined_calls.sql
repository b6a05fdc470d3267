-- The scan reads which calls of escrows are mined, and marks those whose block is deep enough.
--
-- Locks: while the index is built, `payouts` can be read and not written to: some seconds for each million rows.
create index payouts_mined_calls on payouts (chain_id, block_number) where escrow_id is not null and state = 'mined';
