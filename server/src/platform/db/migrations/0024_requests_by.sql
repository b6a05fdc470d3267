-- Requests by servers are read apart from those by people: an open console reads all day.
--
-- Locks: writes of the log wait while the indexes are built, about two seconds for a million requests. Answers don't wait for the log.
create index requests_of_keys on requests (merchant_id, at, n) where api_key_id is not null;
create index requests_of_people on requests (merchant_id, at, n) where api_key_id is null;
