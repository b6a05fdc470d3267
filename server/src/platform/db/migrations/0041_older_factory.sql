-- Locks: `deposits` against reads and writes until all migrations of this start are committed. The table is rewritten once.

-- Which addresses are of a factory of the time before addresses named an approver: nothing here knows their terms. No other row may
-- look like one, as it would be left out of every comparison.
alter table deposits add column older_factory boolean not null default false;
update deposits set older_factory = true where approver = '0x0000000000000000000000000000000000000000';
create function keep_older_factory() returns trigger language plpgsql as $$
begin
  raise exception 'deposit % was made by this version, and stays so', new.id;
end $$;
create trigger deposits_none_older before insert on deposits for each row
  when (new.older_factory) execute function keep_older_factory();
create trigger deposits_keep_older before update of older_factory on deposits for each row
  when (new.older_factory is distinct from old.older_factory) execute function keep_older_factory();
drop index deposits_of_older_factory;
create index deposits_of_older_factory on deposits (id) where older_factory;
