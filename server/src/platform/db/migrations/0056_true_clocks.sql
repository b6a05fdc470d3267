-- A process whose clock is fast and that ended a call must not have made its escrow due at its own time: others would look days later.
create or replace function wake_escrow() returns trigger language plpgsql as $$
begin
  update escrows set run_at = least(new.updated_at, clock_timestamp()) where session_id = new.escrow_id;
  return null;
end $$;
