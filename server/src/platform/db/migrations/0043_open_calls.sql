-- An agent makes thousands of calls to a bundle, and each is a payment: those that are not settled are found without the others.
--
-- Locks: `payments` against writes while the index is made, until all migrations of this start are committed.
create index payments_unsettled_of_payer on payments (resource_id, payer) where status in ('open', 'reversed');
