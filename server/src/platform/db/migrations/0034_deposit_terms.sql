-- Locks: `deposits`, `merchants`, `payments`, `paywall_versions` and `outflows` against reads and writes until all migrations of this
-- start are committed. `deposits` is rewritten once.

-- A deposit's address commits to who can get its money: its owner, the payees of its split, and whom its approver signed for. Deposits
-- made before this have addresses of an older factory, which this version does not serve. Nothing was deployed on a public
-- network, so they stay as rows whose money this version can't move, with terms that belong to no address.
alter table deposits add column approver evm_address not null default '0x0000000000000000000000000000000000000000';
alter table deposits add column payees_hash evm_hash not null
  default '0x0000000000000000000000000000000000000000000000000000000000000000';
-- Null without a split.
alter table deposits add column recipient_set_id bigint references recipient_sets;
alter table deposits alter column approver drop default, alter column payees_hash drop default;
-- Who signs returns: the payout address of each network, or the service. Null: what the mode's default is.
alter table merchants add column approver text check (approver in ('wallet', 'service'));
-- Who shares a payment is said by the address that it reached. Of an old address it was said last by its paywall's latest version.
update deposits d set recipient_set_id = coalesce(
  (select v.recipient_set_id from paywall_versions v where v.deposit_id = d.id order by v.n desc limit 1),
  (select s.recipient_set_id from checkout_sessions s where s.id = d.resource_id));
alter table payments drop column recipient_set_id;
alter table paywall_versions drop column recipient_set_id;
-- What a merchant sent back by its own signature, without the service.
alter table outflows drop constraint outflows_reason_check,
  add constraint outflows_reason_check check (reason in ('recovery', 'given_back', 'unknown'));
create or replace view books as select * from movements
  where state in ('confirmed', 'mined', 'final') and at is not null
    and (reason is null or reason in ('share', 'sweep', 'return', 'recovery', 'given_back', 'unknown'));
