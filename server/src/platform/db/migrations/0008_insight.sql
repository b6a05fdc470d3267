-- What merchants look for: events of one thing, checkouts by their terms, payments by payer and amount, and payouts alone.

-- Not filled for older events, which go away within WEBHOOK_RETENTION: those that were sent anywhere are found by their deliveries.
alter table events add column order_key text;
comment on column events.order_key is 'What it is about: the id of a session, payment or subscription. Null for events of versions that did not store it.';
create index events_of_object on events (merchant_id, order_key, created_at desc, id desc) where order_key is not null;

create index checkout_sessions_of_product on checkout_sessions (product_id, created_at desc, id desc) where product_id is not null;
create index checkout_sessions_of_slug on checkout_sessions (link_id, created_at desc, id desc) where link_id is not null;
create index checkout_sessions_of_chain on checkout_sessions (merchant_id, chain_id, created_at desc, id desc);
create index checkout_sessions_of_capture on checkout_sessions (merchant_id, capture, created_at desc, id desc) where capture <> 'direct';
create index checkout_sessions_of_email on checkout_sessions (merchant_id, lower(customer_email), created_at desc, id desc) where customer_email is not null;
create index checkout_sessions_of_payer on checkout_sessions (merchant_id, payer, created_at desc, id desc) where payer is not null;
create index checkout_sessions_of_amount on checkout_sessions (merchant_id, amount, created_at desc, id desc);

-- With the order of a list, so that a payer of many payments costs no sort.
drop index payments_of_sender;
create index payments_of_sender on payments (merchant_id, payer, created_at desc, id desc);
create index payments_of_amount on payments (merchant_id, amount, created_at desc, id desc);
create index payments_of_chain on payments (merchant_id, chain_id, created_at desc, id desc);

create index subscriptions_of_email on subscriptions (merchant_id, lower(customer_email), started_at desc, id desc)
  where customer_email is not null and started_at is not null;

create index payouts_listed on payouts (merchant_id, created_at desc, (id::text) desc)
  where kind = any (array['share', 'sweep', 'return', 'capture']);
create index payouts_listed_open on payouts (merchant_id, state, created_at desc, (id::text) desc)
  where kind = any (array['share', 'sweep', 'return', 'capture']) and state <> 'final';

create table checkout_terms (
  merchant_id text not null,
  value text not null,
  key text not null,
  created_at timestamptz not null,
  session_id text not null,
  primary key (merchant_id, value, key, created_at, session_id)
);
comment on table checkout_terms is 'The fields of checkouts'' metadata, by which they are found: at most 50 of each, those with text, a number, true or false. Triggers maintain it. A filter reads it in the order of its key, so that a value that a million checkouts have costs what a rare one does.';
comment on column checkout_terms.value is 'In lower case, at most its first 200 characters; key too is cut there.';
comment on column checkout_terms.created_at is 'The checkout''s.';

create function metadata_terms(metadata jsonb) returns table (key text, value text) language sql immutable as $$
  select left(f.key, 200), lower(left(f.value #>> '{}', 200))
  from jsonb_each(case when jsonb_typeof(metadata) = 'object' then metadata end) f
  where jsonb_typeof(f.value) in ('string', 'number', 'boolean') and f.value #>> '{}' <> ''
  limit 50
$$;

create function keep_checkout_terms() returns trigger language plpgsql as $$
begin
  if tg_op <> 'INSERT' then
    delete from checkout_terms t using metadata_terms(old.metadata) was
      where t.merchant_id = old.merchant_id and t.value = was.value and t.key = was.key and t.created_at = old.created_at
        and t.session_id = old.id;
  end if;
  if tg_op <> 'DELETE' then
    insert into checkout_terms (merchant_id, value, key, created_at, session_id)
      select new.merchant_id, f.value, f.key, new.created_at, new.id from metadata_terms(new.metadata) f
      on conflict do nothing;
  end if;
  return null;
end $$;

create trigger checkout_sessions_keep_terms after insert on checkout_sessions for each row
  when (new.metadata is not null) execute function keep_checkout_terms();
create trigger checkout_sessions_keep_changed_terms after update of metadata on checkout_sessions for each row
  when (new.metadata is distinct from old.metadata) execute function keep_checkout_terms();
create trigger checkout_sessions_keep_no_terms after delete on checkout_sessions for each row
  when (old.metadata is not null) execute function keep_checkout_terms();

insert into checkout_terms (merchant_id, value, key, created_at, session_id)
  select s.merchant_id, f.value, f.key, s.created_at, s.id from checkout_sessions s, metadata_terms(s.metadata) f
  where s.metadata is not null
  on conflict do nothing;

-- What is sold, by the beginning of its name.
create index paywalls_of_name on paywalls (merchant_id, lower(name) text_pattern_ops);
create index products_of_name on products (merchant_id, lower(name) text_pattern_ops);
create index payment_links_of_name on payment_links (merchant_id, lower(title) text_pattern_ops);
create index bundles_of_name on bundles (merchant_id, lower(name) text_pattern_ops);
