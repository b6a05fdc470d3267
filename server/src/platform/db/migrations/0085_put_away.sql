-- What strangers fill decides no longer how long the comparison of the books takes: it goes through the deposits in parts, continues where
-- it stopped, and asks for the logs of those alone that can have moved money.
--
-- Locks: `wallets` and `reconciliations`, of a few rows, against reads and writes; `deposits`, `deposit_books` and `payouts` against writes
-- while an index of each is built (some seconds for each million rows), until all migrations of this start are committed.
alter table wallets
  add column checked_to bigint,
  add column checked_position bigint,
  add constraint wallets_checked_part check ((checked_to is null) = (checked_position is null));
alter table reconciliations
  add column moved_to bigint,
  add column moved_position bigint,
  add constraint reconciliations_moved_part check ((moved_to is null) = (moved_position is null));

-- Deposits that hold money which no payout is for.
create index deposit_books_holding on deposit_books (deposit_id) where inflow > committed;
-- Deposits that money is about to leave.
create index payouts_leaving on payouts (chain_id, deposit_id) where state in ('queued', 'held', 'assigned', 'mined') and deposit_id is not null;
-- The factories of a network: one page for all deposits of one factory.
create index deposits_of_factory on deposits (chain_id, factory);

-- Unpaid checkouts that ended long ago, or of which a link has too many: some hundred bytes each in place of thousands. Nothing is lost: with its terms
-- such a row is again what it was, as soon as anybody asks for it or money is found at its address (`deposits/put-away.ts`).
create table put_away_terms (
  id bigint generated always as identity primary key,
  merchant_id text not null references merchants,
  -- What the rows refer to must not be deleted meanwhile.
  link_id text references payment_links,
  product_id text references products,
  recipient_set_id bigint references recipient_sets,
  -- All columns that are not in the small row.
  session jsonb not null,
  deposit jsonb not null,
  hash bytea not null,
  unique (merchant_id, hash)
);
create table put_away (
  id text primary key,
  merchant_id text not null references merchants,
  chain_id integer not null,
  terms_id bigint not null references put_away_terms,
  address bytea not null,
  salt bytea not null,
  open_after_s bigint not null,
  watched_number bigint not null,
  created_at timestamptz not null,
  expires_at timestamptz not null,
  updated_at timestamptz not null,
  check_at timestamptz not null,
  -- Hashes that were submitted to it and refused; null without any.
  submissions jsonb
);
create unique index put_away_address on put_away (address, chain_id);
create index put_away_of_merchant on put_away (merchant_id, id);
create index put_away_due on put_away (chain_id, check_at);
