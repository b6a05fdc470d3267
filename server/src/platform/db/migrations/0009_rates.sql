-- What money is worth in a merchant's own currency, at the time of a payment.
--
-- Locks: `merchants` against reads and writes until all migrations of this start are committed; no row is rewritten.
create table rates (
  unit text not null check (unit ~ '^[A-Z0-9]{3,10}$'),
  published_at timestamptz not null,
  usd numeric not null check (usd > 0),
  source text not null check (source in ('ecb', 'fixed')),
  valid_until timestamptz check (valid_until > published_at),
  primary key (unit, published_at)
);
comment on table rates is
  'What one unit of a currency, or one token, is worth in US dollars from a time on. A row is never changed, and none is '
  'added where a value may have been read: so the value of a payment stays what it was.';
comment on column rates.unit is 'A currency of ISO 4217, or the symbol of a settlement token.';
comment on column rates.valid_until is 'Until when it counts if no newer one is published; null: until there is a newer one.';

create table rate_sources (
  source text primary key check (source in ('ecb', 'fixed')),
  complete_until timestamptz not null,
  next_at timestamptz not null
);
comment on table rate_sources is 'How far the rates of a source are known. Later amounts have no value yet.';
comment on column rate_sources.next_at is 'When the source is asked again.';

create function keep_rates() returns trigger language plpgsql as $$
begin
  raise exception 'a rate is never changed or deleted: values that were reported depend on it';
end $$;
create trigger rates_keep before update or delete on rates for each row execute function keep_rates();
create trigger rates_keep_all before truncate on rates for each statement execute function keep_rates();

alter table merchants
  add column currency text not null default 'USD' check (currency ~ '^[A-Z]{3}$');
comment on column merchants.currency is 'The currency of ISO 4217 in which lists and reports show the value of its money.';
drop trigger merchants_audit on merchants;
create trigger merchants_audit after insert or update on merchants for each row
  execute function write_audit_entry('settings', 'merchant_id',
    'name,email,wallet_lock,approver,refund_per_day,return_per_day,currency', '');

-- The rate of one token in a currency at a time: that of the last rates published before, if they still counted and all up to then
-- are known. A dollar is a dollar, and so is a token that is worth one by design and has no rate. No row: the rate is not known.
create function rate_at(token text, currency text, at timestamptz)
  returns table (rate numeric, source text, published_at timestamptz) language sql stable as $$
  select round(t.usd / c.usd, 8), concat_ws('; ', nullif(c.source, 'par'), t.source), coalesce(c.published_at, t.published_at)
  from (
    (select r.usd, r.source, r.published_at, r.valid_until from rates r
      where $2 <> 'USD' and r.unit = $2 and r.published_at <= $3 order by r.published_at desc limit 1)
    union all select 1, 'par', null, null where $2 = 'USD'
  ) c, (
    select * from (
      (select r.usd, r.source || ' ' || $1 as source, r.published_at, r.valid_until from rates r
        where r.unit = $1 and r.published_at <= $3 order by r.published_at desc limit 1)
      union all select 1, $1 || ' at par', null, null where $1 = 'USDC'
    ) of_token limit 1
  ) t
  where (c.valid_until is null or c.valid_until >= $3) and (t.valid_until is null or t.valid_until >= $3)
    and (coalesce(c.published_at, t.published_at) is null or $3 <= (select max(s.complete_until) from rate_sources s))
$$;
