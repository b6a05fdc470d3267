-- Receipts in 0G's storage: a lane of the payout engine on 0G's chain, with a wallet of its own.
--
-- Locks: `payouts` and `wallets` against reads and writes until all migrations of this start are committed; no row is rewritten, but
-- these constraints are checked anew.
alter table wallets
  drop constraint wallets_lane_check,
  add constraint wallets_lane_check check (lane in ('payout', 'relay', 'storage'));

-- A call that has 0G's contract keep a file of receipts. It moves nobody's money but the fee of the storage.
alter table payouts
  drop constraint payouts_kind_check, drop constraint payouts_lane, drop constraint payouts_deposit, drop constraint payouts_reserved,
  add constraint payouts_kind_check check (kind in ('share', 'sweep', 'return', 'authorize', 'settle', 'batch', 'reserve', 'capture', 'void', 'refund', 'anchor', 'store')),
  add constraint payouts_lane check (lane = case
    when kind in ('authorize', 'settle', 'batch', 'reserve', 'capture', 'void', 'refund') then 'relay'
    when kind = 'store' then 'storage' else 'payout' end),
  add constraint payouts_deposit check (deposit_id is not null or kind in ('settle', 'batch', 'anchor', 'store') or escrow_id is not null),
  add constraint payouts_reserved check (case when lane = 'relay' or kind in ('anchor', 'store') then not reserved
    else reserved or state in ('held', 'cancelled') end);

create or replace function set_lane() returns trigger language plpgsql as $$
begin
  new.lane := case when new.kind in ('authorize', 'settle', 'batch', 'reserve', 'capture', 'void', 'refund') then 'relay'
    when new.kind = 'store' then 'storage' else 'payout' end;
  return new;
end $$;

alter table receipt_batches
  add column storage_id uuid references payouts,
  add column storage_seq bigint,
  add column uploaded_at timestamptz,
  add constraint receipt_batches_uploaded check ((storage_seq is null) = (uploaded_at is null) and (uploaded_at is null or storage_id is not null));
comment on column receipt_batches.storage_id is 'The newest call that has 0G keep it; null where it is in no other store than ours.';
comment on column receipt_batches.storage_seq is 'Its number among all files of 0G.';
comment on column receipt_batches.uploaded_at is 'When 0G''s nodes had proven that they have it.';
create index receipt_batches_of_storage on receipt_batches (storage_id) where storage_id is not null;
create index receipt_batches_not_uploaded on receipt_batches (n) where uploaded_at is null;
