-- Sign-ins of devices (RFC 8628); how keys end whose maker may no longer give them; how much a member with the role support may decide
-- about in a day; and that an invitation of the operator's counts once.
--
-- Locks: `api_keys`, `members`, `key_spends` and `invitations` against reads and writes until all migrations of this start are committed;
-- no row is rewritten but those of invitations, which are few.
create table device_sign_ins (
  id text primary key,
  device_hash text not null unique,
  user_hash text not null unique,
  host text not null check (char_length(host) between 1 and 64),
  scopes text[] not null,
  address text,
  interval_s integer not null,
  asked_at timestamptz,
  decision text check (decision in ('approved', 'denied')),
  for_merchant text,
  person_id text references persons,
  session_id text,
  created_at timestamptz not null,
  expires_at timestamptz not null,
  check (num_nonnulls(for_merchant, person_id, session_id) = case decision when 'approved' then 3 else 0 end)
);
comment on table device_sign_ins is
  'A device that asks for an API key, until it has got it or it is too late. Of its two codes only the hashes are stored.';
comment on column device_sign_ins.user_hash is 'Of the code that the person types.';
comment on column device_sign_ins.host is 'The name that the device gave itself, and address the IP address that it asked from.';
comment on column device_sign_ins.interval_s is 'How long the device has to wait between two questions; it grows when it does not.';
comment on column device_sign_ins.asked_at is 'When the device last asked for its key.';
comment on column device_sign_ins.for_merchant is 'The merchant whose key it gets. No foreign key: a sign-in belongs to none before.';
comment on column device_sign_ins.session_id is 'The session that approved it, which must still be there when the key is made. No foreign key: it may end.';
create index device_sign_ins_end on device_sign_ins (expires_at);

create table device_guesses (
  n bigint generated always as identity primary key,
  person_id text not null references persons,
  session_id text not null,
  created_at timestamptz not null
);
comment on table device_guesses is 'Codes that a person typed and that no device has. Rows of more than twelve hours are deleted.';
create index device_guesses_of_person on device_guesses (person_id, created_at);
create index device_guesses_made on device_guesses (created_at);

alter table api_keys
  add column by_device boolean not null default false,
  add column beyond_until timestamptz,
  add column beyond_by text check (beyond_by in ('maker_left', 'maker_role')),
  add constraint api_keys_beyond_check check ((beyond_until is null) = (beyond_by is null));
comment on column api_keys.by_device is 'Made by the sign-in of a device: it ends at once when its maker may no longer give it.';
comment on column api_keys.beyond_until is 'When it ends because its maker may no longer give it, unless another member adopts it; beyond_by is why.';

drop trigger api_keys_audit on api_keys;
create trigger api_keys_audit after insert or delete or update of name, hash, scopes, expires_at, allowed_ips, refund_per_day,
    return_per_day, previous_until, beyond_until on api_keys for each row
  execute function write_audit_entry('api_key', 'id',
    'name,prefix,last4,scopes,expires_at,allowed_ips,refund_per_day,return_per_day,previous_until,by_device,beyond_until,beyond_by', '');

drop trigger api_keys_notify on api_keys;
create trigger api_keys_notify after update of hash, scopes, expires_at, allowed_ips, previous_until, beyond_until or delete on api_keys
  for each row execute function notify_api_key();

alter table members add column money_per_day integer not null default 0 check (money_per_day >= 0);
comment on column members.money_per_day is
  'Whole tokens that a member with the role support may accept, return, refund, capture and void in 24 hours, for each token.';
drop trigger members_audit on members;
create trigger members_audit after insert or update or delete on members for each row
  execute function write_audit_entry('member', 'person_id', 'role,money_per_day', '');

alter table key_spends
  alter column key_id drop not null,
  add column person_id text,
  add constraint key_spends_by check (num_nonnulls(key_id, person_id) = 1),
  drop constraint key_spends_kind_check,
  add constraint key_spends_kind_check check (kind in ('refund', 'return', 'accept', 'capture', 'void'));
comment on table key_spends is
  'What API keys, and members with a limit, decided about money, by which their caps are counted. Rows of more than a day are deleted.';
comment on column key_spends.object_id is 'The refund''s id, the payment''s, or that of the call that captures or voids.';
comment on column key_spends.key_id is 'No foreign key: the merchant''s cap counts what a key did that is revoked since. Or person_id, the member.';

alter table invitations add column used_at timestamptz;
comment on column invitations.used_at is 'When the person made a merchant with it: it counts once, until the operator invites again.';
update invitations i set used_at = m.created_at from persons p join members m on m.person_id = p.id and m.role = 'owner'
  where (p.iss, p.sub) = (i.iss, i.sub);
