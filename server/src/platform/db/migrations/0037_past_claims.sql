-- Which payments held a transfer earlier and made payouts of it. After a reorg of a payment over several receiving
-- addresses its transfers count for several payments; what was paid out of them counts for whichever holds them.

create table past_claims (
  transfer_id bigint not null references transfers on delete cascade,
  payment_id text not null references payments on delete cascade,
  primary key (transfer_id, payment_id)
);
create index past_claims_of_payment on past_claims (payment_id);

create function keep_past_claims() returns trigger language plpgsql as $$
begin
  insert into past_claims (transfer_id, payment_id)
    select r.transfer_id, r.payment_id from removed r
    where exists (select from payouts i where i.payment_id = r.payment_id and i.kind in ('share', 'return'))
      and not exists (select from claims c where c.transfer_id = r.transfer_id and c.payment_id = r.payment_id)
    on conflict do nothing;
  return null;
end $$;
create trigger claims_keep_past_removed after delete on claims
  referencing old table as removed for each statement execute function keep_past_claims();
create trigger claims_keep_past_moved after update on claims
  referencing old table as removed for each statement execute function keep_past_claims();
