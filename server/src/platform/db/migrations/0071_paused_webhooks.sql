-- A job skips what still waits for endpoints that are paused or deleted, and asks for these each minute.
--
-- Locks: `webhooks` against writes while the index is built: milliseconds.
create index webhooks_paused on webhooks (id) where not active;
