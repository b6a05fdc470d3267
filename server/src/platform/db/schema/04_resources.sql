-- What is for sale, of every kind, and the slugs that name it.

create table resources (
  id text primary key,
  merchant_id text not null references merchants,
  chain_id integer not null,
  unique (id, merchant_id, chain_id)
);
comment on table resources is
  'Everything that is for sale, of every kind, with its merchant and network. The prefix of an id shows the kind. '
  'Triggers on the tables of the kinds maintain it.';

create table slugs (
  slug text primary key,
  resource_id text not null unique
);
comment on table slugs is 'A slug names one paywall, payment link or bundle, as all of them have the same paths.';

create table held_slugs (
  slug text primary key,
  merchant_id text not null references merchants,
  until_at timestamptz not null
);
comment on table held_slugs is
  'A slug that a merchant gives up is held for that merchant for 90 days: whoever took it earlier would be paid by '
  'those who follow the old address.';
