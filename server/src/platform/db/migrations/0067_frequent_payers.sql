-- Each payment of a payer at a paywall read all that this payer had ever paid there: its transfers, payments, submissions and grants. The ten
-- thousandth took half a second, the first 50 ms, and others waited behind it.
--
-- Locks: `transfers`, `access`, `submissions`, `grants`, `claims` and `payments` against reads and writes until all migrations of this start are
-- committed: some seconds for each million transfers, and up to a minute for each million of payers with more than 100.
-- They are taken first, in the order in which an older process writes to them.
lock table access, transfers, payments, claims, submissions, grants in access exclusive mode;

-- Whether a payment that is granted or returned claims the transfer, so that it counts for nothing else. It may be false too long, which
-- costs a read, and is never true too long: settling sets it, and whatever lets go of the transfer takes it back, in an older process too.
alter table transfers add column applied boolean not null default false;
-- To write all of them again would take a minute for each million; a payer with a few is as quick without.
update transfers t set applied = true
  from (select deposit_id, from_address from transfers group by 1, 2 having count(*) > 100) frequent,
    claims c join payments p on p.id = c.payment_id
  where t.deposit_id = frequent.deposit_id and t.from_address = frequent.from_address and c.transfer_id = t.id
    and t.run_at is null and p.status in ('granted', 'returned');
create index transfers_unapplied on transfers (deposit_id, from_address) where not applied;

create function unapply_transfers() returns trigger language plpgsql as $$
begin
  update transfers t set applied = false from claims c where c.payment_id = new.id and t.id = c.transfer_id and t.applied;
  return null;
end $$;
create trigger payments_unapply_transfers after update of status on payments for each row
  when (old.status in ('granted', 'returned') and new.status not in ('granted', 'returned')) execute function unapply_transfers();

create function unapply_transfer() returns trigger language plpgsql as $$
begin
  update transfers set applied = false where id = old.transfer_id and applied;
  return null;
end $$;
create trigger claims_unapply_removed after delete on claims for each row execute function unapply_transfer();
create trigger claims_unapply_moved after update of payment_id on claims for each row
  when (old.payment_id <> new.payment_id) execute function unapply_transfer();

-- What the fold of an address's grants needs to go on with the next one: the last grant in it, until when calls are not counted, and how
-- many are left when they are. Without `folded_at` all grants are folded again; any change of a grant takes it away.
alter table access
  add column folded_at timestamptz,
  add column free_until timestamptz,
  add column calls_kept integer check (calls_kept >= 0),
  add check (folded_at is null or (since_at is not null and calls_kept is not null));

create function unfold_access() returns trigger language plpgsql as $$
declare
  changed grants := coalesce(new, old);
begin
  update access set folded_at = null
    where paywall_id = changed.paywall_id and address = changed.address and folded_at is not null;
  return null;
end $$;
-- Not `calls_used`, which `calls_left` follows.
create trigger grants_unfold_access after insert or delete or update of granted_at, duration_s, calls, revoked_at on grants
  for each row execute function unfold_access();

-- What is asked of a payer's submissions and grants at a paywall, by an index each.
drop index submissions_of_resource;
create index submissions_of_resource on submissions (resource_id, address, tx_hash);
create index submissions_verifying on submissions (resource_id, address) where status = 'verifying';
create index grants_revoked on grants (paywall_id, address) where revoked_by = 'merchant';
