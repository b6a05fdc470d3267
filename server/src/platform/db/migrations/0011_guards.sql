-- What payouts cost and may cost, and what of a wallet is in trouble.

-- What the transaction of an intent cost, in wei, by its receipt, and since when that is known; a reorg takes both back.
-- Null: not mined, mined before this was kept, or no node told.
alter table intents add column gas_cost base_units;
alter table intents add column gas_cost_at timestamptz;
alter table intents add constraint intents_gas_cost_known
  check ((gas_cost is null) = (gas_cost_at is null) and (gas_cost is null or tx_hash is not null));
-- What a merchant cost in a day, without a look at the rows themselves.
create index intents_gas on intents (merchant_id, gas_cost_at) include (gas_cost, lane) where gas_cost is not null;

alter table intents drop constraint intents_held_reason_check;
alter table intents add constraint intents_held_reason_check
  check (held_reason in ('short', 'sanctions', 'simulation', 'low_gas', 'reverted', 'gas_budget'));

-- Held while it is decided whether a merchant's payout fits its budget: the wallets of several networks have one budget.
create table gas_budgets (
  merchant_id text primary key references merchants
);

-- In the order in which they are taken: what is new before what failed before, so that neither has to be sorted.
drop index intents_due;
create index intents_due on intents (chain_id, lane, least(checks, 1), run_at, created_at, id) where state in ('queued', 'held');
create index intents_due_of_merchant on intents (merchant_id, chain_id, run_at) where state in ('queued', 'held');
-- Of a merchant: what waits for its budget, and what was signed and has no price yet.
create index intents_over_budget on intents (merchant_id, run_at) where held_reason = 'gas_budget';
create index intents_unpriced on intents (merchant_id) where state in ('assigned', 'mined') and gas_cost is null;
-- How many wait and why, and for how long, by the index alone.
create index intents_waiting on intents (chain_id, lane, state, held_reason) include (run_at, created_at)
  where state in ('queued', 'held', 'assigned', 'mined');

-- What a person should look at, as of the wallet's last round; told when it begins and when it ends.
alter table wallets add column alarms text[] not null default '{}';
