-- One `resource_id` in place of one nullable column for each kind of thing that is for sale. A new kind is a table that
-- registers its rows in `resources`, and no column anywhere else.
--
-- Locks: `paywalls`, `checkout_sessions`, `deposits`, `submissions` and `payments` are locked against reads and writes until all
-- migrations of this start are committed. Each of the last three is rewritten once, with its indexes, and read once more by each
-- new foreign key; the first two are read once to register them and once by their foreign key.

-- What is for sale: its merchant and its network. The prefix of an id shows the kind.
create table resources (
  id text primary key,
  merchant_id text not null references merchants,
  chain_id integer not null,
  -- What the rows of others refer to, so that none of them can name another merchant or network than the thing's own.
  unique (id, merchant_id, chain_id)
);
insert into resources select id, merchant_id, chain_id from paywalls
  union all select id, merchant_id, chain_id from checkout_sessions;

-- For each table of things that are for sale. What has deposits or payments can't be deleted: they refer to the resource.
create function register_resource() returns trigger language plpgsql as $$
begin
  insert into resources (id, merchant_id, chain_id) values (new.id, new.merchant_id, new.chain_id);
  return new;
end $$;
create function unregister_resource() returns trigger language plpgsql as $$
begin
  delete from resources where id = old.id;
  return null;
end $$;
create trigger paywalls_register before insert on paywalls for each row execute function register_resource();
create trigger paywalls_unregister after delete on paywalls for each row execute function unregister_resource();
create trigger checkout_sessions_register before insert on checkout_sessions
  for each row execute function register_resource();
create trigger checkout_sessions_unregister after delete on checkout_sessions
  for each row execute function unregister_resource();

-- The resource's reference to `merchants` stands for the one that each of these had.
alter table paywalls
  drop constraint paywalls_merchant_id_fkey,
  add constraint paywalls_prefix check (starts_with(id, 'pw_')),
  add constraint paywalls_resource foreign key (id, merchant_id, chain_id) references resources (id, merchant_id, chain_id);
alter table checkout_sessions
  drop constraint checkout_sessions_merchant_id_fkey,
  add constraint checkout_sessions_prefix check (starts_with(id, 'cs_')),
  add constraint checkout_sessions_resource foreign key (id, merchant_id, chain_id)
    references resources (id, merchant_id, chain_id);

drop view transactions;

-- A stored generated column is filled while the table is rewritten: an update would leave as many dead rows.
alter table deposits add column resource_id text not null generated always as (coalesce(paywall_id, session_id)) stored;
alter table deposits
  alter column resource_id drop expression,
  drop column paywall_id,
  drop column session_id,
  drop constraint deposits_merchant_id_fkey,
  add constraint deposits_resource foreign key (resource_id, merchant_id, chain_id)
    references resources (id, merchant_id, chain_id);
create index deposits_of_resource on deposits (resource_id);
-- A session has one address for all of its life.
create unique index deposits_of_session on deposits (resource_id) where starts_with(resource_id, 'cs_');
-- Which paywalls' addresses open next, so that those to be replaced are found without a look at all of them.
create index deposits_opening on deposits (open_after_s) where starts_with(resource_id, 'pw_');

-- by_sender: only a transfer that `address` sent answers it; otherwise one from anybody.
alter table submissions
  add column resource_id text not null generated always as (coalesce(paywall_id, session_id)) stored,
  add column by_sender boolean not null generated always as (paywall_id is not null) stored;
alter table submissions
  alter column resource_id drop expression,
  alter column by_sender drop expression,
  drop column paywall_id,
  drop column session_id,
  add constraint submissions_sender check (not by_sender or address is not null),
  add constraint submissions_resource foreign key (resource_id) references resources;
create unique index submissions_of_sender on submissions (resource_id, tx_hash, address) where by_sender;
create unique index submissions_of_anybody on submissions (resource_id, tx_hash) where not by_sender;

alter table payments add column resource_id text not null generated always as (coalesce(paywall_id, session_id)) stored;
alter table payments
  alter column resource_id drop expression,
  drop column paywall_id,
  drop column session_id,
  drop constraint payments_merchant_id_fkey,
  add constraint payments_resource foreign key (resource_id, merchant_id, chain_id)
    references resources (id, merchant_id, chain_id);
create index payments_of_payer on payments (resource_id, payer);
-- A session is paid once; beside that, several senders' money may wait, or may have been accepted or returned.
create unique index payments_once_a_session on payments (resource_id)
  where starts_with(resource_id, 'cs_') and status = 'granted' and not beside;

create or replace function set_deposit_facts() returns trigger language plpgsql as $$
begin
  new.merchant_id := (select merchant_id from resources where id = new.resource_id);
  new.balanced_number := (select block_number from cursors where chain_id = new.chain_id);
  return new;
end $$;

create or replace function set_merchant() returns trigger language plpgsql as $$
begin
  new.merchant_id := (select merchant_id from deposits where id = new.deposit_id);
  return new;
end $$;

create or replace function wake_session() returns trigger language plpgsql as $$
begin
  update checkout_sessions set run_at = new.updated_at
    where id = (select resource_id from deposits where id = new.deposit_id);
  return null;
end $$;

create view transactions as
  select id, merchant_id, 'payment'::text as type, status, exception, chain_id, token::text as token,
    amount::numeric(78,0) as amount, tx_hash::text as tx_hash, payer::text as payer, null::text as recipient, resource_id,
    id as payment_id, created_at
  from payments
  union all
  -- What an authorization brings in is listed as the payment that it makes.
  select i.id::text, i.merchant_id, i.kind, i.state, null, i.chain_id, i.token::text, i.amount::numeric(78,0),
    i.tx_hash::text, null, i.recipient::text, d.resource_id, i.payment_id, i.created_at
  from intents i left join deposits d on d.id = i.deposit_id where i.kind <> 'authorize';
