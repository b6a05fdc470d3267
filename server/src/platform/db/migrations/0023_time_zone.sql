-- The time zone in which a merchant's people read times and count days.
--
-- Locks: `merchants` against reads and writes until all migrations of this start are committed; no row is rewritten.
alter table merchants add column time_zone text check (time_zone <> '');
comment on column merchants.time_zone is
  'The name of a zone of the IANA database, such as Asia/Kolkata: the console shows times in it. Null: in the zone of each browser.';
drop trigger merchants_audit on merchants;
create trigger merchants_audit after insert or update on merchants for each row
  execute function write_audit_entry('settings', 'merchant_id',
    'name,email,wallet_lock,approver,refund_per_day,return_per_day,currency,live_listeners,time_zone', '');
