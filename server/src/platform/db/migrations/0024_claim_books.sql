-- What each payment's claims are: how many, and the sum of their transfers' ids. Kept by triggers, as deposit_books is, so
-- that the reconciliation finds a claim that was deleted or moved by hand, also where its payment was returned or reversed
-- and no amount tells of it.

create table claim_books (
  payment_id text primary key references payments on delete cascade,
  claims bigint not null,
  transfer_ids numeric not null
);

insert into claim_books (payment_id, claims, transfer_ids)
  select p.id, count(c.transfer_id), coalesce(sum(c.transfer_id), 0)
  from payments p left join claims c on c.payment_id = p.id group by 1;

create function open_claim_book() returns trigger language plpgsql as $$
begin
  insert into claim_books (payment_id, claims, transfer_ids) values (new.id, 0, 0);
  return null;
end $$;
create trigger payments_open_claim_book after insert on payments for each row execute function open_claim_book();

-- One per statement, whatever the number of its rows: a payment can be made of thousands of transfers.
create function keep_claim_books() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' then
    update claim_books b set claims = claims + changed.n, transfer_ids = transfer_ids + changed.ids
      from (select payment_id, count(*) as n, sum(transfer_id) as ids from added group by 1) as changed
      where b.payment_id = changed.payment_id;
  elsif tg_op = 'DELETE' then
    update claim_books b set claims = claims - changed.n, transfer_ids = transfer_ids - changed.ids
      from (select payment_id, count(*) as n, sum(transfer_id) as ids from removed group by 1) as changed
      where b.payment_id = changed.payment_id;
  else
    update claim_books b set claims = claims + changed.n, transfer_ids = transfer_ids + changed.ids
      from (select payment_id, sum(n) as n, sum(ids) as ids from (
          select payment_id, 1 as n, transfer_id as ids from added
          union all select payment_id, -1, -transfer_id from removed) as moved
        group by 1 having sum(n) <> 0 or sum(ids) <> 0) as changed
      where b.payment_id = changed.payment_id;
  end if;
  return null;
end $$;
create trigger claims_keep_books_added after insert on claims
  referencing new table as added for each statement execute function keep_claim_books();
create trigger claims_keep_books_removed after delete on claims
  referencing old table as removed for each statement execute function keep_claim_books();
create trigger claims_keep_books_moved after update on claims
  referencing old table as removed new table as added for each statement execute function keep_claim_books();
