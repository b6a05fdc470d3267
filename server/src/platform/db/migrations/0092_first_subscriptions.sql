-- A trial and the days of grace are given once to each payer of a product, however often that payer subscribes to it. A row names the
-- subscription that has them. The key decides between subscriptions that begin at the same time.
--
-- Locks: `subscriptions` against reads and writes until all migrations of this start are committed. Subscriptions that have begun keep
-- what they were given.
alter table subscriptions add column is_first boolean not null default true, add column has_trial boolean not null default true;

create table first_subscriptions (
  payer evm_address not null,
  product_id text not null references products,
  subscription_id text not null references subscriptions,
  primary key (payer, product_id)
);
create index first_subscriptions_of on first_subscriptions (subscription_id);

insert into first_subscriptions (payer, product_id, subscription_id)
select distinct on (s.payer, had.product_id) s.payer, had.product_id, s.id
from subscriptions s
  cross join lateral (select s.product_id union select i.product_id from invoices i
    where i.subscription_id = s.id and i.paid_at is not null) had
where s.payer is not null and s.status is not null
order by s.payer, had.product_id, s.started_at, s.id;
