-- The log of requests, and the headers of each attempt to deliver an event.
--
-- Locks: `delivery_attempts` against reads and writes until all migrations of this start are committed; no row is rewritten.
alter table delivery_attempts add column headers jsonb;
comment on column delivery_attempts.headers is 'What was sent, with the first characters of each signature alone; null of what a listener pulled, and of earlier versions.';

create table requests (
  merchant_id text not null,
  at timestamptz not null,
  n bigint generated always as identity,
  request_id text not null,
  method text not null,
  route text not null,
  status smallint not null,
  code text,
  api_key_id text,
  person_id text,
  duration_ms integer not null,
  refusal text,
  primary key (merchant_id, at, n)
) with (autovacuum_vacuum_scale_factor = 0.02);
comment on table requests is 'What a merchant''s people and API keys asked for in the last 30 days, and how it was answered. Never of a payer, and never a body of a request. Written in batches after the answers: what a killed process had not written is missing.';
comment on column requests.at is 'When it was answered.';
comment on column requests.request_id is 'The caller may have chosen it, and more than once.';
comment on column requests.route is 'The pattern, such as `/api/console/payments/:id`: what a path or a query has may be secret.';
comment on column requests.code is 'The error''s code; null where it was not refused.';
comment on column requests.refusal is 'The first 1 KB of the answer, where that is an error.';
create index requests_of_id on requests (merchant_id, request_id);
-- Whoever asks why a call failed reads these alone.
create index requests_refused on requests (merchant_id, at, n) where status >= 400;
create index requests_old on requests (at);
