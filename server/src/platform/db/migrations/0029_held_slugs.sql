-- A slug that a merchant gives up is held for that merchant for 90 days: whoever else took it at once would be paid by those
-- who still follow the old address.
create table held_slugs (
  slug text primary key,
  merchant_id text not null references merchants,
  until_at timestamptz not null
);

create or replace function keep_slug() returns trigger language plpgsql as $$
begin
  if tg_op = 'UPDATE' then
    delete from slugs where resource_id = old.id;
    -- The other of two that had it before the table above was made.
    insert into slugs
      select slug, id from (select slug, id from paywalls union all select slug, id from payment_links) named
        where slug = old.slug and id <> old.id
      on conflict do nothing;
    if old.slug is not null then
      insert into held_slugs values (old.slug, old.merchant_id, new.updated_at + interval '90 days')
        on conflict (slug) do update set merchant_id = excluded.merchant_id, until_at = excluded.until_at;
    end if;
  end if;
  if new.slug is not null then
    if exists (select from held_slugs h where h.slug = new.slug and h.merchant_id <> new.merchant_id
        and h.until_at > new.updated_at) then
      raise exception 'the slug % is held for another merchant', new.slug
        using errcode = 'unique_violation', constraint = 'held_slugs_pkey';
    end if;
    insert into slugs values (new.slug, new.id);
  end if;
  return null;
end $$;
