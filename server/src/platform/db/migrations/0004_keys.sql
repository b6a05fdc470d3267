-- What an API key can be given: more scopes, an end, the addresses that it is used from, and how much it may refund and return in a
-- day. A rolled key has two secrets for a time.
--
-- Locks: `api_keys` and `merchants` against reads and writes until all migrations of this start are committed; no row is rewritten.
alter table api_keys
  drop constraint api_keys_scopes_check,
  add constraint api_keys_scopes_check check (
    scopes <@ array['checkouts', 'read', 'console', 'catalog', 'webhooks', 'money', 'settings:read']
    and cardinality(scopes) between 1 and 7),
  add column made_by text references persons,
  add column expires_at timestamptz,
  add column allowed_ips text[] check (cardinality(allowed_ips) between 1 and 50),
  add column refund_per_day integer check (refund_per_day >= 0),
  add column return_per_day integer check (return_per_day >= 0),
  add column previous_hash text unique check (previous_hash ~ '^[0-9a-f]{64}$'),
  add column previous_until timestamptz,
  add constraint api_keys_previous_check check ((previous_hash is null) = (previous_until is null));
comment on column api_keys.made_by is
  'The person who made it, or last changed what it may do; null for keys of older versions.';
comment on column api_keys.allowed_ips is 'CIDRs of which one must have the caller''s address; null for any address.';
comment on column api_keys.refund_per_day is 'Whole tokens in 24 hours, for each token; null for no cap. So is return_per_day.';
comment on column api_keys.previous_hash is 'Of the secret before the last roll, which is valid until previous_until.';

drop trigger api_keys_audit on api_keys;
create trigger api_keys_audit after insert or delete or update of name, hash, scopes, expires_at, allowed_ips, refund_per_day,
    return_per_day, previous_until on api_keys for each row
  execute function write_audit_entry('api_key', 'id',
    'name,prefix,last4,scopes,expires_at,allowed_ips,refund_per_day,return_per_day,previous_until', '');

drop trigger api_keys_notify on api_keys;
create trigger api_keys_notify after update of hash, scopes, expires_at, allowed_ips, previous_until or delete on api_keys
  for each row execute function notify_api_key();

alter table merchants
  add column refund_per_day integer check (refund_per_day >= 0),
  add column return_per_day integer check (return_per_day >= 0);
comment on column merchants.refund_per_day is
  'Whole tokens that all of its API keys together may refund in 24 hours, for each token; null for no cap. So is return_per_day.';
drop trigger merchants_audit on merchants;
create trigger merchants_audit after insert or update on merchants for each row
  execute function write_audit_entry('settings', 'merchant_id', 'name,email,wallet_lock,approver,refund_per_day,return_per_day', '');

create table key_spends (
  merchant_id text not null references merchants,
  kind text not null check (kind in ('refund', 'return')),
  object_id text not null,
  key_id text not null,
  token text not null,
  amount numeric not null,
  created_at timestamptz not null,
  primary key (merchant_id, kind, object_id)
);
comment on table key_spends is
  'What API keys asked to be sent back, by which their caps are counted. Rows of more than a day are deleted.';
comment on column key_spends.object_id is 'The refund''s id, or the payment''s.';
comment on column key_spends.key_id is 'No foreign key: the merchant''s cap counts what a key did that is revoked since.';
comment on column key_spends.token is 'The symbol of a token that is sold for, or the chain and address of another one.';
comment on column key_spends.amount is 'In units of 10⁻¹⁸ of the token, so that amounts of all networks add up.';
create index key_spends_of_merchant on key_spends (merchant_id, created_at);

create table merchant_limits (
  merchant_id text not null references merchants,
  bucket text not null,
  per_minute integer not null check (per_minute >= 0),
  primary key (merchant_id, bucket)
);
comment on table merchant_limits is 'Limits of requests that the operator set for one merchant, in place of the settings.';
comment on column merchant_limits.per_minute is 'Of each of its API keys; 0 for no limit.';
create trigger merchant_limits_audit after insert or update or delete on merchant_limits for each row
  execute function write_audit_entry('merchant_limit', 'bucket', 'bucket,per_minute', '');
