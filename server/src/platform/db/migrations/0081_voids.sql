-- Whose request closed an invoice: a subscriber that cancels and takes it back again and again uses that up, and its merchant's pauses do not.
--
-- Locks: `invoices` against reads and writes until all migrations of this start are committed; it is neither read nor rewritten.
alter table invoices add column void_asked_by text check (void_asked_by in ('merchant', 'subscriber'));
