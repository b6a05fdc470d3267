-- Payments are found by what their checkout is of, in the order of their list.
--
-- Locks: `payments`, `escrows` and `checkout_sessions` against writes until all migrations of this start are committed. No row of theirs
-- is rewritten; each payment for a checkout gets a row for each of its checkout's terms.
create table transaction_terms (
  merchant_id text not null,
  term uuid not null,
  created_at timestamptz not null,
  transaction_id text not null,
  primary key (merchant_id, term, created_at, transaction_id)
);
comment on table transaction_terms is 'What payments for checkouts are found by: product, link, capture, e-mail address and fields of metadata. Triggers maintain it. A filter reads it in the order of its key. With the checkouts that match, a filter would cost as much as there are of them.';
comment on column transaction_terms.term is 'The MD5 of a name and a value, as `terms_of_checkout` makes it: no personal data, and 16 bytes of each.';
comment on column transaction_terms.created_at is 'The payment''s; of one through escrow, when it was authorized.';
comment on column transaction_terms.transaction_id is 'The payment''s id; of one through escrow, the checkout''s.';

-- One field of metadata; the merchant chooses both of it, so the key has a fixed length.
create function field_term(key text, value text) returns uuid language sql immutable as $$
  select md5('field:' || md5(left(key, 200)) || lower(left(value, 200)))::uuid
$$;

create function terms_of_checkout(s checkout_sessions) returns setof uuid language sql immutable as $$
  select md5(t)::uuid from unnest(array['capture:' || s.capture, 'product:' || s.product_id, 'link:' || s.link_id,
    'email:' || lower(s.customer_email)]) t where t is not null
  union select field_term(f.key, f.value) from metadata_terms(s.metadata) f
$$;

-- For each statement: the worker settles many payments with one.
create function add_payment_terms() returns trigger language plpgsql as $$
begin
  insert into transaction_terms (merchant_id, term, created_at, transaction_id)
    select p.merchant_id, t, p.created_at, p.id from made p
      join checkout_sessions s on s.id = p.resource_id, terms_of_checkout(s) t
    where starts_with(p.resource_id, 'cs_');
  return null;
end $$;

create function drop_payment_terms() returns trigger language plpgsql as $$
begin
  delete from transaction_terms t using checkout_sessions s
    where s.id = old.resource_id and t.merchant_id = old.merchant_id and t.term in (select terms_of_checkout(s))
      and t.created_at = old.created_at and t.transaction_id = old.id;
  return null;
end $$;

create function keep_escrow_terms() returns trigger language plpgsql as $$
begin
  delete from transaction_terms t using checkout_sessions s
    where s.id = old.session_id and t.merchant_id = old.merchant_id and t.term in (select terms_of_checkout(s))
      and t.created_at = old.authorized_at and t.transaction_id = old.session_id;
  insert into transaction_terms (merchant_id, term, created_at, transaction_id)
    select new.merchant_id, t, new.authorized_at, s.id from checkout_sessions s, terms_of_checkout(s) t
    where s.id = new.session_id and new.authorized_at is not null and new.authorized > 0;
  return null;
end $$;

-- The checkout's row is locked by whoever writes a payment for it, so no payment of an uncommitted transaction is left out.
create function keep_transaction_terms() returns trigger language plpgsql as $$
declare
  paid record;
begin
  for paid in
    select p.id, p.created_at from payments p where p.resource_id = new.id
    union all select e.session_id, e.authorized_at from escrows e where e.session_id = new.id and e.authorized_at is not null and e.authorized > 0
  loop
    delete from transaction_terms t
      where t.merchant_id = old.merchant_id and t.term in (select terms_of_checkout(old)) and t.created_at = paid.created_at
        and t.transaction_id = paid.id;
    insert into transaction_terms (merchant_id, term, created_at, transaction_id)
      select new.merchant_id, t, paid.created_at, paid.id from terms_of_checkout(new) t;
  end loop;
  return null;
end $$;

create trigger payments_add_terms after insert on payments referencing new table as made for each statement
  execute function add_payment_terms();
create trigger payments_drop_terms after delete on payments for each row when (starts_with(old.resource_id, 'cs_'))
  execute function drop_payment_terms();
create trigger escrows_keep_terms after update of authorized_at, authorized on escrows for each row
  when (new.authorized_at is distinct from old.authorized_at or (new.authorized > 0) <> (old.authorized > 0)) execute function keep_escrow_terms();
create trigger checkout_sessions_keep_transaction_terms after update of metadata, customer_email on checkout_sessions for each row
  when (new.metadata is distinct from old.metadata or new.customer_email is distinct from old.customer_email)
  execute function keep_transaction_terms();

insert into transaction_terms (merchant_id, term, created_at, transaction_id)
  select p.merchant_id, t, p.created_at, p.id from payments p join checkout_sessions s on s.id = p.resource_id, terms_of_checkout(s) t
    where starts_with(p.resource_id, 'cs_')
  union all select e.merchant_id, t, e.authorized_at, e.session_id from escrows e join checkout_sessions s on s.id = e.session_id,
    terms_of_checkout(s) t where e.authorized_at is not null and e.authorized > 0;
