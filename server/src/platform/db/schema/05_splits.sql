-- How money is divided.

create table recipient_sets (
  id bigint generated always as identity primary key,
  created_at timestamptz not null
);
comment on table recipient_sets is
  'Who is paid which part. A set never changes, and what refers to it keeps it whatever becomes of the split. Each '
  'change of a split makes another set.';

create table recipients (
  set_id bigint not null references recipient_sets,
  position integer not null,
  address evm_address not null,
  percent_e4 integer not null check (percent_e4 between 1 and 1000000),
  label text,
  primary key (set_id, "position"),
  unique (set_id, address)
);
comment on table recipients is 'The recipients of a set and their parts.';
comment on column recipients.percent_e4 is 'Ten-thousandths of a percent: 1,000,000 is all of it.';

create table splits (
  id text primary key,
  merchant_id text not null references merchants,
  name text not null check (char_length(name) between 1 and 200),
  description text,
  set_id bigint not null references recipient_sets,
  created_at timestamptz not null,
  updated_at timestamptz not null
);
comment on table splits is 'A merchant''s named division of what it sells.';
create index splits_of_merchant on splits (merchant_id, created_at desc, id desc);
