-- While the scan is behind, an escrow's time is that of the newest scanned block and ten minutes (`jobs/chain-clock.ts`). A call that became
-- final made its escrow due at a later time than that, so nobody was notified of it until the scan had caught up.
create or replace function wake_escrow() returns trigger language plpgsql as $$
begin
  update escrows set run_at = least(new.updated_at, clock_timestamp(),
      (select c.block_time + interval '10 minutes' from cursors c where c.chain_id = new.chain_id))
    where session_id = new.escrow_id;
  return null;
end $$;
