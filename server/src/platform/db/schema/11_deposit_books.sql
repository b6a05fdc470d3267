-- 11_deposit_books

create table deposit_books (
  deposit_id bigint not null references deposits,
  token evm_address not null,
  inflow base_units not null default 0,
  committed base_units not null default 0,
  shortfall base_units not null default 0,
  primary key (deposit_id, token),
  constraint books_balance check (committed <= (inflow + shortfall))
);
comment on table deposit_books is
  'What came into a deposit (confirmed) and what is promised out of it, kept by triggers. shortfall: promised and '
  'signed before a reorg removed the money; no further payout fits meanwhile.';
-- Deposits that hold money which no payout is for.
create index deposit_books_holding on deposit_books (deposit_id) where inflow > committed;

create table sweep_parts (
  payout_id uuid not null references payouts,
  transfer_id bigint not null references transfers,
  amount base_units not null check (amount > 0),
  primary key (payout_id, transfer_id)
);
comment on table sweep_parts is 'Which transfers a sweep takes, and how much of each.';
create index sweep_parts_of_transfer on sweep_parts (transfer_id);

create table past_claims (
  transfer_id bigint not null references transfers on delete cascade,
  payment_id text not null references payments on delete cascade,
  primary key (transfer_id, payment_id)
);
comment on table past_claims is 'A payment that held a transfer earlier, and made payouts from it.';
create index past_claims_of_payment on past_claims (payment_id);

create function add_inflow(deposit bigint, asset text, change numeric) returns void language plpgsql as $$
begin
  insert into deposit_books (deposit_id, token) values (deposit, asset) on conflict do nothing;
  update deposit_books set inflow = inflow + change, shortfall = greatest(0, committed - inflow - change)
    where deposit_id = deposit and token = asset;
end $$;

-- Whether the money of a promised payout is there, so that it may be signed.
create function has_money(i payouts) returns boolean language plpgsql stable as $$
begin
  return case
    when i.lane <> 'payout' then true
    when not i.reserved then false
    when i.kind = 'sweep' then room_in(i.deposit_id, i.token) >= 0 and not exists (
      select from sweep_parts s join transfers t on t.id = s.transfer_id
      where s.payout_id = i.id and (t.state not in ('confirmed', 'final') or t.single_source))
    when i.payment_id is null then true
    else own_room(i.payment_id, i.deposit_id, i.token) >= 0
      and (i.kind = 'return' or room_in(i.deposit_id, i.token) >= 0)
  end;
end $$;
