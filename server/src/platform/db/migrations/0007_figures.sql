-- The figures of the overview and the balances: each transaction that changes one inserts a delta, and the worker folds deltas.

create table figure_deltas (
  merchant_id text not null,
  at timestamptz not null,
  n bigint generated always as identity,
  chain_id integer not null,
  token text not null,
  figure text not null check (figure in ('received', 'reversed', 'reserved', 'captured', 'released', 'returned', 'refunded', 'shares',
    'swept', 'recovered', 'unknown', 'checkouts', 'paid', 'converted')),
  amount numeric(78,0) not null,
  count integer not null,
  primary key (merchant_id, at, n)
);
comment on table figure_deltas is
  'Changes of figures that are not folded yet. Only triggers write it, in the transaction of the change; whoever folds a row '
  'deletes it.';
comment on column figure_deltas.at is
  'The time of the entry of the books. What a reorg removes subtracts when that was noticed.';
comment on column figure_deltas.token is 'Empty for counts of checkouts.';
comment on column figure_deltas.figure is 'The column of `figures`; what is received is counted in `transfers` too.';
comment on column figure_deltas.amount is 'In base units, below zero where an entry is no longer in the books.';

create table figures (
  merchant_id text not null,
  seconds integer not null check (seconds in (0, 900, 3600, 21600, 86400)),
  at timestamptz not null,
  chain_id integer not null,
  token text not null,
  received numeric(78,0),
  reversed numeric(78,0),
  reserved numeric(78,0),
  captured numeric(78,0),
  released numeric(78,0),
  returned numeric(78,0),
  refunded numeric(78,0),
  shares numeric(78,0),
  swept numeric(78,0),
  recovered numeric(78,0),
  unknown numeric(78,0),
  transfers bigint,
  checkouts bigint,
  paid bigint,
  converted bigint,
  primary key (merchant_id, seconds, at, chain_id, token)
) with (fillfactor = 80);
comment on table figures is
  'Sums of the folded deltas in quarters of an hour of UTC, hours, six hours, days and all time: whatever the zone, a '
  'period is made of few rows.';
comment on column figures.seconds is 'How long the row''s time is, from `at` on; 0: all time, with 1970 as `at`.';
comment on column figures.token is 'Empty for counts of checkouts.';
comment on column figures.received is
  'Of the sums, most are of nothing: those are null, not 0, which a sum of many rows does not add up.';
comment on column figures.converted is
  'Of the checkouts made in this time, those that are paid; `paid` are those that were paid in it.';

-- Which figure an entry of the books counts in; null for none.
create function figure_of(reason text) returns text language sql immutable as $$
  select case reason when 'reserve' then 'reserved' when 'capture' then 'captured' when 'void' then 'released'
    when 'reclaim' then 'released' when 'return' then 'returned' when 'given_back' then 'returned' when 'refund' then 'refunded'
    when 'share' then 'shares' when 'sweep' then 'swept' when 'recovery' then 'recovered' when 'unknown' then 'unknown' end
$$;

-- A transfer that a reorg removes stays in what was received, and counts as reversed when that was noticed.
create function count_transfer() returns trigger language plpgsql as $$
begin
  if tg_op = 'UPDATE' and old.state in ('confirmed', 'final') then
    if new.state = 'gone' then
      insert into figure_deltas (merchant_id, at, chain_id, token, figure, amount, count)
        values (old.merchant_id, greatest(new.reorged_at, old.block_time), old.chain_id, old.token, 'reversed', old.value, 1);
      return null;
    end if;
    insert into figure_deltas (merchant_id, at, chain_id, token, figure, amount, count)
      values (old.merchant_id, old.block_time, old.chain_id, old.token, 'received', -old.value, -1);
  end if;
  if new.state in ('confirmed', 'final') then
    insert into figure_deltas (merchant_id, at, chain_id, token, figure, amount, count)
      values (new.merchant_id, new.block_time, new.chain_id, new.token, 'received', new.value, 1);
  end if;
  return null;
end $$;

create function count_payout() returns trigger language plpgsql as $$
begin
  if tg_op = 'UPDATE' and old.state in ('mined', 'final') and old.succeeded is distinct from false and figure_of(old.kind) is not null then
    insert into figure_deltas (merchant_id, at, chain_id, token, figure, amount, count)
      values (old.merchant_id, old.mined_at, old.chain_id, old.token, figure_of(old.kind), -old.amount, -1);
  end if;
  if new.state in ('mined', 'final') and new.succeeded is distinct from false and figure_of(new.kind) is not null then
    insert into figure_deltas (merchant_id, at, chain_id, token, figure, amount, count)
      values (new.merchant_id, new.mined_at, new.chain_id, new.token, figure_of(new.kind), new.amount, 1);
  end if;
  return null;
end $$;

-- What a payout carried out is the payout's entry.
create function count_outflow() returns trigger language plpgsql as $$
begin
  if tg_op <> 'INSERT' and old.payout_id is null then
    insert into figure_deltas (merchant_id, at, chain_id, token, figure, amount, count)
      values (old.merchant_id, old.block_time, old.chain_id, old.token, figure_of(old.reason), -old.amount, -1);
  end if;
  if tg_op <> 'DELETE' and new.payout_id is null then
    insert into figure_deltas (merchant_id, at, chain_id, token, figure, amount, count)
      values (new.merchant_id, new.block_time, new.chain_id, new.token, figure_of(new.reason), new.amount, 1);
  end if;
  return null;
end $$;

