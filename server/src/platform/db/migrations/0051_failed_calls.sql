-- Captures and voids that failed on chain: three of one payment are an alarm.
create index payouts_failed_calls on payouts (escrow_id, kind) where kind in ('capture', 'void') and state = 'reverted';
