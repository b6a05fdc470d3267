-- 18_audit

create table audit_entries (
  merchant_id text not null,
  at timestamptz not null default date_trunc('milliseconds', clock_timestamp()),
  n bigint generated always as identity,
  id uuid not null default gen_random_uuid(),
  actor_kind text not null check (actor_kind in ('console', 'api_key', 'subscriber', 'operator', 'service')),
  actor_id text,
  actor_issuer text,
  action text not null check (action ~ '^[a-z_]+\.[a-z_]+$'),
  object_id text not null,
  chain_id integer,
  before jsonb,
  after jsonb,
  address text,
  user_agent text,
  route text,
  request_id text,
  primary key (merchant_id, at, n)
);
comment on table audit_entries is
  'What merchants, subscribers, operators and the service changed of a merchant''s configuration, and decisions about '
  'money. Only triggers write it, in the transaction of the change, so no code can leave it out.';
comment on column audit_entries.merchant_id is
  'No foreign key: an entry outlives what it is about, and the log takes no lock on a merchant''s row.';
comment on column audit_entries.at is 'By the database''s clock, in milliseconds.';
comment on column audit_entries.n is 'In the order in which entries were written.';
comment on column audit_entries.action is 'The kind of thing, a dot, and what happened to it.';
comment on column audit_entries.before is
  'The columns that changed and their values, or all columns of a row that was made or deleted.';
create index audit_entries_of_action on audit_entries (merchant_id, action, at, n);
create index audit_entries_of_actor on audit_entries (merchant_id, actor_id, at, n);
create index audit_entries_of_kind on audit_entries (merchant_id, actor_kind, at, n);
create index audit_entries_of_object on audit_entries (merchant_id, object_id, at, n);

create function add_audit_entry(merchant text, what text, object text, chain integer, was jsonb, is_now jsonb)
  returns void language plpgsql as $$
declare
  -- Base64 of JSON: `server/src/platform/actor.ts`.
  actor constant jsonb :=
    convert_from(decode(nullif(current_setting('sluice.actor', true), ''), 'base64'), 'utf8')::jsonb;
begin
  insert into audit_entries (merchant_id, actor_kind, actor_id, actor_issuer, action, object_id, chain_id, before, after, address,
      user_agent, route, request_id)
    values (merchant, coalesce(actor ->> 'kind', 'service'), actor ->> 'id', actor ->> 'issuer', what, object, chain, was, is_now,
      actor ->> 'address', actor ->> 'userAgent', actor ->> 'route', actor ->> 'requestId');
end $$;

