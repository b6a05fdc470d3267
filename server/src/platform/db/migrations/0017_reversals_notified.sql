-- Whether the newest word to the merchant about a session, or a paywall's payment, is that it was paid: then a reversal is an
-- event too. event_sequence numbers what was said, as events may arrive in another order.
alter table checkout_sessions add column notified_paid boolean not null default false,
  add column event_sequence integer not null default 0;
alter table payments add column notified_paid boolean not null default false,
  add column event_sequence integer not null default 0;

-- What is older than a week is final on every network, and can't be reversed.
update checkout_sessions s set notified_paid = true, event_sequence = 1
  where s.updated_at > now() - interval '7 days' and exists (select from events e
    where e.merchant_id = s.merchant_id and e.dedupe_key = 'checkout.session.completed:' || s.id);
update payments p set notified_paid = true, event_sequence = 1
  where p.paywall_id is not null and p.updated_at > now() - interval '7 days' and exists (select from events e
    where e.merchant_id = p.merchant_id and e.dedupe_key = 'checkout.session.completed:' || p.id);
