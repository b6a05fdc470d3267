-- Checking the two foreign keys took a third of the database's time for emitting an event. The statement that inserts an event finds its
-- merchant itself, and inserts the event's deliveries with it; nothing else inserts into either table, and no merchant is deleted.
--
-- Locks: `events`, `deliveries` and `merchants` against everything until all migrations of this start are committed; none is read or rewritten.
alter table events drop constraint events_merchant_id_fkey;
alter table deliveries drop constraint deliveries_event_id_fkey;

-- What the second one did when an event is deleted, whichever version's process deletes it.
create function forget_deliveries() returns trigger language plpgsql as $$
begin
  delete from deliveries d using gone where d.event_id = gone.id;
  return null;
end $$;
create trigger events_forget_deliveries after delete on events referencing old table as gone
  for each statement execute function forget_deliveries();
