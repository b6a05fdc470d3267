-- Paid calls that are being forwarded. A row that outlives its lease is of a process that was killed: its payer got no answer.
create table calls_in_progress (
  payment_id text primary key,
  lease_until timestamptz not null
);
