-- What an overpayment brought beyond its price: it waits in its deposit for the merchant, as other money does that needs a
-- decision. A payment that was granted before this has none: all of it was counted, and may be paid out.

create table surpluses (
  payment_id text primary key references payments on delete cascade,
  -- The transfer that holds it; all of it is one sender's, and in one deposit.
  transfer_id bigint not null references transfers,
  deposit_id bigint not null references deposits,
  token evm_address not null,
  amount base_units not null check (amount > 0),
  state text not null check (state in ('open', 'accepted', 'returned')),
  returned_at timestamptz,
  returned_to evm_address,
  check ((state = 'returned') = (returned_at is not null) and (returned_at is null) = (returned_to is null))
);
create index surpluses_of_transfer on surpluses (transfer_id);
create index surpluses_open_at on surpluses (deposit_id, token) where state = 'open';

-- What is left out of the payouts of the payment that a transfer counts for, in these states of the surplus.
create function withheld(transfer bigint, states text[]) returns numeric language sql stable as $$
  select coalesce((select sum(s.amount) from surpluses s
    join claims c on c.transfer_id = s.transfer_id and c.payment_id = s.payment_id
    join payments p on p.id = s.payment_id and p.status = 'granted'
    where s.transfer_id = $1 and s.state = any($2)), 0)
$$;

create or replace function room_in(deposit bigint, token text) returns numeric language sql stable as $$
  select coalesce((select b.inflow - b.committed from deposit_books b where b.deposit_id = $1 and b.token = $2), 0)
    - coalesce((select sum(p.amount) from payments p where p.deposit_id = $1 and p.token = $2 and p.status = 'open'), 0)
    - coalesce((select sum(withheld(s.transfer_id, '{open}')) from surpluses s
        where s.deposit_id = $1 and s.token = $2 and s.state = 'open'), 0)
$$;

-- A return that is cancelled before it was signed has moved nothing: the merchant may decide anew.
create or replace function reopen_payment() returns trigger language plpgsql as $$
begin
  update payments set status = 'open', returned_at = null, returned_to = null, updated_at = new.updated_at
    where id = new.payment_id and status = 'returned';
  update surpluses set state = 'open', returned_at = null, returned_to = null
    where payment_id = new.payment_id and state = 'returned';
  return null;
end $$;
