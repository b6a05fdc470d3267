-- What an API key opens. The keys that are there open what they always did.
--
-- Locks: `api_keys` against reads and writes until all migrations of this start are committed; no row is rewritten.
alter table api_keys add column scopes text[] not null default '{checkouts}'
  check (scopes <@ array['checkouts', 'read', 'console'] and cardinality(scopes) between 1 and 3);

drop trigger api_keys_audit on api_keys;
create trigger api_keys_audit after insert or update of name, hash, scopes or delete on api_keys for each row
  execute function write_audit_entry('api_key', 'id', 'name,prefix,last4,scopes', '');
