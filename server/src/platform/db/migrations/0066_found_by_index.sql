-- Some questions read a whole table, as no index answered them: what was submitted to a checkout, or by an address to a paywall (the
-- indexes that begin with the resource are partial, and the statements do not name their condition); which share another replaces; the
-- payments in a foreign token; the other checkouts of a link. Of a million submissions the first was 0.13 s, each time a page asked for the
-- state of its checkout. And each payment at a paywall read all transfers of its sender, to find the one that was due.
--
-- Locks: while the indexes are built, these tables can be read and not written to: some seconds for each million rows. They are taken
-- first, in the order in which an older process writes to them.
lock table checkout_sessions, transfers, payments, submissions, payouts in share mode;
create index checkout_sessions_of_link on checkout_sessions (link_id) where link_id is not null and status <> 'confirmed';
create index transfers_due_of_payer on transfers (deposit_id, from_address) where run_at is not null;
create index payments_of_deposit on payments (deposit_id, token);
create index submissions_of_resource on submissions (resource_id, address);
create index payouts_replacing on payouts (replaces) where replaces is not null;
