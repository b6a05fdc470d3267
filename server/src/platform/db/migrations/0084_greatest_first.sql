-- What one settlement reads of an address is bounded: the transfers of most money, of all senders at a checkout, of one at a paywall. With
-- these indexes the others are not looked at, however many a stranger sends.
--
-- Locks: `transfers` against writes until all migrations of this start are committed: some seconds for each million transfers.
create index transfers_greatest on transfers (deposit_id, token, value desc, id) where not applied;
create index transfers_greatest_of_payer on transfers (deposit_id, from_address, token, value desc, id) where not applied;
-- The one before begins with the same columns.
drop index transfers_unapplied;
