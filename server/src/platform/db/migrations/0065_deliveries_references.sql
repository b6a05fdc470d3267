-- A delivery is inserted by the statement that inserts its event, whose merchant has been checked, and that reads its endpoint; merchants and
-- endpoints are never deleted. These two checks locked rows that all transactions of a merchant share, which took a tenth of what it
-- costs to emit an event.
--
-- Locks: `merchants`, `webhooks` and `deliveries` against reads and writes until all migrations of this start are committed. They are locked
-- first, in the order in which transactions take them: dropping a check locks `deliveries` before the other two, and among four clients that
-- emit was refused for a minute.
lock table merchants, webhooks, deliveries in access exclusive mode;
alter table deliveries drop constraint deliveries_merchant_id_fkey, drop constraint deliveries_webhook_id_fkey;
