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
