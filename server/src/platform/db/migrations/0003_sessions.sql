-- Browsers that are signed in to the console, and sign-ins at an identity provider that have begun. Of both, only the hash of what the
-- browser holds is stored.
create table sessions (
  id text primary key,
  hash text not null unique,
  iss text not null,
  sub text not null,
  way text not null check (way in ('provider', 'wallet', 'sandbox')),
  address text,
  user_agent text,
  created_at timestamptz not null,
  last_seen_at timestamptz not null,
  expires_at timestamptz not null
);
comment on table sessions is 'A browser that is signed in to the console; a row of its own for each sign-in.';
comment on column sessions.hash is 'Of what the browser''s cookie holds.';
comment on column sessions.way is 'How the person signed in: at the identity provider, with a wallet, or by the sandbox''s button.';
comment on column sessions.address is 'The IP address that signed in, and user_agent the browser.';
comment on column sessions.last_seen_at is 'Accurate to a minute. An hour later it has ended.';
create index sessions_of on sessions (iss, sub, created_at);
create index sessions_end on sessions (expires_at);

create table sign_ins (
  hash text primary key,
  state text not null,
  nonce text not null,
  verifier text not null,
  return_to text not null,
  expires_at timestamptz not null
);
comment on table sign_ins is 'A sign-in at the identity provider; the return of the browser deletes it.';
comment on column sign_ins.hash is 'Of what the browser''s cookie holds.';
comment on column sign_ins.verifier is 'Proves to the provider that whoever brings the code also began the sign-in (PKCE, RFC 7636).';
comment on column sign_ins.return_to is 'A path below /console.';
create index sign_ins_end on sign_ins (expires_at);