-- A value as the log keeps it: only that there is one if it is secret, the start of a long one, and text for a number that no double holds.
create function audit_value(value jsonb, is_secret boolean) returns jsonb language sql immutable
  return case
    when is_secret and value is not null then to_jsonb('[secret]'::text)
    when length(value #>> '{}') > 10000 then to_jsonb(left(value #>> '{}', 10000) || '…')
    when jsonb_typeof(value) = 'number' and abs((value #>> '{}')::numeric) > 9007199254740991 then to_jsonb(value #>> '{}')
    else value end;

-- A row as the log reads it: with its merchant, with the id by which it is named, and with what it only refers to.
create function audited(source text, line jsonb) returns jsonb language plpgsql stable as $$
begin
  return line || coalesce(case
    when source = 'merchants' then jsonb_build_object('merchant_id', line -> 'id')
    when source = 'payout_addresses' then jsonb_build_object('network', 'eip155:' || (line ->> 'chain_id'))
    when source = 'webhook_secrets' then jsonb_build_object('owner', coalesce(line ->> 'webhook_id', line ->> 'merchant_id'))
    when source = 'payouts' then jsonb_build_object('payout', 'po_' || replace(line ->> 'id', '-', ''))
    when source = 'grants' then
      (select jsonb_build_object('merchant_id', merchant_id) from paywalls where id = line ->> 'paywall_id')
    when source = 'surpluses' then
      (select jsonb_build_object('merchant_id', merchant_id, 'chain_id', chain_id) from payments where id = line ->> 'payment_id')
    when source in ('bundle_headers', 'bundle_routes') then
      (select jsonb_build_object('merchant_id', merchant_id, 'chain_id', chain_id) from bundles where id = line ->> 'bundle_id')
    when source = 'refunds' then
      (select jsonb_build_object('chain_id', chain_id) from checkout_sessions where id = line ->> 'session_id')
    when source = 'splits' then (select jsonb_build_object('recipients',
        jsonb_agg(jsonb_build_object('address', address, 'percent_e4', percent_e4, 'label', label) order by position))
      from recipients where set_id = (line ->> 'set_id')::bigint)
    end, '{}');
end $$;

create function keep_audit_entries() returns trigger language plpgsql as $$
begin
  raise exception 'an entry of the audit log is never changed or deleted';
end $$;

-- Arguments: the action (a kind alone gets `created`, `changed` or `deleted`), the column with the object's id, the columns that are
-- shown, and those of which only a change is noted. A column that is in neither never reaches the log.
create function write_audit_entry() returns trigger language plpgsql as $$
declare
  action constant text := case when tg_argv[0] like '%.%' then tg_argv[0] else tg_argv[0] || '.' ||
    case tg_op when 'INSERT' then 'created' when 'UPDATE' then 'changed' else 'deleted' end end;
  old_line jsonb;
  new_line jsonb;
  line jsonb;
  was jsonb;
  is_now jsonb;
begin
  if tg_op <> 'INSERT' then old_line := audited(tg_table_name, to_jsonb(old)); end if;
  if tg_op <> 'DELETE' then new_line := audited(tg_table_name, to_jsonb(new)); end if;
  line := coalesce(new_line, old_line);
  select jsonb_object_agg(name, audit_value(nullif(old_line -> name, 'null'), is_secret)),
      jsonb_object_agg(name, audit_value(nullif(new_line -> name, 'null'), is_secret)) into was, is_now
    from (select unnest(string_to_array(tg_argv[2], ',')) as name, false as is_secret
      union all select unnest(string_to_array(tg_argv[3], ',')), true) columns
    where nullif(old_line -> name, 'null') is distinct from nullif(new_line -> name, 'null');
  -- Nothing changed, or what it belonged to went with it.
  if is_now is null or line ->> 'merchant_id' is null then return null; end if;
  perform add_audit_entry(line ->> 'merchant_id', action, line ->> tg_argv[1], (line ->> 'chain_id')::integer,
    case when tg_op <> 'INSERT' then was end, case when tg_op <> 'DELETE' then is_now end);
  return null;
end $$;

-- All routes of a bundle are written together, so they are one entry.
create function write_audit_of_routes() returns trigger language plpgsql as $$
declare
  bundle record;
begin
  for bundle in
    select b.id, b.merchant_id, b.chain_id, jsonb_build_object('routes', audit_value(jsonb_agg(jsonb_build_object('method', r.method,
        'path', r.path, 'price', r.price::text, 'description', r.description) order by r.n), false)) as routes
      from changed r join bundles b on b.id = r.bundle_id group by b.id
  loop
    perform add_audit_entry(bundle.merchant_id, 'bundle_routes.' || case tg_op when 'INSERT' then 'added' else 'removed' end,
      bundle.id, bundle.chain_id, case when tg_op = 'DELETE' then bundle.routes end, case when tg_op = 'INSERT' then bundle.routes end);
  end loop;
  return null;
end $$;

create trigger audit_entries_keep before update or delete on audit_entries
  for each row execute function keep_audit_entries();
create trigger audit_entries_keep_all before truncate on audit_entries
  for each statement execute function keep_audit_entries();
create trigger api_keys_audit after insert or update of name, hash, scopes or delete on api_keys for each row
  execute function write_audit_entry('api_key', 'id', 'name,prefix,last4,scopes', '');
create trigger branding_audit after insert or update or delete on branding for each row
  execute function write_audit_entry('branding', 'merchant_id', 'accent_color,allowed_origins,logo_type,logo_hash', '');
create trigger bundle_headers_audit after insert or update or delete on bundle_headers for each row
  execute function write_audit_entry('bundle_header', 'bundle_id', 'name', 'sealed');
-- The service writes all routes again; this is for whoever changes one in the database.
create trigger bundle_routes_audit after update on bundle_routes for each row
  execute function write_audit_entry('bundle_routes', 'bundle_id', 'method,path,price,description', '');
create trigger bundles_audit after insert or update or delete on bundles for each row
  execute function write_audit_entry('bundle', 'id', 'name,chain_id,slug,description,origin_url,currency,split_id,active,listed,openapi,openapi_url', '');
create trigger checkout_sessions_audit after update of description, redirect_url, metadata, expires_at on checkout_sessions for each row
  when (current_setting('sluice.actor', true) <> '')
  execute function write_audit_entry('checkout', 'id', 'description,redirect_url,metadata,expires_at', '');
create trigger grants_audit after update of revoked_at on grants for each row
  when (new.revoked_at is not null and old.revoked_at is null and current_setting('sluice.actor', true) <> '')
  execute function write_audit_entry('grant.revoked', 'id', 'revoked_at,revoked_by,revoke_reason', '');
-- Configuration, whoever changes it. What counts or marks a use is not among the columns.
create trigger merchants_audit after insert or update on merchants for each row
  execute function write_audit_entry('settings', 'merchant_id', 'name,email,wallet_lock,approver', '');
create trigger payment_links_audit after insert or delete or update of slug, title, description, amount, currency, product_id, split_id,
    redirect_url, max_uses, expires_at, active on payment_links for each row
  execute function write_audit_entry('payment_link', 'id', 'slug,title,chain_id,description,amount,currency,product_id,split_id,redirect_url,max_uses,expires_at,active', '');
-- Decisions about money and access: the engine writes these rows all the time, so an entry is made only if somebody asked. Without an
-- actor (`sluice.actor` is null, or empty after it was set once) no function is called.
create trigger payments_audit_accepted after update of accepted_at on payments for each row
  when (new.accepted_at is not null and new.accepted_at is distinct from old.accepted_at and current_setting('sluice.actor', true) <> '')
  execute function write_audit_entry('payment.accepted', 'id', 'status,accepted_at', '');
create trigger payments_audit_returned after update of status on payments for each row
  when (new.status = 'returned' and old.status <> 'returned' and current_setting('sluice.actor', true) <> '')
  execute function write_audit_entry('payment.returned', 'id', 'status,returned_at,returned_to', '');
create trigger payout_addresses_audit after insert or update or delete on payout_addresses for each row
  execute function write_audit_entry('payout_address', 'network', 'address,pending_address,pending_at', '');
create trigger payouts_audit after update of state, stopped, run_at on payouts for each row
  when ((new.state <> old.state or new.stopped <> old.stopped or new.run_at <> old.run_at) and current_setting('sluice.actor', true) <> '')
  execute function write_audit_entry('payout', 'payout', 'state,stopped,held_reason,run_at', '');
create trigger payouts_audit_captured after insert on payouts for each row when (new.kind = 'capture' and current_setting('sluice.actor', true) <> '')
  execute function write_audit_entry('checkout.captured', 'escrow_id', 'payout,amount,recipient', '');
create trigger payouts_audit_voided after insert on payouts for each row when (new.kind = 'void' and current_setting('sluice.actor', true) <> '')
  execute function write_audit_entry('checkout.voided', 'escrow_id', 'payout,amount,recipient', '');
create trigger paywalls_audit after insert or update or delete on paywalls for each row
  execute function write_audit_entry('paywall', 'id', 'name,chain_id,price,currency,description,content_type,pricing_model,access_duration_s,slug,active,listed,subscription_product_id,split_id', 'content_url,content_data');
create trigger products_audit after insert or update or delete on products for each row
  execute function write_audit_entry('product', 'id', 'name,chain_id,price,currency,description,split_id,active,billing_interval,billing_count,trial_days,max_periods', '');
create trigger refunds_audit_created after insert on refunds for each row when (current_setting('sluice.actor', true) <> '')
  execute function write_audit_entry('refund', 'id', 'session_id,amount,reason', '');
create trigger refunds_audit_withdrawn after update of status on refunds for each row
  when (new.status = 'failed' and old.status <> 'failed' and current_setting('sluice.actor', true) <> '')
  execute function write_audit_entry('refund.withdrawn', 'id', 'status', '');
create trigger splits_audit after insert or update or delete on splits for each row
  execute function write_audit_entry('split', 'id', 'name,description,recipients', '');
create trigger subscriptions_audit after update of product_id, billing_interval, billing_count, max_periods, paused_at, canceled_at,
    cancel_at_period_end, cancel_asked_by on subscriptions for each row when (current_setting('sluice.actor', true) <> '')
  execute function write_audit_entry('subscription', 'id', 'product_id,billing_interval,billing_count,max_periods,paused_at,canceled_at,cancel_at_period_end,cancel_asked_by', '');
create trigger surpluses_audit_accepted after update of state on surpluses for each row
  when (new.state = 'accepted' and old.state <> 'accepted' and current_setting('sluice.actor', true) <> '')
  execute function write_audit_entry('surplus.accepted', 'payment_id', 'state', '');
create trigger surpluses_audit_returned after update of state on surpluses for each row
  when (new.state = 'returned' and old.state <> 'returned' and current_setting('sluice.actor', true) <> '')
  execute function write_audit_entry('surplus.returned', 'payment_id', 'state,returned_at,returned_to', '');
create trigger wallet_proofs_audit after insert or update or delete on wallet_proofs for each row
  execute function write_audit_entry('wallet_proof', 'address', 'chain_id,by_key,proven_at', '');
create trigger webhook_secrets_audit after insert on webhook_secrets for each row
  execute function write_audit_entry('webhook_secret', 'owner', 'shown_at', 'sealed');
create trigger webhook_secrets_audit_reveal after update of shown_at on webhook_secrets for each row
  execute function write_audit_entry('webhook_secret.revealed', 'owner', 'shown_at', 'sealed');
create trigger webhooks_audit after update of url, description, events, active, disabled_reason on webhooks for each row
  when (new.deleted_at is null)
  execute function write_audit_entry('webhook', 'id', 'url,description,events,active,disabled_reason', '');
create trigger webhooks_audit_deleted after update of deleted_at on webhooks for each row
  execute function write_audit_entry('webhook.deleted', 'id', 'active,deleted_at', '');
create trigger webhooks_audit_made after insert or delete on webhooks for each row
  execute function write_audit_entry('webhook', 'id', 'url,description,events,active', '');
create trigger bundle_routes_audit_added after insert on bundle_routes referencing new table as changed for each statement
  execute function write_audit_of_routes();
create trigger bundle_routes_audit_removed after delete on bundle_routes referencing old table as changed for each statement
  execute function write_audit_of_routes();

-- The functions of the audit log find their tables and functions by a path of their own. By the session's path, a temporary table or a
-- function of the same name could take or make an entry. `audit_value` is bound to what it calls, and `keep_audit_entries` calls nothing.
do $$
declare
  signature text;
begin
  foreach signature in array array['add_audit_entry(text, text, text, integer, jsonb, jsonb)', 'audited(text, jsonb)', 'write_audit_entry()',
      'write_audit_of_routes()'] loop
    execute format('alter function %s set search_path = pg_catalog, %s, pg_temp', signature,
      (select relnamespace::regnamespace from pg_class where oid = 'audit_entries'::regclass));
  end loop;
end $$;
