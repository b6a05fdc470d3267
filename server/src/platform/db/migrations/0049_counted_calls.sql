-- The calls of escrows that were once deep enough to count, and the block they were in. The scan goes back to the final block after
-- any reorg: a call whose own block stayed counts as before.
create table counted_calls (
  payout_id uuid primary key references payouts,
  block_hash evm_hash not null
);
insert into counted_calls select i.id, i.block_hash from payouts i join escrows e on e.session_id = i.escrow_id
  where i.state = 'mined' and i.succeeded and i.block_hash is not null and (e.authorized > 0 and i.kind = 'reserve');
