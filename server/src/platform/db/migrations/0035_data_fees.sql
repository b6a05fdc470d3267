-- What the data of a signed transaction may cost beside its gas, in wei: rollups charge it when the transaction is mined. Zero for
-- what was signed before this was written down, which is soon mined.
--
-- Locks: `transaction_attempts` against reads and writes until all migrations of this start are committed. Its rows are read once.
alter table transaction_attempts add column data_fee numeric(78,0) not null default 0
  constraint transaction_attempts_data_fee check (data_fee >= 0);
