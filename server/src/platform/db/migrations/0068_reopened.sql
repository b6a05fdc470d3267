-- A payment whose return failed or was cancelled, or whose surplus did, waits for the merchant's decision again. Nobody was notified of
-- that: the merchant had decided, and the money stayed where it was. Settling notifies the merchant, and takes the mark away.
--
-- Locks: `payments` and `surpluses` against reads and writes until all migrations of this start are committed; no row is rewritten.
alter table payments add column reopened boolean not null default false;
create index payments_reopened on payments (chain_id) where reopened;

-- Triggers, as processes of the version before reopen payments too, and `reopen_payment` does.
create function note_reopened() returns trigger language plpgsql as $$
begin
  new.reopened := true;
  return new;
end $$;
create trigger payments_note_reopened before update of status on payments for each row
  when (old.status = 'returned' and new.status = 'open') execute function note_reopened();

create function note_reopened_surplus() returns trigger language plpgsql as $$
begin
  update payments set reopened = true where id = new.payment_id;
  return null;
end $$;
create trigger surpluses_note_reopened after update of state on surpluses for each row
  when (old.state = 'returned' and new.state = 'open') execute function note_reopened_surplus();
