-- Personal data of a merchant's customers can be erased. What happened to the money stays.
--
-- Locks: `checkout_sessions` and `events` against reads and writes until all migrations of this start are committed; no row is rewritten.
alter table checkout_sessions add column erased_at timestamptz;
comment on column checkout_sessions.erased_at is 'When the personal data in it was erased; null: it was not.';
alter table events add column erased_at timestamptz;
comment on column events.erased_at is 'When its data was replaced by the SHA-256 of the body: it can''t be sent any more.';

create table erasures (
  id text primary key check (starts_with(id, 'era_')),
  merchant_id text not null references merchants,
  asked_by text not null check (asked_by in ('email', 'payer', 'checkout', 'retention')),
  checkouts integer not null,
  subscriptions integer not null,
  refunds integer not null,
  events integer not null,
  deliveries_dropped integer not null,
  created_at timestamptz not null
);
comment on table erasures is 'That a customer''s personal data was erased, and how much. Not whose: that is what was erased.';
create index erasures_of_merchant on erasures (merchant_id, created_at desc, id desc);
create trigger erasures_audit after insert on erasures for each row
  execute function write_audit_entry('erasure', 'id', 'asked_by,checkouts,subscriptions,refunds,events,deliveries_dropped', '');

-- Only an erasure may change an entry, and only what a person wrote into it.
create or replace function keep_audit_entries() returns trigger language plpgsql as $$
begin
  if tg_op = 'UPDATE' and current_setting('sluice.erasing', true) = 'on'
    and to_jsonb(old) - array['before', 'after'] = to_jsonb(new) - array['before', 'after']
  then return new; end if;
  raise exception 'an entry of the audit log is never changed or deleted';
end $$;

-- The values of an entry without those that the erasure erases where they came from.
create function erased_entry(entry jsonb) returns jsonb language sql immutable as $$
  select case when entry is not null then coalesce(jsonb_object_agg(key, case
    when key in ('description', 'redirect_url', 'metadata', 'reason', 'revoke_reason') and value <> 'null' then '"[erased]"' else value end), '{}') end
  from jsonb_each(entry)
$$;

-- An answer that a repeated request gets, without the same.
create function erased_answer(answer jsonb) returns jsonb language plpgsql immutable as $$
begin
  return case jsonb_typeof(answer)
    when 'object' then (select coalesce(jsonb_object_agg(key, case
        when key = 'payerFields' then '[]'
        when key in ('customerEmail', 'payerInfo', 'metadata', 'description', 'redirectUrl', 'callbackUrl', 'reason') then 'null'
        else erased_answer(value) end), '{}') from jsonb_each(answer))
    when 'array' then (select coalesce(jsonb_agg(erased_answer(value) order by n), '[]') from jsonb_array_elements(answer) with ordinality e (value, n))
    else answer end;
end $$;
