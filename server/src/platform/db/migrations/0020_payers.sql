-- The list of payers has those of escrow payments, too: each page asks whether a payer has reserved anything later.
--
-- Locks: writes of escrows wait while the index is built, about a second for a million reservations.
create index escrows_of_payer on escrows (merchant_id, payer, authorized_at desc, session_id desc) where authorized > 0;
