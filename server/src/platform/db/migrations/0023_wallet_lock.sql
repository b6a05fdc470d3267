-- While on, a merchant's payout address and the recipients of its splits change only with its payout wallet's signature.
alter table merchants add column wallet_lock boolean not null default false;
