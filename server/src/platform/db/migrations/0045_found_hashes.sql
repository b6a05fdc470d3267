-- What somebody else carried out is looked up by its transaction, for each transfer that is settled.
create index settlements_of_found on settlements (found_hash) where found_hash is not null;
