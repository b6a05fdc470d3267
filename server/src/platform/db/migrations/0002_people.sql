-- Persons, and what each may do for which merchant, in place of the one subject that each merchant had. The subject of each merchant that
-- is there becomes its owner.
--
-- Locks: `merchants` against reads and writes until all migrations of this start are committed; no row is rewritten. Processes of the
-- version before can't find a merchant any more: stop them first.
create table persons (
  id text primary key,
  iss text not null,
  sub text not null,
  email text,
  was_member boolean not null default true,
  created_at timestamptz not null,
  unique (iss, sub)
);
comment on table persons is 'Who has signed in to the console at the issuer, or is or was a member of a merchant.';
comment on column persons.email is 'As the issuer had verified it when the person last signed in or became a member.';
comment on column persons.was_member is 'Whether the person is or was a member of a merchant: such a one gets none by itself.';

create table members (
  merchant_id text not null references merchants,
  person_id text not null references persons,
  role text not null check (role in ('owner', 'admin', 'developer', 'finance', 'support', 'viewer')),
  created_at timestamptz not null,
  primary key (person_id, merchant_id)
);
comment on table members is 'What a person may do for a merchant, which always has an owner.';
comment on column members.role is 'Read at each request, and again by each transaction of it.';
create index members_of_merchant on members (merchant_id, created_at, person_id);

insert into persons (id, iss, sub, created_at)
  select 'per_' || regexp_replace(id, '^mer_', ''), iss, sub, created_at from merchants;
insert into members (merchant_id, person_id, role, created_at)
  select id, 'per_' || regexp_replace(id, '^mer_', ''), 'owner', created_at from merchants;
alter table merchants drop column iss, drop column sub;

create trigger members_audit after insert or update or delete on members for each row
  execute function write_audit_entry('member', 'person_id', 'role', '');

create table team_invitations (
  id text primary key,
  merchant_id text not null references merchants,
  hash text not null unique,
  email text,
  wallet text,
  role text not null check (role in ('owner', 'admin', 'developer', 'finance', 'support', 'viewer')),
  invited_by text not null references persons,
  by_wallet boolean not null,
  created_at timestamptz not null,
  expires_at timestamptz not null,
  check ((email is null) <> (wallet is null))
);
comment on table team_invitations is 'An invitation to become a member, until it is accepted, revoked or too old.';
comment on column team_invitations.hash is 'Of its token: SHA-256 in hexadecimal.';
comment on column team_invitations.email is 'Who may accept it, if it names no wallet (CAIP-10): the letters of ASCII are in lower case.';
comment on column team_invitations.by_wallet is 'Whether the payout wallet signed it.';
create index team_invitations_of_merchant on team_invitations (merchant_id, created_at, id);
create index team_invitations_expired on team_invitations (expires_at);
create trigger team_invitations_audit after insert or delete on team_invitations for each row
  execute function write_audit_entry('team_invitation', 'id', 'email,wallet,role,expires_at', '');

-- What a person does counts while the person has the role that the request was admitted with: each transaction begins with this
-- (`server/src/platform/actor.ts`), and who changes the role or removes the member waits for those that have begun.
create function hold_member(merchant text, person text, admitted_as text) returns void language plpgsql as $$
begin
  perform from members where merchant_id = merchant and person_id = person and role = admitted_as for share;
  if not found then
    raise exception 'the member is gone, or has another role' using errcode = 'SL001';
  end if;
end $$;

-- Long answers end with the credential that they were asked for with (`account/identity/watch-credentials.ts`).
create function notify_member() returns trigger language plpgsql as $$
begin
  perform pg_notify('sluice', 'credential ' || old.merchant_id || ' ' || old.person_id);
  return null;
end $$;
create trigger members_notify after update of role or delete on members for each row execute function notify_member();
create function notify_api_key() returns trigger language plpgsql as $$
begin
  perform pg_notify('sluice', 'credential ' || old.id);
  return null;
end $$;
create trigger api_keys_notify after update of hash, scopes or delete on api_keys for each row execute function notify_api_key();

-- The functions find their tables as those of the audit log do.
do $$
declare
  signature text;
begin
  foreach signature in array array['hold_member(text, text, text)', 'notify_member()', 'notify_api_key()'] loop
    execute format('alter function %s set search_path = pg_catalog, %s, pg_temp', signature,
      (select relnamespace::regnamespace from pg_class where oid = 'members'::regclass));
  end loop;
end $$;
