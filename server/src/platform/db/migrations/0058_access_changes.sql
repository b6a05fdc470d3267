-- API processes keep what an address has access to (paywalls/known-access.ts), and are notified of each change to it in the order of
-- the commits. A call that is taken off changes nothing that is kept, unless it was the last.
create function notify_access() returns trigger language plpgsql as $$
begin
  perform pg_notify('sluice', 'access ' || old.paywall_id || ' ' || old.address);
  return null;
end $$;
create trigger notify_access after update on access for each row
  when (old.expires_at is distinct from new.expires_at or old.tx_hash is distinct from new.tx_hash
    or (old.calls_left > 0) is distinct from (new.calls_left > 0))
  execute function notify_access();
create trigger notify_no_access after delete on access for each row execute function notify_access();

-- A product that opens a paywall, too, can prolong anybody's access.
create function notify_paywall_access() returns trigger language plpgsql as $$
begin
  perform pg_notify('sluice', 'access ' || old.id);
  return null;
end $$;
create trigger notify_access after update on paywalls for each row
  when (old.subscription_product_id is distinct from new.subscription_product_id)
  execute function notify_paywall_access();
create trigger notify_no_access after delete on paywalls for each row execute function notify_paywall_access();
