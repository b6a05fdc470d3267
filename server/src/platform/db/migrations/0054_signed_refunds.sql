-- The merchants of whom a refund is signed and not mined, whose other refunds wait.
create index payouts_signed_refunds on payouts (chain_id, merchant_id) where kind = 'refund' and state = 'assigned';
-- Whose turn it is (`payouts/pick-due.ts`): each merchant's waiting calls of one class, in their order.
create index payouts_turns on payouts (chain_id, merchant_id,
    (case when kind in ('authorize', 'settle', 'reserve') then 0 when kind = 'refund' then 3
      when checks > 0 then 4 when kind = 'void' or source_key like '%:0' then 1 else 2 end),
    run_at, created_at, id)
  where lane = 'relay' and state in ('queued', 'held');
