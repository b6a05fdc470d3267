-- An authorization whose relay reverted may be relayed again, and so may another one with its nonce: the token takes a
-- nonce once, so only one of them moves money. Replaces the index that let only cancelled ones be submitted again.
drop index intents_of_authorization;
create unique index intents_of_authorization on intents (chain_id, token, payer, auth_nonce)
  where payer is not null and state not in ('cancelled', 'reverted');
