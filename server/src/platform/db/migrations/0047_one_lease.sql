-- A call whose process was killed is found by the lease of its settlement alone.
drop table calls_in_progress;
-- `answered_at` says now that the caller was handed what was bought, or a token for it: after a failure, or while the payment was
-- being carried out. The merchant reads why a call failed in bundle_failures.
update settlements set answered_at = updated_at where failure is not null and answered_at is null;
update settlements set answered_at = updated_at
  where served_at is null and answered_at is null and lease_until > clock_timestamp() + interval '10 minutes';
alter table settlements drop column failure;
