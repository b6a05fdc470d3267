-- All deliveries of a merchant are listed, those to a callback URL too, and those of one session.
create index deliveries_of_merchant on deliveries (merchant_id, created_at desc, id desc);
create index deliveries_of_order on deliveries (merchant_id, order_key);

-- When a secret was shown: it is shown once. Webhooks' secrets were all shown when they were made. Of an account's nobody
-- knows, so that one may be shown once more.
alter table webhook_secrets add column shown_at timestamptz;
update webhook_secrets set shown_at = created_at where webhook_id is not null;