create function count_reclaim() returns trigger language plpgsql as $$
begin
  if old.reclaimed > 0 then
    insert into figure_deltas (merchant_id, at, chain_id, token, figure, amount, count)
      values (old.merchant_id, old.reclaimed_at, old.chain_id, old.token, 'released', -old.reclaimed, -1);
  end if;
  if new.reclaimed > 0 then
    insert into figure_deltas (merchant_id, at, chain_id, token, figure, amount, count)
      values (new.merchant_id, new.reclaimed_at, new.chain_id, new.token, 'released', new.reclaimed, 1);
  end if;
  return null;
end $$;

create function count_checkout() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' then
    insert into figure_deltas (merchant_id, at, chain_id, token, figure, amount, count)
      values (new.merchant_id, new.created_at, new.chain_id, '', 'checkouts', 0, 1);
  elsif new.status in ('confirmed', 'partially_refunded', 'refunded') then
    insert into figure_deltas (merchant_id, at, chain_id, token, figure, amount, count)
      values (new.merchant_id, new.confirmed_at, new.chain_id, '', 'paid', 0, 1),
        (new.merchant_id, new.created_at, new.chain_id, '', 'converted', 0, 1);
  else
    insert into figure_deltas (merchant_id, at, chain_id, token, figure, amount, count)
      values (new.merchant_id, greatest(new.updated_at, old.confirmed_at), new.chain_id, '', 'paid', 0, -1),
        (new.merchant_id, new.created_at, new.chain_id, '', 'converted', 0, -1);
  end if;
  return null;
end $$;

create trigger transfers_count_added after insert on transfers for each row
  when (new.state in ('confirmed', 'final')) execute function count_transfer();
create trigger transfers_count_changed after update on transfers for each row
  when ((old.state in ('confirmed', 'final') or new.state in ('confirmed', 'final'))
    and (old.state in ('confirmed', 'final'), old.merchant_id, old.chain_id, old.token, old.value, old.block_time)
      is distinct from (new.state in ('confirmed', 'final'), new.merchant_id, new.chain_id, new.token, new.value, new.block_time))
  execute function count_transfer();
create trigger payouts_count_added after insert on payouts for each row
  when (new.state in ('mined', 'final') and new.kind not in ('authorize', 'settle', 'batch')) execute function count_payout();
create trigger payouts_count_changed after update on payouts for each row
  when (new.kind not in ('authorize', 'settle', 'batch') and (old.state in ('mined', 'final') or new.state in ('mined', 'final'))
    and (old.state in ('mined', 'final'), old.succeeded is false, old.merchant_id, old.amount, old.mined_at)
      is distinct from (new.state in ('mined', 'final'), new.succeeded is false, new.merchant_id, new.amount, new.mined_at))
  execute function count_payout();
create trigger outflows_count after insert or delete or update on outflows for each row execute function count_outflow();
create trigger escrows_count after update of reclaimed on escrows for each row
  when (old.reclaimed <> new.reclaimed) execute function count_reclaim();
-- A checkout that was put away and comes back has ended, and was counted.
create trigger checkout_sessions_count_made after insert on checkout_sessions for each row
  when (not new.agent and new.status = 'pending') execute function count_checkout();
create trigger checkout_sessions_count_paid after update of status on checkout_sessions for each row
  when (not new.agent and (old.status in ('confirmed', 'partially_refunded', 'refunded'))
    <> (new.status in ('confirmed', 'partially_refunded', 'refunded')))
  execute function count_checkout();

-- For the median time to pay.
create index checkout_sessions_paid_at on checkout_sessions (merchant_id, confirmed_at desc) include (created_at, chain_id)
  where confirmed_at is not null and not agent;
-- Those that did not end, by what they cost, from the index alone.
create index subscriptions_current on subscriptions (merchant_id, status, chain_id, product_id, billing_interval, billing_count)
  where status <> 'canceled';
create index subscriptions_ended on subscriptions (merchant_id, ended_at, chain_id) where ended_at is not null;

-- When the row of so many seconds begins that an entry is in.
create function figure_start(at timestamptz, seconds integer) returns timestamptz language sql immutable as $$
  select case seconds when 0 then 'epoch' else date_bin(make_interval(secs => seconds), at, 'epoch') end
$$;

create view figure_entries as
  select merchant_id, at, chain_id, token, coalesce(figure_of(reason), 'received') as figure, amount, 1 as count from books
  union all
  select merchant_id, created_at, chain_id, '', 'checkouts', 0, 1 from checkout_sessions where not agent
  union all
  select p.merchant_id, p.created_at, p.chain_id, '', 'checkouts', 0, 1
  from put_away p join put_away_terms t on t.id = p.terms_id where t.session -> 'agent' is distinct from 'true'
  union all
  select s.merchant_id, case figure when 'paid' then s.confirmed_at else s.created_at end, s.chain_id, '', figure, 0, 1
  from checkout_sessions s, unnest(array['paid', 'converted']) figure
  where not s.agent and s.status in ('confirmed', 'partially_refunded', 'refunded');
comment on view figure_entries is
  'What the figures are the sums of. Only what was reversed is not in it: that counts in `received` and in `reversed`.';

-- What was there before, for the worker to fold. Nothing is written to these tables until the end of this transaction, since each
-- has a new trigger.
insert into figure_deltas (merchant_id, at, chain_id, token, figure, amount, count)
  select merchant_id, date_bin('15 minutes', at, 'epoch'), chain_id, token, figure, sum(amount), sum(count)
  from figure_entries group by 1, 2, 3, 4, 5;
