-- Whose request closed an invoice: a subscriber that cancels and takes it back again and again uses that up, and its merchant's pauses do not.
alter table invoices add column void_asked_by text check (void_asked_by in ('merchant', 'subscriber'));
