-- A slug names one thing: it is unique over paywalls and payment links together, as both answer under /p/{slug}.
create table slugs (
  slug text primary key,
  resource_id text not null unique
);

-- Where a paywall and a link had one slug before, both keep it, and the older one has it here. A start warns of them.
insert into slugs
  select distinct on (slug) slug, id from (
    select slug, id, created_at from paywalls where slug is not null
    union all select slug, id, created_at from payment_links
  ) named order by slug, created_at, id;

create function keep_slug() returns trigger language plpgsql as $$
begin
  if tg_op = 'UPDATE' then
    delete from slugs where resource_id = old.id;
    -- The other of two that had it before the table above was made.
    insert into slugs
      select slug, id from (select slug, id from paywalls union all select slug, id from payment_links) named
        where slug = old.slug and id <> old.id
      on conflict do nothing;
  end if;
  if new.slug is not null then
    insert into slugs values (new.slug, new.id);
  end if;
  return null;
end $$;
create trigger paywalls_add_slug after insert on paywalls for each row when (new.slug is not null) execute function keep_slug();
create trigger paywalls_keep_slug after update of slug on paywalls for each row
  when (new.slug is distinct from old.slug) execute function keep_slug();
create trigger payment_links_add_slug after insert on payment_links for each row execute function keep_slug();
create trigger payment_links_keep_slug after update of slug on payment_links for each row
  when (new.slug is distinct from old.slug) execute function keep_slug();

-- The split that a session was made with, for its answer; its recipients were copied. Null in sessions of before.
alter table checkout_sessions add column split_id text;
