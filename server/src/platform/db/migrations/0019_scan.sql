-- How far the scan is behind, and what of it a person should look at; a payout whose transfer is missing.

alter table cursors add column lag_blocks bigint not null default 0;
-- The lowest lag since the scan fell behind, and when it was that: a scan that catches up has a new one each round.
alter table cursors add column lag_low bigint;
alter table cursors add column lag_low_at timestamptz;
-- An endpoint that answers all but for its logs.
alter table endpoint_troubles drop constraint endpoint_troubles_kind_check;
alter table endpoint_troubles add constraint endpoint_troubles_kind_check
  check (kind in ('silent', 'behind', 'contradiction', 'logs'));

-- When its receipt was first seen without the transfer that it is for; told once, and an alarm for as long as it lasts.
alter table intents add column transfer_missing_at timestamptz;
create index intents_without_transfer on intents (chain_id, wallet) where transfer_missing_at is not null;

-- Which paywalls' addresses open next, so that those to be replaced are found without a look at all of them.
create index deposits_opening on deposits (open_after_s) where paywall_id is not null;
