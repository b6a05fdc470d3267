-- What all merchants together cost in 24 hours is summed from this index alone. The same for one merchant, where the amount
-- says whether a payout was small.
create index intents_gas_of_all on intents (gas_cost_at) include (gas_cost, chain_id, lane) where gas_cost is not null;
create index intents_gas_of_merchant on intents (merchant_id, gas_cost_at) include (gas_cost, lane, chain_id, token, amount)
  where gas_cost is not null;
drop index intents_gas;
