-- Mail: what a person chose to be notified of, and the mails, which are jobs like deliveries.
--
-- Locks: none of what is in use; no row is rewritten.
create table notification_choices (
  merchant_id text not null references merchants (id),
  person_id text not null references persons (id),
  notice text not null,
  by_mail boolean not null,
  primary key (merchant_id, person_id, notice)
);
comment on table notification_choices is 'What a member changed of the notices that they get by mail. A notice without a row is as its list says.';

create table mails (
  id text primary key,
  merchant_id text,
  notice text not null,
  dedupe_key text not null,
  address text not null,
  subject text not null,
  body text,
  status text not null default 'pending' check (status in ('pending', 'sent', 'failed', 'gathered', 'digested')),
  attempts integer not null default 0,
  error text,
  run_at timestamptz not null,
  claim_id uuid,
  lease_until timestamptz,
  taken_at timestamptz,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  unique (address, dedupe_key)
) with (autovacuum_vacuum_scale_factor = 0.02, fillfactor = 50);
comment on table mails is 'One mail to one address, written in the transaction of what it reports, to whoever had a right to it then.';
comment on column mails.merchant_id is 'Null for the operator''s.';
comment on column mails.dedupe_key is 'What happens once is mailed to an address once, however often it is found.';
comment on column mails.body is 'Null once it was sent, as it may have the link of an invitation, or was listed in a digest.';
comment on column mails.status is 'gathered: beyond what a person gets in an hour, so it waits for the digest; digested: it was listed in one.';
comment on column mails.taken_at is 'When it was taken to be sent for the first time; these are counted in the bound of an hour.';
create index mails_due on mails (run_at) where status = 'pending';
create index mails_gathered on mails (address, created_at) where status = 'gathered';
create index mails_taken on mails (address, taken_at) where taken_at is not null;
create index mails_old on mails (created_at);
