-- After a lost SECRET_KEY, nothing can be signed with a receipt key that was encrypted with it. Its row stays, as batches name it.
--
-- Locks: receipt_keys alone, for no longer than the catalogue takes; no row is rewritten.
alter table receipt_keys alter column sealed drop not null;
comment on column receipt_keys.sealed is 'The private key, sealed under SECRET_KEY. Null once that was lost: then the key signs nothing more.';
