-- Since when a payout address is in force: the one that has been longest signs for the wallet lock. Those of before stand alike.
alter table payout_addresses add column since timestamptz not null default 'epoch';
alter table payout_addresses alter column since set default now();
