-- The schema with all migrations, made by `npm run schema` from the catalogue: read it, and change it by a migration.

-- An amount in the smallest unit of its token, never below zero.
create domain base_units as numeric(78,0) constraint base_units_check check (value >= 0::numeric);

-- An address in lower case.
create domain evm_address as text constraint evm_address_check check (value ~ '^0x[0-9a-f]{40}$'::text);

-- A 32-byte hash in lower case.
create domain evm_hash as text constraint evm_hash_check check (value ~ '^0x[0-9a-f]{64}$'::text);

-- The valid grants of an address, folded. The row is also the lock under which they change.
create table access (
  paywall_id text not null,
  address evm_address not null,
  expires_at timestamp with time zone,
  tx_hash evm_hash,
  -- Since when access has lasted without a gap.
  since_at timestamp with time zone,
  -- What is left of the calls of the grants; null: any number.
  calls_left integer,
  -- When the newest folded grant was granted; null: all must be folded again. The database resets it.
  folded_at timestamp with time zone,
  -- Until when calls are not counted; `calls_kept` is how many are left from then on.
  free_until timestamp with time zone,
  calls_kept integer,
  constraint access_pkey primary key (paywall_id, address),
  constraint access_calls_kept_check check (calls_kept >= 0),
  constraint access_calls_left_check check (calls_left >= 0),
  constraint access_check check (folded_at is null or since_at is not null and calls_kept is not null),
  constraint access_paywall_id_fkey foreign key (paywall_id) references paywalls(id)
);
create trigger notify_access after update on access for each row when (old.expires_at is distinct from new.expires_at or old.tx_hash::text is distinct from new.tx_hash::text or (old.calls_left > 0) is distinct from (new.calls_left > 0)) execute function notify_access();
create trigger notify_no_access after delete on access for each row execute function notify_access();

-- Only the SHA-256 of a key is kept: it has 40 random base62 characters. A revoked key has no row.
create table api_keys (
  id text not null,
  merchant_id text not null,
  name text not null,
  hash text not null,
  prefix text not null,
  last4 text not null,
  created_at timestamp with time zone not null,
  last_used_at timestamp with time zone,
  -- What the key may do.
  scopes text[] not null default '{checkouts}'::text[],
  -- The person who made it, or last changed what it may do; null for keys of older versions.
  made_by text,
  expires_at timestamp with time zone,
  -- CIDRs of which one must have the caller's address; null for any address.
  allowed_ips text[],
  -- Whole tokens in 24 hours, for each token; null for no cap. So is return_per_day.
  refund_per_day integer,
  return_per_day integer,
  -- Of the secret before the last roll, which is valid until previous_until.
  previous_hash text,
  previous_until timestamp with time zone,
  -- Made by the sign-in of a device: it ends at once when its maker may no longer give it.
  by_device boolean not null default false,
  -- When it ends because its maker may no longer give it, unless another member adopts it; beyond_by is why.
  beyond_until timestamp with time zone,
  beyond_by text,
  constraint api_keys_pkey primary key (id),
  constraint api_keys_hash_key unique (hash),
  constraint api_keys_previous_hash_key unique (previous_hash),
  constraint api_keys_allowed_ips_check check (cardinality(allowed_ips) >= 1 and cardinality(allowed_ips) <= 50),
  constraint api_keys_beyond_by_check check (beyond_by = any (array['maker_left'::text, 'maker_role'::text])),
  constraint api_keys_beyond_check check ((beyond_until is null) = (beyond_by is null)),
  constraint api_keys_hash_check check (hash ~ '^[0-9a-f]{64}$'::text),
  constraint api_keys_name_check check (char_length(name) >= 1 and char_length(name) <= 200),
  constraint api_keys_previous_check check ((previous_hash is null) = (previous_until is null)),
  constraint api_keys_previous_hash_check check (previous_hash ~ '^[0-9a-f]{64}$'::text),
  constraint api_keys_refund_per_day_check check (refund_per_day >= 0),
  constraint api_keys_return_per_day_check check (return_per_day >= 0),
  constraint api_keys_scopes_check check (scopes <@ array['checkouts'::text, 'read'::text, 'console'::text, 'catalog'::text, 'webhooks'::text, 'money'::text, 'settings:read'::text] and cardinality(scopes) >= 1 and cardinality(scopes) <= 7),
  constraint api_keys_made_by_fkey foreign key (made_by) references persons(id),
  constraint api_keys_merchant_id_fkey foreign key (merchant_id) references merchants(id)
);
create index api_keys_of_merchant on api_keys using btree (merchant_id, created_at desc, id desc);
create trigger api_keys_audit after insert or delete or update of name, hash, scopes, expires_at, allowed_ips, refund_per_day, return_per_day, previous_until, beyond_until on api_keys for each row execute function write_audit_entry('api_key', 'id', 'name,prefix,last4,scopes,expires_at,allowed_ips,refund_per_day,return_per_day,previous_until,by_device,beyond_until,beyond_by', '');
create trigger api_keys_notify after delete or update of hash, scopes, expires_at, allowed_ips, previous_until, beyond_until on api_keys for each row execute function notify_api_key();

-- What merchants, subscribers, operators and the service changed of a merchant's configuration, and decisions about money. Only triggers write it, in the transaction of the change, so no code can leave it out.
create table audit_entries (
  -- No foreign key: an entry outlives what it is about, and the log takes no lock on a merchant's row.
  merchant_id text not null,
  -- By the database's clock, in milliseconds.
  at timestamp with time zone not null default date_trunc('milliseconds'::text, clock_timestamp()),
  -- In the order in which entries were written.
  n bigint not null generated always as identity,
  id uuid not null default gen_random_uuid(),
  actor_kind text not null,
  actor_id text,
  actor_issuer text,
  -- The kind of thing, a dot, and what happened to it.
  action text not null,
  object_id text not null,
  chain_id integer,
  -- The columns that changed and their values, or all columns of a row that was made or deleted.
  before jsonb,
  after jsonb,
  address text,
  user_agent text,
  route text,
  request_id text,
  constraint audit_entries_pkey primary key (merchant_id, at, n),
  constraint audit_entries_action_check check (action ~ '^[a-z_]+\.[a-z_]+$'::text),
  constraint audit_entries_actor_kind_check check (actor_kind = any (array['console'::text, 'api_key'::text, 'subscriber'::text, 'operator'::text, 'service'::text]))
);
create index audit_entries_of_action on audit_entries using btree (merchant_id, action, at, n);
create index audit_entries_of_actor on audit_entries using btree (merchant_id, actor_id, at, n);
create index audit_entries_of_kind on audit_entries using btree (merchant_id, actor_kind, at, n);
create index audit_entries_of_object on audit_entries using btree (merchant_id, object_id, at, n);
create trigger audit_entries_keep before delete or update on audit_entries for each row execute function keep_audit_entries();
create trigger audit_entries_keep_all before truncate on audit_entries for each statement execute function keep_audit_entries();

-- How the pages of a merchant look, and the sites that may show them in a frame. Apart from `merchants`, whose rows everything locks and reads: a logo has up to 64 KB.
create table branding (
  merchant_id text not null,
  -- As `#rrggbb`, in lower case.
  accent_color text,
  -- Origins in their normal form.
  allowed_origins jsonb not null default '[]'::jsonb,
  logo bytea,
  logo_type text,
  -- SHA-256 in base64url: the name under which it is served, which changes with it.
  logo_hash text,
  constraint branding_pkey primary key (merchant_id),
  constraint branding_accent_color_check check (accent_color ~ '^#[0-9a-f]{6}$'::text),
  constraint branding_allowed_origins_check check (jsonb_typeof(allowed_origins) = 'array'::text),
  constraint branding_check check ((logo is null) = (logo_type is null) and (logo is null) = (logo_hash is null)),
  constraint branding_logo_check check (octet_length(logo) >= 1 and octet_length(logo) <= 65536),
  constraint branding_logo_type_check check (logo_type = any (array['image/png'::text, 'image/jpeg'::text, 'image/webp'::text])),
  constraint branding_merchant_id_fkey foreign key (merchant_id) references merchants(id)
);
create index branding_by_logo on branding using btree (logo_hash) where logo_hash is not null;
create trigger branding_audit after insert or delete or update on branding for each row execute function write_audit_entry('branding', 'merchant_id', 'accent_color,allowed_origins,logo_type,logo_hash', '');

-- Calls that were paid for and that the origin failed. The payer may repeat each without another payment.
create table bundle_failures (
  payment_id text not null,
  bundle_id text not null,
  method text not null,
  path text not null,
  reason text not null,
  attempts integer not null,
  failed_at timestamp with time zone not null,
  -- When a repetition was answered.
  served_at timestamp with time zone,
  constraint bundle_failures_pkey primary key (payment_id),
  constraint bundle_failures_bundle_id_fkey foreign key (bundle_id) references bundles(id) on delete cascade
);
create index bundle_failures_of_bundle on bundle_failures using btree (bundle_id, failed_at desc, payment_id desc);

-- Headers that are added to each request to the origin. The values are secret: encrypted, and never shown again.
create table bundle_headers (
  bundle_id text not null,
  name text not null,
  sealed text not null,
  constraint bundle_headers_pkey primary key (bundle_id, name),
  constraint bundle_headers_name_check check (name = lower(name)),
  constraint bundle_headers_bundle_id_fkey foreign key (bundle_id) references bundles(id) on delete cascade
);
create trigger bundle_headers_audit after insert or delete or update on bundle_headers for each row execute function write_audit_entry('bundle_header', 'bundle_id', 'name', 'sealed');

-- The routes of a bundle. shape: the path with `:` in place of each parameter. Two routes of one shape would match the same requests.
create table bundle_routes (
  bundle_id text not null,
  n integer not null,
  method text not null,
  path text not null,
  shape text not null,
  -- Zero: free.
  price base_units not null,
  description text,
  constraint bundle_routes_pkey primary key (bundle_id, n),
  constraint bundle_routes_bundle_id_method_shape_key unique (bundle_id, method, shape),
  constraint bundle_routes_method_check check (method = any (array['GET'::text, 'POST'::text, 'PUT'::text, 'PATCH'::text, 'DELETE'::text])),
  constraint bundle_routes_bundle_id_fkey foreign key (bundle_id) references bundles(id) on delete cascade
);
create trigger bundle_routes_audit after update on bundle_routes for each row execute function write_audit_entry('bundle_routes', 'bundle_id', 'method,path,price,description', '');
create trigger bundle_routes_audit_added after insert on bundle_routes referencing new table as changed for each statement execute function write_audit_of_routes();
create trigger bundle_routes_audit_removed after delete on bundle_routes referencing old table as changed for each statement execute function write_audit_of_routes();

-- An API of a merchant behind prices, route by route. A bundle is a resource, and its newest receiving address is the one it is paid at.
create table bundles (
  id text not null,
  merchant_id text not null,
  chain_id integer not null,
  slug text not null,
  name text not null,
  description text,
  -- Scheme, host and the start of every path, without a query and without a slash at its end.
  origin_url text not null,
  currency text not null,
  split_id text,
  active boolean not null,
  -- Whether `/.well-known/x402` lists it.
  listed boolean not null,
  openapi jsonb,
  openapi_url text,
  -- Increased by each change: what a process remembers of a bundle is used while this is the same.
  version integer not null,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  constraint bundles_pkey primary key (id),
  constraint bundles_slug_key unique (slug),
  constraint bundles_name_check check (char_length(name) >= 1 and char_length(name) <= 200),
  constraint bundles_prefix check (starts_with(id, 'bdl_'::text)),
  constraint bundles_slug_check check (slug ~ '^[a-z0-9-]{3,64}$'::text),
  constraint bundles_resource foreign key (id, merchant_id, chain_id) references resources(id, merchant_id, chain_id),
  constraint bundles_split_id_fkey foreign key (split_id) references splits(id) on delete set null
);
create index bundles_listed on bundles using btree (updated_at desc) where listed and active;
create index bundles_of_merchant on bundles using btree (merchant_id, created_at desc, id desc);
create index bundles_of_name on bundles using btree (merchant_id, lower(name) text_pattern_ops);
create index bundles_of_split on bundles using btree (split_id) where split_id is not null;
create trigger bundles_add_slug after insert on bundles for each row execute function keep_slug();
create trigger bundles_audit after insert or delete or update on bundles for each row execute function write_audit_entry('bundle', 'id', 'name,chain_id,slug,description,origin_url,currency,split_id,active,listed,openapi,openapi_url', '');
create trigger bundles_keep_slug after update of slug on bundles for each row when (new.slug is distinct from old.slug) execute function keep_slug();
create trigger bundles_register before insert on bundles for each row execute function register_resource();
create trigger bundles_unregister after delete on bundles for each row execute function unregister_resource();

-- Which rows of the merchant's lists changed in the last 24 hours. Triggers insert it in the transaction of the change. It has no content: a reader reads the object as it stands then, so an erasure need not come here.
create table changes (
  merchant_id text not null,
  -- The transaction. A reader takes rows below `pg_snapshot_xmin` only: no transaction can still commit a row below those. By `n` alone, a row that commits after a greater one was read would be lost.
  xid xid8 not null default pg_current_xact_id(),
  n bigint not null generated always as identity,
  kind text not null,
  object_id text not null,
  at timestamp with time zone not null default clock_timestamp(),
  constraint changes_pkey primary key (merchant_id, xid, n),
  constraint changes_kind_check check (kind = any (array['checkout'::text, 'payment'::text, 'payout'::text, 'refund'::text, 'subscription'::text, 'invoice'::text, 'delivery'::text, 'webhook'::text, 'payout_address'::text]))
) with (autovacuum_vacuum_scale_factor=0.02);
create index changes_in_order on changes using btree (xid, n);

-- A checkout: one amount, paid once, at an address of its own or through an escrow.
create table checkout_sessions (
  id text not null,
  merchant_id text not null,
  chain_id integer not null,
  amount base_units not null,
  currency text not null,
  description text,
  redirect_url text,
  callback_url text,
  link_id text,
  product_id text,
  customer_email text,
  -- The fields that the payer is asked for; `payer_info` is what was entered.
  payer_fields jsonb,
  payer_info jsonb,
  metadata jsonb,
  status text not null,
  exception text,
  -- What has arrived and is confirmed, in the settlement token.
  received base_units not null default 0,
  -- For the payer; null: the message of the status.
  message text,
  payer evm_address,
  tx_hash evm_hash,
  confirmed_at timestamp with time zone,
  expires_at timestamp with time zone not null,
  -- When its expiry is checked next; null: it has ended.
  run_at timestamp with time zone,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  -- Copied when the session is made: later changes of the split do not touch it.
  recipient_set_id bigint,
  -- Whether the newest event about it says that it was paid: then a reversal is an event too.
  notified_paid boolean not null default false,
  -- Numbers its events, which may arrive in another order.
  event_sequence integer not null default 0,
  -- The split that it was made with, for its response; the recipients were copied.
  split_id text,
  -- The session was opened for an agent at a payment link: no merchant is notified of it.
  agent boolean not null default false,
  -- A MAC of the address of the caller that it was opened for.
  agent_caller text,
  -- A session that is not `direct` has a row in `escrows` and no address.
  capture text not null default 'direct'::text,
  -- The span that made the row (W3C Trace Context); null if nothing is traced.
  traceparent text,
  -- When the personal data in it was erased; null: it was not.
  erased_at timestamp with time zone,
  constraint checkout_sessions_pkey primary key (id),
  constraint checkout_sessions_amount_check check (amount::numeric > 0::numeric),
  constraint checkout_sessions_capture_check check (capture = any (array['direct'::text, 'manual'::text, 'automatic'::text])),
  constraint checkout_sessions_direct check (capture <> 'direct'::text or (status = any (array['pending'::text, 'verifying'::text, 'confirmed'::text, 'failed'::text, 'expired'::text]))),
  constraint checkout_sessions_escrow check (capture = 'direct'::text or run_at is null),
  constraint checkout_sessions_exception_check check (exception = any (array['underpaid'::text, 'overpaid'::text, 'late'::text, 'duplicate'::text, 'wrong_asset'::text])),
  constraint checkout_sessions_paid check ((status <> all (array['confirmed'::text, 'partially_refunded'::text, 'refunded'::text])) or confirmed_at is not null and tx_hash is not null),
  constraint checkout_sessions_prefix check (starts_with(id, 'cs_'::text)),
  constraint checkout_sessions_status_check check (status = any (array['pending'::text, 'verifying'::text, 'authorized'::text, 'confirmed'::text, 'voided'::text, 'partially_refunded'::text, 'refunded'::text, 'failed'::text, 'expired'::text])),
  constraint checkout_sessions_link_id_fkey foreign key (link_id) references payment_links(id),
  constraint checkout_sessions_product_id_fkey foreign key (product_id) references products(id),
  constraint checkout_sessions_recipient_set_id_fkey foreign key (recipient_set_id) references recipient_sets(id),
  constraint checkout_sessions_resource foreign key (id, merchant_id, chain_id) references resources(id, merchant_id, chain_id)
);
create index checkout_sessions_due on checkout_sessions using btree (run_at) where run_at is not null;
create index checkout_sessions_of_agent on checkout_sessions using btree (link_id, agent_caller, created_at) where agent;
create index checkout_sessions_of_amount on checkout_sessions using btree (merchant_id, amount, created_at desc, id desc);
create index checkout_sessions_of_capture on checkout_sessions using btree (merchant_id, capture, created_at desc, id desc) where capture <> 'direct'::text;
create index checkout_sessions_of_chain on checkout_sessions using btree (merchant_id, chain_id, created_at desc, id desc);
create index checkout_sessions_of_email on checkout_sessions using btree (merchant_id, lower(customer_email), created_at desc, id desc) where customer_email is not null;
create index checkout_sessions_of_exception on checkout_sessions using btree (merchant_id, exception, created_at desc, id desc) where exception is not null;
create index checkout_sessions_of_link on checkout_sessions using btree (link_id) where link_id is not null and status <> 'confirmed'::text;
create index checkout_sessions_of_merchant on checkout_sessions using btree (merchant_id, created_at desc, id desc);
create index checkout_sessions_of_payer on checkout_sessions using btree (merchant_id, payer, created_at desc, id desc) where payer is not null;
create index checkout_sessions_of_product on checkout_sessions using btree (product_id, created_at desc, id desc) where product_id is not null;
create index checkout_sessions_of_slug on checkout_sessions using btree (link_id, created_at desc, id desc) where link_id is not null;
create index checkout_sessions_of_status on checkout_sessions using btree (merchant_id, status, created_at desc, id desc);
create index checkout_sessions_paid_at on checkout_sessions using btree (merchant_id, confirmed_at desc) include (created_at, chain_id) where confirmed_at is not null and not agent;
create trigger checkout_sessions_audit after update of description, redirect_url, metadata, expires_at on checkout_sessions for each row when (current_setting('sluice.actor'::text, true) <> ''::text) execute function write_audit_entry('checkout', 'id', 'description,redirect_url,metadata,expires_at', '');
create trigger checkout_sessions_count_made after insert on checkout_sessions for each row when (not new.agent and new.status = 'pending'::text) execute function count_checkout();
create trigger checkout_sessions_count_paid after update of status on checkout_sessions for each row when (not new.agent and (old.status = any (array['confirmed'::text, 'partially_refunded'::text, 'refunded'::text])) <> (new.status = any (array['confirmed'::text, 'partially_refunded'::text, 'refunded'::text]))) execute function count_checkout();
create trigger checkout_sessions_keep_changed_terms after update of metadata on checkout_sessions for each row when (new.metadata is distinct from old.metadata) execute function keep_checkout_terms();
create trigger checkout_sessions_keep_no_terms after delete on checkout_sessions for each row when (old.metadata is not null) execute function keep_checkout_terms();
create trigger checkout_sessions_keep_terms after insert on checkout_sessions for each row when (new.metadata is not null) execute function keep_checkout_terms();
create trigger checkout_sessions_keep_transaction_terms after update of metadata, customer_email on checkout_sessions for each row when (new.metadata is distinct from old.metadata or new.customer_email is distinct from old.customer_email) execute function keep_transaction_terms();
create trigger checkout_sessions_note_changed after update of status, exception, received, message, payer, tx_hash, confirmed_at, expires_at, description, customer_email, metadata, erased_at on checkout_sessions for each row when (new.status is distinct from old.status or new.exception is distinct from old.exception or new.received::numeric is distinct from old.received::numeric or new.message is distinct from old.message or new.payer::text is distinct from old.payer::text or new.tx_hash::text is distinct from old.tx_hash::text or new.confirmed_at is distinct from old.confirmed_at or new.expires_at is distinct from old.expires_at or new.description is distinct from old.description or new.customer_email is distinct from old.customer_email or new.metadata is distinct from old.metadata or new.erased_at is distinct from old.erased_at) execute function note_change('checkout');
create trigger checkout_sessions_note_made after insert on checkout_sessions for each row execute function note_change('checkout');
create trigger checkout_sessions_register before insert on checkout_sessions for each row execute function register_resource();
create trigger checkout_sessions_unregister after delete on checkout_sessions for each row execute function unregister_resource();
create trigger checkout_sessions_wake_subscription after update on checkout_sessions for each row when (new.product_id is not null and new.status is distinct from old.status) execute function wake_subscription();

-- The fields of checkouts' metadata, by which they are found: at most 50 of each, those with text, a number, true or false. Triggers maintain it. A filter reads it in the order of its key, so that a value that a million checkouts have costs what a rare one does.
create table checkout_terms (
  merchant_id text not null,
  -- In lower case, at most its first 200 characters; key too is cut there.
  value text not null,
  key text not null,
  -- The checkout's.
  created_at timestamp with time zone not null,
  session_id text not null,
  constraint checkout_terms_pkey primary key (merchant_id, value, key, created_at, session_id)
);

-- How many claims a payment has, and the sum of their transfers' ids, kept by triggers: the reconciliation finds a claim that was deleted or moved by hand.
create table claim_books (
  payment_id text not null,
  claims bigint not null,
  transfer_ids numeric not null,
  constraint claim_books_pkey primary key (payment_id),
  constraint claim_books_payment_id_fkey foreign key (payment_id) references payments(id) on delete cascade
);

-- Which payment a transfer counts for. By the primary key it counts once.
create table claims (
  transfer_id bigint not null,
  payment_id text not null,
  -- What a final return has sent back of the transfer while its payment had more, in base units.
  given_back base_units not null default 0,
  constraint claims_pkey primary key (transfer_id),
  constraint claims_payment_id_fkey foreign key (payment_id) references payments(id),
  constraint claims_transfer_id_fkey foreign key (transfer_id) references transfers(id)
);
create index claims_of_payment on claims using btree (payment_id);
create trigger claims_keep_books_added after insert on claims referencing new table as added for each statement execute function keep_claim_books();
create trigger claims_keep_books_moved after update on claims referencing old table as removed new table as added for each statement execute function keep_claim_books();
create trigger claims_keep_books_removed after delete on claims referencing old table as removed for each statement execute function keep_claim_books();
create trigger claims_keep_past_moved after update on claims referencing old table as removed for each statement execute function keep_past_claims();
create trigger claims_keep_past_removed after delete on claims referencing old table as removed for each statement execute function keep_past_claims();
create trigger claims_unapply_moved after update of payment_id on claims for each row when (old.payment_id <> new.payment_id) execute function unapply_transfer();
create trigger claims_unapply_removed after delete on claims for each row execute function unapply_transfer();

-- A call of an escrow that was deep enough to count while it was in this block. After a reorg, a call that is still in its block counts as before.
create table counted_calls (
  payout_id uuid not null,
  block_hash evm_hash not null,
  constraint counted_calls_pkey primary key (payout_id),
  constraint counted_calls_payout_id_fkey foreign key (payout_id) references payouts(id)
);

-- How far each network is scanned, and which process scans it.
create table cursors (
  chain_id integer not null,
  -- The last head; `finalized_number` is the last finalized block that was seen.
  block_number bigint not null,
  block_hash evm_hash not null,
  finalized_number bigint not null,
  looked_at timestamp with time zone,
  run_at timestamp with time zone not null,
  claim_id uuid,
  lease_until timestamp with time zone,
  -- How many blocks the logs are behind the head; `lag_low` is the lowest value since the scan fell behind, and `lag_low_at` when that was.
  lag_blocks bigint not null default 0,
  lag_low bigint,
  lag_low_at timestamp with time zone,
  -- When that block was made, by which a checkout expires; null until the first round.
  block_time timestamp with time zone,
  -- How often the worker that ended the last round makes one, in milliseconds.
  interval_ms integer not null default 60000,
  constraint cursors_pkey primary key (chain_id)
);

-- An event for one endpoint. The row is the job that sends it.
create table deliveries (
  id text not null,
  seq bigint not null generated always as identity,
  event_id text not null,
  merchant_id text not null,
  -- The endpoint, or null for a callback to `url`. With both, `url` is where the endpoint was when this was emitted.
  webhook_id text,
  url text,
  -- What shares a turn and a number of connections.
  lane text not null,
  -- What is delivered in order: a payment, a session.
  order_key text not null,
  status text not null,
  -- The merchant asked for it: it is sent although the endpoint is paused.
  by_hand boolean not null default false,
  -- A resend counts from zero again.
  attempts integer not null default 0,
  run_at timestamp with time zone not null,
  claim_id uuid,
  lease_until timestamp with time zone,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  constraint deliveries_pkey primary key (id),
  constraint deliveries_event_id_webhook_id_key unique (event_id, webhook_id),
  constraint deliveries_check check (webhook_id is not null or url is not null),
  constraint deliveries_status_check check (status = any (array['pending'::text, 'delivered'::text, 'failed'::text, 'skipped'::text]))
) with (autovacuum_vacuum_scale_factor=0.02, fillfactor=50);
create index deliveries_due on deliveries using btree (lane, run_at) where status = 'pending'::text;
create index deliveries_of_merchant on deliveries using btree (merchant_id, created_at desc, id desc);
create index deliveries_of_order on deliveries using btree (merchant_id, order_key);
create index deliveries_of_webhook on deliveries using btree (webhook_id, created_at desc, id desc);
create index deliveries_unsent on deliveries using btree (merchant_id, status, created_at desc, id desc) where status = any (array['failed'::text, 'skipped'::text]);
create index deliveries_untried on deliveries using btree (lane, order_key, seq) where status = 'pending'::text and attempts = 0;
create trigger deliveries_note_changed after update of status, attempts on deliveries for each row when (new.status is distinct from old.status or new.attempts is distinct from old.attempts) execute function note_change('delivery');
create trigger deliveries_note_made after insert on deliveries for each row execute function note_change('delivery');

-- Each request to an endpoint. delivery_id has no foreign key: the statement that writes an attempt has just written its delivery, and the check would lock that row once more.
create table delivery_attempts (
  id bigint not null generated always as identity,
  delivery_id text not null,
  started_at timestamp with time zone not null,
  duration_ms integer not null,
  -- The status of the response; null if there was none.
  status integer,
  -- Why it failed, in words.
  error text,
  -- The first 4 KB of the response.
  answer text,
  -- What was sent, with the first characters of each signature alone; null of what a listener pulled, and of earlier versions.
  headers jsonb,
  constraint delivery_attempts_pkey primary key (delivery_id, id)
);

-- What came into a deposit (confirmed) and what is promised out of it, kept by triggers. shortfall: promised and signed before a reorg removed the money; no further payout fits meanwhile.
create table deposit_books (
  deposit_id bigint not null,
  token evm_address not null,
  inflow base_units not null default 0,
  committed base_units not null default 0,
  shortfall base_units not null default 0,
  constraint deposit_books_pkey primary key (deposit_id, token),
  constraint books_balance check (committed::numeric <= (inflow::numeric + shortfall::numeric)),
  constraint deposit_books_deposit_id_fkey foreign key (deposit_id) references deposits(id)
);
create index deposit_books_holding on deposit_books using btree (deposit_id) where inflow::numeric > committed::numeric;

-- A receiving address. salt, owner and open_after_s are all that the factory needs to release or recover its money.
create table deposits (
  id bigint not null generated always as identity,
  chain_id integer not null,
  address evm_address not null,
  factory evm_address not null,
  salt evm_hash not null,
  owner evm_address not null,
  open_after_s bigint not null,
  created_at timestamp with time zone not null,
  -- A watched address is in every scan of the logs; a dormant one has its balance read from time to time.
  watched boolean not null default true,
  -- Until when it is watched though nothing is for sale there.
  watched_until timestamp with time zone not null,
  -- The block up to which its transfers are known, if the ordinary scan does not cover it.
  watched_number bigint,
  dormant_since timestamp with time zone,
  check_at timestamp with time zone,
  -- Set by a trigger, like balanced_number: the final block at which the chain's balance last equalled the books.
  merchant_id text not null,
  balanced_number bigint,
  resource_id text not null,
  -- Its signature sends money back to payers: nobody's if zero; the factory's own address means the service.
  approver evm_address not null,
  -- The hash of the recipients of `recipient_set_id`; zero without a split.
  payees_hash evm_hash not null,
  -- Null without a split.
  recipient_set_id bigint,
  -- From before addresses named an approver: the service does not know its terms, and can't move its money.
  older_factory boolean not null default false,
  constraint deposits_pkey primary key (id),
  constraint deposits_chain_id_address_key unique (chain_id, address),
  constraint deposits_dormant_since check (watched or watched_number is not null and dormant_since is not null),
  constraint deposits_recipient_set_id_fkey foreign key (recipient_set_id) references recipient_sets(id),
  constraint deposits_resource foreign key (resource_id, merchant_id, chain_id) references resources(id, merchant_id, chain_id)
);
create index deposits_dormant on deposits using btree (chain_id, check_at) where not watched;
create index deposits_dormant_since on deposits using btree (chain_id, dormant_since) where not watched;
create index deposits_of_factory on deposits using btree (chain_id, factory);
create index deposits_of_merchant on deposits using btree (merchant_id, id desc);
create index deposits_of_older_factory on deposits using btree (id) where older_factory;
create index deposits_of_resource on deposits using btree (resource_id);
create unique index deposits_of_session on deposits using btree (resource_id) where starts_with(resource_id, 'cs_'::text);
create index deposits_opening on deposits using btree (open_after_s) where starts_with(resource_id, 'pw_'::text);
create index deposits_scanned on deposits using btree (chain_id, id) where watched;
create index deposits_watched on deposits using btree (chain_id, watched_until) where watched;
create trigger deposits_keep_older before update of older_factory on deposits for each row when (new.older_factory is distinct from old.older_factory) execute function keep_older_factory();
create trigger deposits_none_older before insert on deposits for each row when (new.older_factory) execute function keep_older_factory();
create trigger deposits_set_facts before insert on deposits for each row execute function set_deposit_facts();

-- Codes that a person typed and that no device has. Rows of more than twelve hours are deleted.
create table device_guesses (
  n bigint not null generated always as identity,
  person_id text not null,
  session_id text not null,
  created_at timestamp with time zone not null,
  constraint device_guesses_pkey primary key (n),
  constraint device_guesses_person_id_fkey foreign key (person_id) references persons(id)
);
create index device_guesses_made on device_guesses using btree (created_at);
create index device_guesses_of_person on device_guesses using btree (person_id, created_at);

-- A device that asks for an API key, until it has got it or it is too late. Of its two codes only the hashes are stored.
create table device_sign_ins (
  id text not null,
  device_hash text not null,
  -- Of the code that the person types.
  user_hash text not null,
  -- The name that the device gave itself, and address the IP address that it asked from.
  host text not null,
  scopes text[] not null,
  address text,
  -- How long the device has to wait between two questions; it grows when it does not.
  interval_s integer not null,
  -- When the device last asked for its key.
  asked_at timestamp with time zone,
  decision text,
  -- The merchant whose key it gets. No foreign key: a sign-in belongs to none before.
  for_merchant text,
  person_id text,
  -- The session that approved it, which must still be there when the key is made. No foreign key: it may end.
  session_id text,
  created_at timestamp with time zone not null,
  expires_at timestamp with time zone not null,
  constraint device_sign_ins_pkey primary key (id),
  constraint device_sign_ins_device_hash_key unique (device_hash),
  constraint device_sign_ins_user_hash_key unique (user_hash),
  constraint device_sign_ins_check check (num_nonnulls(for_merchant, person_id, session_id) =
case decision
    when 'approved'::text then 3
    else 0
end),
  constraint device_sign_ins_decision_check check (decision = any (array['approved'::text, 'denied'::text])),
  constraint device_sign_ins_host_check check (char_length(host) >= 1 and char_length(host) <= 64),
  constraint device_sign_ins_person_id_fkey foreign key (person_id) references persons(id)
);
create index device_sign_ins_end on device_sign_ins using btree (expires_at);

-- An endpoint that differs from the others, lags, or does not respond; `position` is its place in the setting, from 0.
create table endpoint_troubles (
  chain_id integer not null,
  position integer not null,
  kind text not null,
  since timestamp with time zone not null,
  last_at timestamp with time zone not null,
  -- Whether it lasted long enough, or is clear enough, for an alarm.
  is_alarm boolean not null,
  -- What it responded, without what may be a key.
  answer text,
  constraint endpoint_troubles_pkey primary key (chain_id, "position", kind),
  constraint endpoint_troubles_kind_check check (kind = any (array['silent'::text, 'behind'::text, 'contradiction'::text, 'logs'::text, 'slow'::text, 'useless'::text]))
);

-- That a customer's personal data was erased, and how much. Not whose: that is what was erased.
create table erasures (
  id text not null,
  merchant_id text not null,
  asked_by text not null,
  checkouts integer not null,
  subscriptions integer not null,
  refunds integer not null,
  events integer not null,
  deliveries_dropped integer not null,
  created_at timestamp with time zone not null,
  constraint erasures_pkey primary key (id),
  constraint erasures_asked_by_check check (asked_by = any (array['email'::text, 'payer'::text, 'checkout'::text, 'retention'::text])),
  constraint erasures_id_check check (starts_with(id, 'era_'::text)),
  constraint erasures_merchant_id_fkey foreign key (merchant_id) references merchants(id)
);
create index erasures_of_merchant on erasures using btree (merchant_id, created_at desc, id desc);
create trigger erasures_audit after insert on erasures for each row execute function write_audit_entry('erasure', 'id', 'asked_by,checkouts,subscriptions,refunds,events,deliveries_dropped', '');

-- The escrow of a checkout session: its terms, and the sums of its calls (`payouts.escrow_id`) in base units. The payer signs the hash of the terms, so they never change.
create table escrows (
  session_id text not null,
  merchant_id text not null,
  chain_id integer not null,
  token evm_address not null,
  -- The contract of the network when the session was made.
  escrow evm_address not null,
  version text not null,
  collector evm_address not null,
  refund_collector evm_address,
  -- The relay wallet: only it may call the escrow for this session.
  operator evm_address not null,
  -- The merchant's payout address when the session was made.
  receiver evm_address not null,
  max_amount base_units not null,
  -- In whole seconds, like the two other expiries.
  pre_approval_expiry timestamp with time zone not null,
  authorization_expiry timestamp with time zone not null,
  refund_expiry timestamp with time zone not null,
  -- When the uncaptured rest goes back to the payer.
  void_at timestamp with time zone not null,
  salt evm_hash not null,
  -- What the payer signs: the hash of the terms, with the payer zero.
  nonce evm_hash not null,
  -- Null until a reservation is written, and again when it ended without money.
  payer evm_address,
  auth_id evm_hash,
  -- The sum of the calls in base units, as are captured, voided and refunded.
  authorized base_units not null default 0,
  captured base_units not null default 0,
  voided base_units not null default 0,
  refunded base_units not null default 0,
  -- What the payer took back without the service.
  reclaimed base_units not null default 0,
  authorized_at timestamp with time zone,
  voided_at timestamp with time zone,
  -- When it is computed next; null while nothing can change without a call.
  run_at timestamp with time zone,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  -- When `reclaimed` was first known; set by a trigger.
  reclaimed_at timestamp with time zone,
  -- Failed rounds since the last that advanced it.
  failed_rounds integer not null default 0,
  constraint escrows_pkey primary key (session_id),
  constraint escrows_auth_id_key unique (auth_id),
  constraint escrows_chain_id_escrow_nonce_key unique (chain_id, escrow, nonce),
  constraint escrows_check check (pre_approval_expiry <= authorization_expiry and authorization_expiry <= refund_expiry),
  constraint escrows_check1 check (void_at < authorization_expiry),
  constraint escrows_check2 check ((payer is null) = (auth_id is null)),
  constraint escrows_check3 check ((captured::numeric + voided::numeric + reclaimed::numeric) <= authorized::numeric),
  constraint escrows_check4 check (refunded::numeric <= captured::numeric),
  constraint escrows_check5 check (authorized::numeric = 0::numeric or payer is not null),
  constraint escrows_max_amount_check check (max_amount::numeric > 0::numeric),
  constraint escrows_version_check check (version = any (array['v1.0'::text, 'v1.1'::text])),
  constraint escrows_merchant_id_fkey foreign key (merchant_id) references merchants(id),
  constraint escrows_session_id_fkey foreign key (session_id) references checkout_sessions(id)
);
create index escrows_due on escrows using btree (run_at) where run_at is not null;
create index escrows_failing on escrows using btree (chain_id) where failed_rounds >= 3;
create index escrows_listed on escrows using btree (merchant_id, authorized_at desc, session_id desc) where authorized::numeric > 0::numeric;
create index escrows_of_amount on escrows using btree (merchant_id, authorized, authorized_at desc, session_id desc) where authorized::numeric > 0::numeric;
create index escrows_of_merchant on escrows using btree (merchant_id, escrow);
create index escrows_of_payer on escrows using btree (merchant_id, payer, authorized_at desc, session_id desc) where authorized::numeric > 0::numeric;
create index escrows_paid on escrows using btree (chain_id, session_id) where auth_id is not null;
create index escrows_reclaimed on escrows using btree (merchant_id, reclaimed_at desc, session_id desc) where reclaimed::numeric > 0::numeric;
create index escrows_reserved on escrows using btree (chain_id) where authorized::numeric > (captured::numeric + voided::numeric + reclaimed::numeric);
create trigger escrows_count after update of reclaimed on escrows for each row when (old.reclaimed::numeric <> new.reclaimed::numeric) execute function count_reclaim();
create trigger escrows_keep_terms after update of authorized_at, authorized on escrows for each row when (new.authorized_at is distinct from old.authorized_at or (new.authorized::numeric > 0::numeric) <> (old.authorized::numeric > 0::numeric)) execute function keep_escrow_terms();
create trigger escrows_note_change after update of authorized, captured, voided, refunded, reclaimed on escrows for each row when (new.authorized::numeric is distinct from old.authorized::numeric or new.captured::numeric is distinct from old.captured::numeric or new.voided::numeric is distinct from old.voided::numeric or new.refunded::numeric is distinct from old.refunded::numeric or new.reclaimed::numeric is distinct from old.reclaimed::numeric) execute function note_escrow_change();
create trigger escrows_set_reclaimed before update of reclaimed on escrows for each row execute function set_reclaimed();

-- What merchants are notified of. An event and its deliveries are written in the transaction of what they report.
create table events (
  id text not null,
  merchant_id text not null,
  type text not null,
  -- What happens once has one event, however often it is reported.
  dedupe_key text not null,
  -- The body as every attempt sends it, byte for byte.
  body text not null,
  created_at timestamp with time zone not null,
  traceparent text,
  -- What it is about: the id of a session, payment or subscription. Null for events of versions that did not store it.
  order_key text,
  -- When its data was replaced by the SHA-256 of the body: it can't be sent any more.
  erased_at timestamp with time zone,
  constraint events_pkey primary key (id),
  constraint events_merchant_id_dedupe_key_key unique (merchant_id, dedupe_key)
);
create index events_of_merchant on events using btree (merchant_id, created_at desc, id desc);
create index events_of_object on events using btree (merchant_id, order_key, created_at desc, id desc) where order_key is not null;
create index events_of_type on events using btree (merchant_id, type, created_at desc, id desc);
create index events_old on events using btree (created_at);
create trigger events_forget_deliveries after delete on events referencing old table as gone for each statement execute function forget_deliveries();

-- Changes of figures that are not folded yet. Only triggers write it, in the transaction of the change; whoever folds a row deletes it.
create table figure_deltas (
  merchant_id text not null,
  -- The time of the entry of the books. What a reorg removes subtracts when that was noticed.
  at timestamp with time zone not null,
  n bigint not null generated always as identity,
  chain_id integer not null,
  -- Empty for counts of checkouts.
  token text not null,
  -- The column of `figures`; what is received is counted in `transfers` too.
  figure text not null,
  -- In base units, below zero where an entry is no longer in the books.
  amount numeric(78,0) not null,
  count integer not null,
  constraint figure_deltas_pkey primary key (merchant_id, at, n),
  constraint figure_deltas_figure_check check (figure = any (array['received'::text, 'reversed'::text, 'reserved'::text, 'captured'::text, 'released'::text, 'returned'::text, 'refunded'::text, 'shares'::text, 'swept'::text, 'recovered'::text, 'unknown'::text, 'checkouts'::text, 'paid'::text, 'converted'::text]))
);

-- Sums of the folded deltas in quarters of an hour of UTC, hours, six hours, days and all time: whatever the zone, a period is made of few rows.
create table figures (
  merchant_id text not null,
  -- How long the row's time is, from `at` on; 0: all time, with 1970 as `at`.
  seconds integer not null,
  at timestamp with time zone not null,
  chain_id integer not null,
  -- Empty for counts of checkouts.
  token text not null,
  -- Of the sums, most are of nothing: those are null, not 0, which a sum of many rows does not add up.
  received numeric(78,0),
  reversed numeric(78,0),
  reserved numeric(78,0),
  captured numeric(78,0),
  released numeric(78,0),
  returned numeric(78,0),
  refunded numeric(78,0),
  shares numeric(78,0),
  swept numeric(78,0),
  recovered numeric(78,0),
  unknown numeric(78,0),
  transfers bigint,
  checkouts bigint,
  paid bigint,
  -- Of the checkouts made in this time, those that are paid; `paid` are those that were paid in it.
  converted bigint,
  constraint figures_pkey primary key (merchant_id, seconds, at, chain_id, token),
  constraint figures_seconds_check check (seconds = any (array[0, 900, 3600, 21600, 86400]))
) with (fillfactor=80);

-- Which subscription of a payer to a product is the first: trials and days of grace are given once. The key decides between subscriptions that start at the same time.
create table first_subscriptions (
  payer evm_address not null,
  product_id text not null,
  subscription_id text not null,
  constraint first_subscriptions_pkey primary key (payer, product_id),
  constraint first_subscriptions_product_id_fkey foreign key (product_id) references products(id),
  constraint first_subscriptions_subscription_id_fkey foreign key (subscription_id) references subscriptions(id)
);
create index first_subscriptions_of on first_subscriptions using btree (subscription_id);

-- A nonce of a wallet that was used, in a final block, by a transaction without a payout. An operator confirmed it.
create table foreign_nonces (
  chain_id integer not null,
  wallet evm_address not null,
  nonce bigint not null,
  tx_hash evm_hash not null,
  block_number bigint not null,
  created_at timestamp with time zone not null,
  constraint foreign_nonces_pkey primary key (chain_id, wallet, nonce),
  constraint foreign_nonces_tx_hash_key unique (tx_hash)
);

-- A token at a receiving address that nothing is sold for.
create table foreign_tokens (
  id bigint not null generated always as identity,
  merchant_id text not null,
  chain_id integer not null,
  deposit_id bigint not null,
  token evm_address not null,
  -- The first transfer of it that was found.
  tx_hash evm_hash not null,
  block_number bigint not null,
  from_address evm_address not null,
  value base_units not null,
  found_at timestamp with time zone not null,
  -- The balance that the token reports for the address, in base units; null until that is known.
  balance base_units,
  check_at timestamp with time zone not null,
  constraint foreign_tokens_pkey primary key (id),
  constraint foreign_tokens_deposit_id_token_key unique (deposit_id, token),
  constraint foreign_tokens_deposit_id_fkey foreign key (deposit_id) references deposits(id),
  constraint foreign_tokens_merchant_id_fkey foreign key (merchant_id) references merchants(id)
);
create index foreign_tokens_due on foreign_tokens using btree (chain_id, check_at);
create index foreign_tokens_found on foreign_tokens using btree (chain_id, found_at);
create index foreign_tokens_listed on foreign_tokens using btree (merchant_id, id desc) where balance::numeric > 0::numeric;

-- Locked while it is decided whether a payout fits its merchant's budget, which is one for the wallets of all networks. It has no content.
create table gas_budgets (
  merchant_id text not null,
  constraint gas_budgets_pkey primary key (merchant_id),
  constraint gas_budgets_merchant_id_fkey foreign key (merchant_id) references merchants(id)
);

-- What a payment bought at a paywall.
create table grants (
  id text not null,
  payment_id text not null,
  paywall_id text not null,
  address evm_address not null,
  tx_hash evm_hash not null,
  -- Null: without end.
  duration_s bigint,
  granted_at timestamp with time zone not null,
  revoked_at timestamp with time zone,
  revoked_by text,
  revoke_reason text,
  -- Null: any number of calls in its time.
  calls integer,
  calls_used integer not null default 0,
  constraint grants_pkey primary key (id),
  constraint grants_payment_id_key unique (payment_id),
  constraint grants_calls_check check (calls > 0),
  constraint grants_check check ((revoked_at is null) = (revoked_by is null)),
  constraint grants_check1 check (calls_used >= 0 and calls_used <= coalesce(calls, 0)),
  constraint grants_duration_s_check check (duration_s > 0),
  constraint grants_revoked_by_check check (revoked_by = any (array['merchant'::text, 'reorg'::text])),
  constraint grants_payment_id_fkey foreign key (payment_id) references payments(id),
  constraint grants_paywall_id_fkey foreign key (paywall_id) references paywalls(id)
);
create index grants_of_address on grants using btree (paywall_id, address, granted_at);
create index grants_of_paywall on grants using btree (paywall_id, granted_at desc, id desc);
create index grants_revoked on grants using btree (paywall_id, address) where revoked_by = 'merchant'::text;
create index grants_unused on grants using btree (paywall_id, address, granted_at, id) where revoked_at is null and calls_used < calls;
create trigger grants_audit after update of revoked_at on grants for each row when (new.revoked_at is not null and old.revoked_at is null and current_setting('sluice.actor'::text, true) <> ''::text) execute function write_audit_entry('grant.revoked', 'id', 'revoked_at,revoked_by,revoke_reason', '');
create trigger grants_unfold_access after insert or delete or update of granted_at, duration_s, calls, revoked_at on grants for each row execute function unfold_access();

-- A slug that a merchant gives up is held for that merchant for 90 days: whoever took it earlier would be paid by those who follow the old address.
create table held_slugs (
  slug text not null,
  merchant_id text not null,
  until_at timestamp with time zone not null,
  constraint held_slugs_pkey primary key (slug),
  constraint held_slugs_merchant_id_fkey foreign key (merchant_id) references merchants(id)
);

-- Requests with an Idempotency-Key: reserved while the first one runs, then its response. A request that failed has no row.
create table idempotency_keys (
  merchant_id text not null,
  -- Method and path as declared, such as `POST /api/console/paywalls`.
  route text not null,
  key text not null,
  request_hash text not null,
  -- Whose reservation it is, and until when; both are null once there is a response.
  claim_id uuid,
  lease_until timestamp with time zone,
  status integer,
  answer text,
  expires_at timestamp with time zone not null,
  constraint idempotency_keys_pkey primary key (merchant_id, route, key),
  constraint idempotency_keys_check check ((claim_id is null) = (lease_until is null)),
  constraint idempotency_keys_check1 check ((status is null) = (answer is null)),
  constraint idempotency_keys_check2 check ((status is null) = (claim_id is not null)),
  constraint idempotency_keys_key_check check (char_length(key) >= 1 and char_length(key) <= 255),
  constraint idempotency_keys_request_hash_check check (request_hash ~ '^[0-9a-f]{64}$'::text),
  constraint idempotency_keys_status_check check (status >= 200 and status <= 299),
  constraint idempotency_keys_merchant_id_fkey foreign key (merchant_id) references merchants(id)
);
create index idempotency_keys_expired on idempotency_keys using btree (expires_at);

-- Facts about this database: the mode it was made for, the genesis block of each network, the time of the last backup.
create table installation (
  key text not null,
  value text not null,
  constraint installation_pkey primary key (key)
);

-- Users who may become merchants where not everyone may.
create table invitations (
  iss text not null,
  sub text not null,
  created_at timestamp with time zone not null,
  -- When the person made a merchant with it: it counts once, until the operator invites again.
  used_at timestamp with time zone,
  constraint invitations_pkey primary key (iss, sub)
);

-- The price of one period, and the session that it is paid with.
create table invoices (
  id text not null,
  subscription_id text not null,
  merchant_id text not null,
  sequence integer not null,
  session_id text not null,
  product_id text not null,
  amount base_units not null,
  currency text not null,
  -- Null for the first invoice until it is paid.
  period_start timestamp with time zone,
  period_end timestamp with time zone,
  due_at timestamp with time zone not null,
  -- The same as its session's; null again when a reorg removes the payment.
  paid_at timestamp with time zone,
  -- Since when the invoice should not be paid any more.
  void_asked_at timestamp with time zone,
  voided_at timestamp with time zone,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  -- Whose request `void_asked_at` was: a pause is its merchant's.
  void_asked_by text,
  constraint invoices_pkey primary key (id),
  constraint invoices_session_id_key unique (session_id),
  constraint invoices_subscription_id_sequence_key unique (subscription_id, sequence),
  constraint invoices_amount_check check (amount::numeric > 0::numeric),
  constraint invoices_check check ((num_nulls(period_start, period_end) = any (array[0, 2])) and period_start < period_end),
  constraint invoices_check1 check (sequence = 1 or period_start is not null),
  constraint invoices_check2 check (paid_at is null or period_start is not null and voided_at is null),
  constraint invoices_check3 check (voided_at is null or void_asked_at is not null),
  constraint invoices_id_check check (starts_with(id, 'inv_'::text)),
  constraint invoices_sequence_check check (sequence > 0),
  constraint invoices_void_asked_by_check check (void_asked_by = any (array['merchant'::text, 'subscriber'::text])),
  constraint invoices_merchant_id_fkey foreign key (merchant_id) references merchants(id),
  constraint invoices_product_id_fkey foreign key (product_id) references products(id),
  constraint invoices_session_id_fkey foreign key (session_id) references checkout_sessions(id),
  constraint invoices_subscription_id_fkey foreign key (subscription_id) references subscriptions(id)
);
create index invoices_of_merchant on invoices using btree (merchant_id, created_at desc, id desc);
create unique index invoices_open on invoices using btree (subscription_id) where paid_at is null and voided_at is null;
create trigger invoices_note_changed after update of period_start, period_end, paid_at, voided_at, due_at on invoices for each row when (new.period_start is not null and (new.period_start is distinct from old.period_start or new.period_end is distinct from old.period_end or new.paid_at is distinct from old.paid_at or new.voided_at is distinct from old.voided_at or new.due_at is distinct from old.due_at)) execute function note_change('invoice');
create trigger invoices_note_made after insert on invoices for each row when (new.period_start is not null) execute function note_change('invoice');

-- What API keys, and members with a limit, decided about money, by which their caps are counted. Rows of more than a day are deleted.
create table key_spends (
  merchant_id text not null,
  kind text not null,
  -- The refund's id, the payment's, or that of the call that captures or voids.
  object_id text not null,
  -- No foreign key: the merchant's cap counts what a key did that is revoked since. Or person_id, the member.
  key_id text,
  -- The symbol of a token that is sold for, or the chain and address of another one.
  token text not null,
  -- In units of 10⁻¹⁸ of the token, so that amounts of all networks add up.
  amount numeric not null,
  created_at timestamp with time zone not null,
  person_id text,
  constraint key_spends_pkey primary key (merchant_id, kind, object_id),
  constraint key_spends_by check (num_nonnulls(key_id, person_id) = 1),
  constraint key_spends_kind_check check (kind = any (array['refund'::text, 'return'::text, 'accept'::text, 'capture'::text, 'void'::text])),
  constraint key_spends_merchant_id_fkey foreign key (merchant_id) references merchants(id)
);
create index key_spends_of_merchant on key_spends using btree (merchant_id, created_at);

-- One mail to one address, written in the transaction of what it reports, to whoever had a right to it then.
create table mails (
  id text not null,
  -- Null for the operator's.
  merchant_id text,
  notice text not null,
  -- What happens once is mailed to an address once, however often it is found.
  dedupe_key text not null,
  address text not null,
  subject text not null,
  -- Null once it was sent, as it may have the link of an invitation, or was listed in a digest.
  body text,
  -- gathered: beyond what a person gets in an hour, so it waits for the digest; digested: it was listed in one.
  status text not null default 'pending'::text,
  attempts integer not null default 0,
  error text,
  run_at timestamp with time zone not null,
  claim_id uuid,
  lease_until timestamp with time zone,
  -- When it was taken to be sent for the first time; these are counted in the bound of an hour.
  taken_at timestamp with time zone,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  -- The path of a link that has a token, under SECRET_KEY: it is put below the body when the mail is sent. Null once that is over.
  sealed text,
  constraint mails_pkey primary key (id),
  constraint mails_address_dedupe_key_key unique (address, dedupe_key),
  constraint mails_status_check check (status = any (array['pending'::text, 'sent'::text, 'failed'::text, 'gathered'::text, 'digested'::text]))
) with (autovacuum_vacuum_scale_factor=0.02, fillfactor=50);
create index mails_due on mails using btree (run_at) where status = 'pending'::text;
create index mails_gathered on mails using btree (address, created_at) where status = 'gathered'::text;
create index mails_old on mails using btree (created_at);
create index mails_taken on mails using btree (address, taken_at) where taken_at is not null;

-- What a person may do for a merchant, which always has an owner.
create table members (
  merchant_id text not null,
  person_id text not null,
  -- Read at each request, and again by each transaction of it.
  role text not null,
  created_at timestamp with time zone not null,
  -- Whole tokens that a member with the role support may accept, return, refund, capture and void in 24 hours, for each token.
  money_per_day integer not null default 0,
  constraint members_pkey primary key (person_id, merchant_id),
  constraint members_money_per_day_check check (money_per_day >= 0),
  constraint members_role_check check (role = any (array['owner'::text, 'admin'::text, 'developer'::text, 'finance'::text, 'support'::text, 'viewer'::text])),
  constraint members_merchant_id_fkey foreign key (merchant_id) references merchants(id),
  constraint members_person_id_fkey foreign key (person_id) references persons(id)
);
create index members_of_merchant on members using btree (merchant_id, created_at, person_id);
create trigger members_audit after insert or delete or update on members for each row execute function write_audit_entry('member', 'person_id', 'role,money_per_day', '');
create trigger members_notify after delete or update of role on members for each row execute function notify_member();

-- Limits of requests that the operator set for one merchant, in place of the settings.
create table merchant_limits (
  merchant_id text not null,
  bucket text not null,
  -- Of each of its API keys; 0 for no limit.
  per_minute integer not null,
  constraint merchant_limits_pkey primary key (merchant_id, bucket),
  constraint merchant_limits_per_minute_check check (per_minute >= 0),
  constraint merchant_limits_merchant_id_fkey foreign key (merchant_id) references merchants(id)
);
create trigger merchant_limits_audit after insert or delete or update on merchant_limits for each row execute function write_audit_entry('merchant_limit', 'bucket', 'bucket,per_minute', '');

-- Merchants, each made with the first token of its identity provider's user (`iss`, `sub`).
create table merchants (
  id text not null,
  name text not null,
  email text,
  created_at timestamp with time zone not null,
  -- If on, the payout address and the recipients of splits change only with the payout wallet's signature.
  wallet_lock boolean not null default false,
  -- Who signs returns; null: the mode's default.
  approver text,
  -- Whole tokens that all of its API keys together may refund in 24 hours, for each token; null for no cap. So is return_per_day.
  refund_per_day integer,
  return_per_day integer,
  -- The currency of ISO 4217 in which lists and reports show the value of its money.
  currency text not null default 'USD'::text,
  -- Whether listeners can be made in live mode.
  live_listeners boolean not null default false,
  -- The name of a zone of the IANA database, such as Asia/Kolkata: the console shows times in it. Null: in the zone of each browser.
  time_zone text,
  constraint merchants_pkey primary key (id),
  constraint merchants_approver_check check (approver = any (array['wallet'::text, 'service'::text])),
  constraint merchants_currency_check check (currency ~ '^[A-Z]{3}$'::text),
  constraint merchants_refund_per_day_check check (refund_per_day >= 0),
  constraint merchants_return_per_day_check check (return_per_day >= 0),
  constraint merchants_time_zone_check check (time_zone <> ''::text)
);
create trigger merchants_audit after insert or update on merchants for each row execute function write_audit_entry('settings', 'merchant_id', 'name,email,wallet_lock,approver,refund_per_day,return_per_day,currency,live_listeners,time_zone', '');

-- Nonces of wallet signatures that were not used yet. The resource is what the purpose is for, such as the id of a paywall.
create table nonces (
  nonce text not null,
  purpose text not null,
  resource text not null,
  expires_at timestamp with time zone not null,
  constraint nonces_pkey primary key (nonce)
);
create index nonces_expired on nonces using btree (expires_at);

-- An outflow that halted the payout wallets when it happened. The comparison of the final blocks records it and does not halt them again.
create table noticed_outflows (
  chain_id integer not null,
  tx_hash text not null,
  deposit text not null,
  noticed_at timestamp with time zone not null,
  constraint noticed_outflows_pkey primary key (chain_id, tx_hash, deposit)
);

-- What a member changed of the notices that they get by mail. A notice without a row is as its list says.
create table notification_choices (
  merchant_id text not null,
  person_id text not null,
  notice text not null,
  by_mail boolean not null,
  constraint notification_choices_pkey primary key (merchant_id, person_id, notice),
  constraint notification_choices_merchant_id_fkey foreign key (merchant_id) references merchants(id),
  constraint notification_choices_person_id_fkey foreign key (person_id) references persons(id)
);

-- What an operator did: by whom and why. Written in the transaction that does it, and never changed.
create table operator_actions (
  id bigint not null generated always as identity,
  at timestamp with time zone not null,
  action text not null,
  -- The name of the Unix user, as the command gave it.
  by_user text not null,
  reason text,
  chain_id integer not null,
  wallet evm_address,
  payout_id uuid,
  -- What it changed, as it was; `after` as it is.
  before jsonb not null,
  after jsonb not null,
  constraint operator_actions_pkey primary key (id),
  constraint operator_actions_action_check check (action = any (array['halt'::text, 'resume'::text, 'adopt'::text, 'adopt foreign'::text, 'unstick'::text, 'retry'::text, 'cancel'::text, 'rotate receipt key'::text])),
  constraint operator_actions_payout_id_fkey foreign key (payout_id) references payouts(id)
);
create trigger operator_actions_keep before delete or update on operator_actions for each row execute function keep_actions();

-- How far the reports of the factories are read (`reconciliation/watch-outflows.ts`). Whoever has the payout key can send the money of deposits whose approver is the service to anyone, and the factory reports that in the same block.
create table outflow_watches (
  chain_id integer not null,
  block_number bigint not null,
  -- When all blocks up to the scan's were last read.
  read_at timestamp with time zone not null,
  run_at timestamp with time zone not null,
  claim_id uuid,
  lease_until timestamp with time zone,
  constraint outflow_watches_pkey primary key (chain_id)
);

-- A transfer out of a deposit without a payout: recovered by its owner, given back with the approver's signature, or unknown.
create table outflows (
  id uuid not null default gen_random_uuid(),
  chain_id integer not null,
  deposit_id bigint not null,
  merchant_id text not null,
  reason text not null,
  tx_hash evm_hash not null,
  token evm_address not null,
  recipient evm_address not null,
  amount base_units not null,
  block_number bigint not null,
  block_hash evm_hash not null,
  log_index integer not null,
  block_time timestamp with time zone not null,
  created_at timestamp with time zone not null,
  -- The nonce of the approver's signature, if the money was given back.
  nonce evm_hash,
  -- The return that this outflow carried out.
  payout_id uuid,
  constraint outflows_pkey primary key (id),
  constraint outflows_chain_id_tx_hash_log_index_key unique (chain_id, tx_hash, log_index),
  constraint outflows_amount_check check (amount::numeric > 0::numeric),
  constraint outflows_reason_check check (reason = any (array['recovery'::text, 'given_back'::text, 'unknown'::text])),
  constraint outflows_deposit_id_fkey foreign key (deposit_id) references deposits(id),
  constraint outflows_merchant_id_fkey foreign key (merchant_id) references merchants(id),
  constraint outflows_payout_id_fkey foreign key (payout_id) references payouts(id)
);
create index outflows_given_back on outflows using btree (deposit_id, token) where reason = 'given_back'::text and payout_id is null;
create index outflows_of_deposit on outflows using btree (deposit_id);
create index outflows_of_merchant on outflows using btree (merchant_id, block_time desc, (id::text) desc);
create unique index outflows_of_payout on outflows using btree (payout_id) where payout_id is not null;
create trigger outflows_count after insert or delete or update on outflows for each row execute function count_outflow();

-- A payment that held a transfer earlier, and made payouts from it.
create table past_claims (
  transfer_id bigint not null,
  payment_id text not null,
  constraint past_claims_pkey primary key (transfer_id, payment_id),
  constraint past_claims_payment_id_fkey foreign key (payment_id) references payments(id) on delete cascade,
  constraint past_claims_transfer_id_fkey foreign key (transfer_id) references transfers(id) on delete cascade
);
create index past_claims_of_payment on past_claims using btree (payment_id);

-- Pages where anyone can pay: each visit makes a checkout session.
create table payment_links (
  id text not null,
  merchant_id text not null,
  chain_id integer not null,
  slug text not null,
  title text not null,
  description text,
  -- Null: the payer decides how much.
  amount base_units,
  currency text not null,
  product_id text,
  redirect_url text,
  -- How many sessions may be confirmed; `uses` is how many were.
  max_uses integer,
  uses integer not null default 0,
  expires_at timestamp with time zone,
  active boolean not null,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  split_id text,
  -- Names of the fields that the checkouts of the link ask for; null: none. The link is then not sold to agents, which can't answer.
  payer_fields jsonb,
  constraint payment_links_pkey primary key (id),
  constraint payment_links_slug_key unique (slug),
  constraint payment_links_amount_check check (amount::numeric > 0::numeric),
  constraint payment_links_check check (max_uses is null or uses <= max_uses),
  constraint payment_links_max_uses_check check (max_uses > 0),
  constraint payment_links_slug_check check (slug ~ '^[a-z0-9-]{3,64}$'::text),
  constraint payment_links_title_check check (char_length(title) >= 1 and char_length(title) <= 200),
  constraint payment_links_merchant_id_fkey foreign key (merchant_id) references merchants(id),
  constraint payment_links_product_id_fkey foreign key (product_id) references products(id),
  constraint payment_links_split_id_fkey foreign key (split_id) references splits(id) on delete set null
);
create index payment_links_of_merchant on payment_links using btree (merchant_id, created_at desc, id desc);
create index payment_links_of_name on payment_links using btree (merchant_id, lower(title) text_pattern_ops);
create index payment_links_of_split on payment_links using btree (split_id) where split_id is not null;
create trigger payment_links_add_slug after insert on payment_links for each row execute function keep_slug();
create trigger payment_links_audit after insert or delete or update of slug, title, description, amount, currency, product_id, split_id, redirect_url, max_uses, expires_at, active, payer_fields on payment_links for each row execute function write_audit_entry('payment_link', 'id', 'slug,title,chain_id,description,amount,currency,product_id,split_id,redirect_url,max_uses,expires_at,active,payer_fields', '');
create trigger payment_links_keep_slug after update of slug on payment_links for each row when (new.slug is distinct from old.slug) execute function keep_slug();

-- A price that was paid, or money that waits for a decision. It is reversed if a reorg removes a transfer of it, and granted again if the transfer comes back.
create table payments (
  id text not null,
  chain_id integer not null,
  payer evm_address not null,
  amount base_units not null,
  tx_hash evm_hash not null,
  status text not null,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  merchant_id text not null,
  exception text,
  -- When a sweep takes what no sweep has taken yet.
  sweep_at timestamp with time zone,
  -- Until when the merchant's event waits for the shares; null: it is notified, or does not wait.
  notify_by timestamp with time zone,
  -- The token that was sent, which may be another than the network's.
  token evm_address not null,
  -- The deposit with the money of a payment that is, or was, open.
  deposit_id bigint,
  -- When the merchant accepted it as paid.
  accepted_at timestamp with time zone,
  -- Accepted when the session was already paid by another payment.
  beside boolean not null default false,
  -- When the merchant returned it; `returned_to` is the address.
  returned_at timestamp with time zone,
  returned_to evm_address,
  -- Whether the newest event about it says that it was paid: then a reversal is an event too.
  notified_paid boolean not null default false,
  -- Numbers its events, which may arrive in another order.
  event_sequence integer not null default 0,
  resource_id text not null,
  -- Set by the database: an agent's authorization paid it (x402).
  agent boolean not null default false,
  traceparent text,
  -- Set by the database: a return failed or was cancelled; the merchant must be notified that the payment is open.
  reopened boolean not null default false,
  constraint payments_pkey primary key (id),
  constraint payments_accepted check (accepted_at is null or (status = any (array['granted'::text, 'reversed'::text]))),
  constraint payments_beside check (not beside or accepted_at is not null),
  constraint payments_exception_check check (exception = any (array['underpaid'::text, 'overpaid'::text, 'late'::text, 'duplicate'::text, 'wrong_asset'::text, 'sanctioned'::text, 'no_buyer'::text])),
  constraint payments_open_why check ((status <> all (array['open'::text, 'returned'::text])) or exception is not null and deposit_id is not null),
  constraint payments_returned check ((status = 'returned'::text) = (returned_at is not null) and (returned_at is null) = (returned_to is null)),
  constraint payments_status_check check (status = any (array['granted'::text, 'reversed'::text, 'open'::text, 'returned'::text])),
  constraint payments_deposit_id_fkey foreign key (deposit_id) references deposits(id),
  constraint payments_resource foreign key (resource_id, merchant_id, chain_id) references resources(id, merchant_id, chain_id)
);
create index payments_exceptional on payments using btree (merchant_id, created_at desc, id desc) where exception is not null;
create index payments_of_amount on payments using btree (merchant_id, amount, created_at desc, id desc);
create index payments_of_chain on payments using btree (merchant_id, chain_id, created_at desc, id desc);
create index payments_of_deposit on payments using btree (deposit_id, token);
create index payments_of_exception on payments using btree (merchant_id, exception, created_at desc, id desc) where exception is not null;
create index payments_of_hash on payments using btree (tx_hash);
create index payments_of_merchant on payments using btree (merchant_id, created_at desc, id desc);
create index payments_of_merchant_status on payments using btree (merchant_id, status, created_at desc, id desc);
create index payments_of_payer on payments using btree (resource_id, payer);
create index payments_of_sender on payments using btree (merchant_id, payer, created_at desc, id desc);
create unique index payments_once_a_session on payments using btree (resource_id) where starts_with(resource_id, 'cs_'::text) and status = 'granted'::text and not beside;
create index payments_open_at on payments using btree (deposit_id, token) include (amount) where status = 'open'::text;
create index payments_reopened on payments using btree (chain_id) where reopened;
create index payments_returned_of_payer on payments using btree (resource_id, payer) where status = 'returned'::text;
create index payments_to_notify on payments using btree (notify_by) where notify_by is not null;
create index payments_to_sweep on payments using btree (chain_id, sweep_at) where sweep_at is not null;
create index payments_unsettled_of_payer on payments using btree (resource_id, payer) where status = any (array['open'::text, 'reversed'::text]);
create trigger payments_add_terms after insert on payments referencing new table as made for each statement execute function add_payment_terms();
create trigger payments_audit_accepted after update of accepted_at on payments for each row when (new.accepted_at is not null and new.accepted_at is distinct from old.accepted_at and current_setting('sluice.actor'::text, true) <> ''::text) execute function write_audit_entry('payment.accepted', 'id', 'status,accepted_at', '');
create trigger payments_audit_returned after update of status on payments for each row when (new.status = 'returned'::text and old.status <> 'returned'::text and current_setting('sluice.actor'::text, true) <> ''::text) execute function write_audit_entry('payment.returned', 'id', 'status,returned_at,returned_to', '');
create trigger payments_drop_terms after delete on payments for each row when (starts_with(old.resource_id, 'cs_'::text)) execute function drop_payment_terms();
create trigger payments_note_changed after update of status, exception, amount, tx_hash, payer, accepted_at, returned_at, returned_to on payments for each row when (new.status is distinct from old.status or new.exception is distinct from old.exception or new.amount::numeric is distinct from old.amount::numeric or new.tx_hash::text is distinct from old.tx_hash::text or new.payer::text is distinct from old.payer::text or new.accepted_at is distinct from old.accepted_at or new.returned_at is distinct from old.returned_at or new.returned_to::text is distinct from old.returned_to::text) execute function note_change('payment');
create trigger payments_note_made after insert on payments for each row execute function note_change('payment');
create trigger payments_note_reopened before update of status on payments for each row when (old.status = 'returned'::text and new.status = 'open'::text) execute function note_reopened();
create trigger payments_open_claim_book after insert on payments for each row execute function open_claim_book();
create trigger payments_set_agent before insert or update of tx_hash on payments for each row execute function set_agent();
create trigger payments_unapply_transfers after update of status on payments for each row when ((old.status = any (array['granted'::text, 'returned'::text])) and (new.status <> all (array['granted'::text, 'returned'::text]))) execute function unapply_transfers();
create constraint trigger payments_write_receipt_changed after update on payments deferrable initially deferred for each row when ((old.status = 'granted'::text or new.status = 'granted'::text) and (old.status is distinct from new.status or old.amount::numeric is distinct from new.amount::numeric)) execute function write_receipt();
create constraint trigger payments_write_receipt_made after insert on payments deferrable initially deferred for each row when (new.status = 'granted'::text) execute function write_receipt();

-- Where a merchant's money goes, by network. In live mode a change waits in the pending columns.
create table payout_addresses (
  merchant_id text not null,
  chain_id integer not null,
  address evm_address not null,
  pending_address evm_address,
  pending_at timestamp with time zone,
  -- Since when it is in force: the one that has been longest signs for the wallet lock.
  since timestamp with time zone not null default now(),
  constraint payout_addresses_pkey primary key (merchant_id, chain_id),
  constraint payout_addresses_check check ((pending_address is null) = (pending_at is null)),
  constraint payout_addresses_merchant_id_fkey foreign key (merchant_id) references merchants(id)
);
create index payout_addresses_pending on payout_addresses using btree (pending_at) where pending_at is not null;
create trigger payout_addresses_audit after insert or delete or update on payout_addresses for each row execute function write_audit_entry('payout_address', 'network', 'address,pending_address,pending_at', '');
create trigger payout_addresses_note_change after insert or update on payout_addresses for each row execute function note_address_change();

-- A call of one of the service's wallets, which moves money. It never gives up its nonce.
create table payouts (
  -- Its 16 bytes end the calldata, so that payouts can be found on the chain again.
  id uuid not null,
  chain_id integer not null,
  kind text not null,
  -- Why the money moves: one payout for each cause.
  source_key text not null,
  -- Null for an authorization that pays another server's address, for a batch, and for calls of an escrow.
  deposit_id bigint,
  -- Set by a trigger, from the deposit if there is one.
  merchant_id text not null,
  payment_id text,
  -- Which recipient of the payment's set; `percent_e4` is its part.
  share integer,
  percent_e4 integer,
  -- The reverted payout that this one replaces.
  replaces uuid,
  token evm_address not null,
  recipient evm_address not null,
  amount base_units not null,
  to_address evm_address not null,
  data text not null,
  value base_units not null default 0,
  -- Whether the deposit's book counts it; what does not fit is held.
  reserved boolean not null,
  state text not null,
  held_reason text,
  held_detail text,
  -- When it is tried next, while it has no nonce; `checks` is how often that failed.
  run_at timestamp with time zone not null,
  checks integer not null default 0,
  wallet evm_address,
  nonce bigint,
  -- The attempt that is mined.
  tx_hash evm_hash,
  block_number bigint,
  block_hash evm_hash,
  succeeded boolean,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  -- Set by a trigger, from the kind.
  lane text not null default 'payout'::text,
  -- Null: that of a release.
  gas bigint,
  -- Whose authorization it is; `auth_nonce` is its nonce, `auth_digest` the EIP-712 hash that was signed.
  payer evm_address,
  auth_nonce evm_hash,
  auth_digest evm_hash,
  -- If it is not signed by then it is cancelled: the authorization, or what it pays, would expire before it is mined.
  relay_by timestamp with time zone,
  -- Cancelled by a person: it is not made again.
  stopped boolean not null default false,
  -- In wei, from the receipt.
  gas_cost base_units,
  gas_cost_at timestamp with time zone,
  -- Set by a trigger.
  mined_at timestamp with time zone,
  -- When its receipt was first seen without the transfer that it should contain.
  transfer_missing_at timestamp with time zone,
  -- The session whose escrow is called; null for any other kind.
  escrow_id text,
  traceparent text,
  -- The batch that contains it and has its nonce, attempts and gas; null for a call with a nonce of its own.
  batch_id uuid,
  -- Of a return that the merchant made itself: how much of it was beyond the payment.
  excess base_units,
  -- Of a relay that failed: whether another transaction used its authorization before; null until the chain was asked.
  preempted boolean,
  constraint payouts_pkey primary key (id),
  constraint payouts_chain_id_wallet_nonce_key unique (chain_id, wallet, nonce),
  constraint payouts_source_key_key unique (source_key),
  constraint payouts_amount_check check (amount::numeric > 0::numeric),
  constraint payouts_batched check (batch_id is null or kind = 'settle'::text and nonce is null and gas_cost is null),
  constraint payouts_check check ((nonce is null) = (wallet is null)),
  constraint payouts_check2 check ((state = 'held'::text) = (held_reason is not null)),
  constraint payouts_check4 check ((state = any (array['mined'::text, 'final'::text, 'reverted'::text])) = (tx_hash is not null)),
  constraint payouts_check5 check ((tx_hash is null) = (block_hash is null) and (tx_hash is null) = (block_number is null) and (tx_hash is null) = (succeeded is null)),
  constraint payouts_check6 check (state <> 'final'::text or succeeded),
  constraint payouts_check7 check (state <> 'reverted'::text or not succeeded),
  constraint payouts_check8 check ((kind = 'share'::text) = (share is not null and percent_e4 is not null and payment_id is not null)),
  constraint payouts_data_check check (data ~ '^0x[0-9a-f]+$'::text),
  constraint payouts_deposit check (deposit_id is not null or (kind = any (array['settle'::text, 'batch'::text, 'anchor'::text, 'store'::text])) or escrow_id is not null),
  constraint payouts_escrow check ((escrow_id is not null) = (kind = any (array['reserve'::text, 'capture'::text, 'void'::text, 'refund'::text]))),
  constraint payouts_gas_check check (gas > 0),
  constraint payouts_gas_cost_known check ((gas_cost is null) = (gas_cost_at is null) and (gas_cost is null or tx_hash is not null)),
  constraint payouts_held_reason_check check (held_reason = any (array['short'::text, 'sanctions'::text, 'simulation'::text, 'low_gas'::text, 'reverted'::text, 'gas_budget'::text, 'allowance'::text, 'balance'::text])),
  constraint payouts_kind_check check (kind = any (array['share'::text, 'sweep'::text, 'return'::text, 'authorize'::text, 'settle'::text, 'batch'::text, 'reserve'::text, 'capture'::text, 'void'::text, 'refund'::text, 'anchor'::text, 'store'::text])),
  constraint payouts_lane check (lane =
case
    when kind = any (array['authorize'::text, 'settle'::text, 'batch'::text, 'reserve'::text, 'capture'::text, 'void'::text, 'refund'::text]) then 'relay'::text
    when kind = 'store'::text then 'storage'::text
    else 'payout'::text
end),
  constraint payouts_nonce_by_state check ((state = any (array['queued'::text, 'held'::text, 'cancelled'::text])) = (nonce is null and batch_id is null) or (kind = any (array['return'::text, 'store'::text])) and state = 'final'::text and nonce is null),
  constraint payouts_relay_whole check ((lane = 'relay'::text) = (relay_by is not null) and (kind = any (array['authorize'::text, 'settle'::text, 'reserve'::text])) = (payer is not null) and (num_nonnulls(payer, auth_nonce, auth_digest) = any (array[0, 3]))),
  constraint payouts_reserved check (
case
    when lane = 'relay'::text or (kind = any (array['anchor'::text, 'store'::text])) then not reserved
    else reserved or (state = any (array['held'::text, 'cancelled'::text]))
end),
  constraint payouts_return_of check (kind <> 'return'::text or payment_id is not null),
  constraint payouts_state_check check (state = any (array['queued'::text, 'held'::text, 'assigned'::text, 'mined'::text, 'final'::text, 'reverted'::text, 'cancelled'::text])),
  constraint payouts_stopped check (not stopped or state = 'cancelled'::text),
  constraint payouts_batch_id_fkey foreign key (batch_id) references payouts(id),
  constraint payouts_deposit_id_fkey foreign key (deposit_id) references deposits(id),
  constraint payouts_escrow_id_fkey foreign key (escrow_id) references escrows(session_id),
  constraint payouts_merchant_id_fkey foreign key (merchant_id) references merchants(id),
  constraint payouts_payment_id_fkey foreign key (payment_id) references payments(id),
  constraint payouts_replaces_fkey foreign key (replaces) references payouts(id)
);
create index payouts_anchors on payouts using btree (chain_id, state) where kind = 'anchor'::text;
create index payouts_captures_to on payouts using btree (chain_id, recipient, block_number, nonce) where kind = 'capture'::text and succeeded;
create index payouts_due on payouts using btree (chain_id, lane, least(checks, 1), run_at, created_at, id) where state = any (array['queued'::text, 'held'::text]);
create index payouts_due_of_merchant on payouts using btree (merchant_id, chain_id, run_at) where state = any (array['queued'::text, 'held'::text]);
create index payouts_failed_calls on payouts using btree (escrow_id, kind) where (kind = any (array['capture'::text, 'void'::text])) and state = 'reverted'::text;
create index payouts_failed_of_payer on payouts using btree (payer, updated_at) where payer is not null and succeeded = false;
create index payouts_final on payouts using btree (chain_id, block_number) where state = 'final'::text;
create index payouts_gas_of_all on payouts using btree (gas_cost_at) include (gas_cost, chain_id, lane) where gas_cost is not null;
create index payouts_gas_of_merchant on payouts using btree (merchant_id, gas_cost_at) include (gas_cost, lane, chain_id, token, amount) where gas_cost is not null;
create index payouts_leaving on payouts using btree (chain_id, deposit_id) where (state = any (array['queued'::text, 'held'::text, 'assigned'::text, 'mined'::text])) and deposit_id is not null;
create index payouts_listed on payouts using btree (merchant_id, created_at desc, (id::text) desc) where kind = any (array['share'::text, 'sweep'::text, 'return'::text, 'capture'::text]);
create index payouts_listed_open on payouts using btree (merchant_id, state, created_at desc, (id::text) desc) where (kind = any (array['share'::text, 'sweep'::text, 'return'::text, 'capture'::text])) and state <> 'final'::text;
create index payouts_mined on payouts using btree (merchant_id, mined_at desc, (id::text) desc) where mined_at is not null;
create index payouts_mined_calls on payouts using btree (chain_id, block_number) where escrow_id is not null and state = 'mined'::text;
create index payouts_of_amount on payouts using btree (merchant_id, amount, created_at desc, (id::text) desc) where lane = 'payout'::text and kind <> 'anchor'::text;
create unique index payouts_of_authorization on payouts using btree (chain_id, token, payer, auth_nonce) where payer is not null and (state <> all (array['cancelled'::text, 'reverted'::text]));
create index payouts_of_batch on payouts using btree (batch_id) where batch_id is not null;
create index payouts_of_call_amount on payouts using btree (merchant_id, amount, created_at desc, (id::text) desc) where kind = any (array['capture'::text, 'void'::text]);
create index payouts_of_deposit on payouts using btree (deposit_id);
create index payouts_of_escrow on payouts using btree (escrow_id) where escrow_id is not null;
create index payouts_of_escrows on payouts using btree (merchant_id, created_at desc, (id::text) desc) where kind = any (array['capture'::text, 'void'::text]);
create index payouts_of_hash on payouts using btree (tx_hash) where tx_hash is not null;
create index payouts_of_kind on payouts using btree (merchant_id, kind, created_at desc, (id::text) desc) where lane = 'payout'::text;
create index payouts_of_merchant on payouts using btree (merchant_id, created_at desc, (id::text) desc);
create index payouts_of_payer on payouts using btree (payer, auth_nonce) where payer is not null;
create index payouts_of_payment on payouts using btree (payment_id) where payment_id is not null;
create index payouts_of_recipient on payouts using btree (merchant_id, recipient);
create index payouts_of_state on payouts using btree (merchant_id, state, created_at desc, (id::text) desc) where lane = 'payout'::text and state <> 'final'::text;
create unique index payouts_one_reserve on payouts using btree (escrow_id) where kind = 'reserve'::text and (state = any (array['queued'::text, 'held'::text, 'assigned'::text, 'mined'::text, 'final'::text]));
create unique index payouts_one_return on payouts using btree (payment_id) where kind = 'return'::text and (state <> all (array['reverted'::text, 'cancelled'::text, 'final'::text]));
create unique index payouts_one_void on payouts using btree (escrow_id) where kind = 'void'::text and (state = any (array['queued'::text, 'held'::text, 'assigned'::text, 'mined'::text, 'final'::text]));
create index payouts_open on payouts using btree (chain_id, wallet, nonce) where state = any (array['assigned'::text, 'mined'::text]);
create index payouts_open_refunds on payouts using btree (escrow_id) where kind = 'refund'::text and (state = any (array['queued'::text, 'held'::text, 'assigned'::text]));
create index payouts_over_budget on payouts using btree (merchant_id, run_at) where held_reason = 'gas_budget'::text;
create unique index payouts_relay_of_deposit on payouts using btree (deposit_id) where kind = 'authorize'::text and (state = any (array['queued'::text, 'held'::text, 'assigned'::text, 'mined'::text]));
create index payouts_replacing on payouts using btree (replaces) where replaces is not null;
create index payouts_signed_refunds on payouts using btree (chain_id, merchant_id) where kind = 'refund'::text and state = 'assigned'::text;
create index payouts_succeeded_of_payer on payouts using btree (payer, merchant_id, updated_at) where payer is not null and succeeded;
create index payouts_turns on payouts using btree (chain_id, merchant_id, (
case
    when kind = any (array['authorize'::text, 'settle'::text, 'reserve'::text]) then 0
    when kind = 'refund'::text then 3
    when checks > 0 then 4
    when kind = 'void'::text or source_key ~~ '%:0'::text then 1
    else 2
end), run_at, created_at, id) where lane = 'relay'::text and (state = any (array['queued'::text, 'held'::text]));
create index payouts_unexplained on payouts using btree (chain_id, updated_at) where succeeded = false and preempted is not true and (kind = any (array['authorize'::text, 'settle'::text]));
create index payouts_unpriced on payouts using btree (merchant_id) where (state = any (array['assigned'::text, 'mined'::text])) and gas_cost is null and batch_id is null;
create index payouts_waiting on payouts using btree (chain_id, lane, state, held_reason) include (run_at, created_at) where state = any (array['queued'::text, 'held'::text, 'assigned'::text, 'mined'::text]);
create index payouts_without_transfer on payouts using btree (chain_id, wallet) where transfer_missing_at is not null;
create trigger payouts_audit after update of state, stopped, run_at on payouts for each row when ((new.state <> old.state or new.stopped <> old.stopped or new.run_at <> old.run_at) and current_setting('sluice.actor'::text, true) <> ''::text) execute function write_audit_entry('payout', 'payout', 'state,stopped,held_reason,run_at', '');
create trigger payouts_audit_captured after insert on payouts for each row when (new.kind = 'capture'::text and current_setting('sluice.actor'::text, true) <> ''::text) execute function write_audit_entry('checkout.captured', 'escrow_id', 'payout,amount,recipient', '');
create trigger payouts_audit_voided after insert on payouts for each row when (new.kind = 'void'::text and current_setting('sluice.actor'::text, true) <> ''::text) execute function write_audit_entry('checkout.voided', 'escrow_id', 'payout,amount,recipient', '');
create trigger payouts_count_added after insert on payouts for each row when ((new.state = any (array['mined'::text, 'final'::text])) and (new.kind <> all (array['authorize'::text, 'settle'::text, 'batch'::text]))) execute function count_payout();
create trigger payouts_count_changed after update on payouts for each row when ((new.kind <> all (array['authorize'::text, 'settle'::text, 'batch'::text])) and ((old.state = any (array['mined'::text, 'final'::text])) or (new.state = any (array['mined'::text, 'final'::text]))) and ((old.state = any (array['mined'::text, 'final'::text])) is distinct from (new.state = any (array['mined'::text, 'final'::text])) or (old.succeeded is false) is distinct from (new.succeeded is false) or old.merchant_id is distinct from new.merchant_id or old.amount::numeric is distinct from new.amount::numeric or old.mined_at is distinct from new.mined_at)) execute function count_payout();
create trigger payouts_end_batch_calls after update on payouts for each row when (new.kind = 'batch'::text and (old.state = any (array['assigned'::text, 'mined'::text])) and new.state <> old.state and (new.state = any (array['assigned'::text, 'final'::text, 'reverted'::text]))) execute function end_batch_calls();
create trigger payouts_keep_committed after insert or update on payouts for each row execute function keep_committed();
create trigger payouts_keep_others_money before update on payouts for each row when (new.state = 'assigned'::text and (old.state = any (array['queued'::text, 'held'::text]))) execute function keep_others_money();
create trigger payouts_keep_promises before update on payouts for each row execute function keep_promises();
create trigger payouts_note_call after update of state, held_reason, tx_hash on payouts for each row when ((new.kind = any (array['refund'::text, 'settle'::text])) and (new.state is distinct from old.state or new.held_reason is distinct from old.held_reason or new.tx_hash::text is distinct from old.tx_hash::text)) execute function note_call_change();
create trigger payouts_note_changed after update of state, held_reason, amount, recipient, tx_hash, gas_cost on payouts for each row when ((new.kind = any (array['share'::text, 'sweep'::text, 'return'::text, 'capture'::text])) and (new.state is distinct from old.state or new.held_reason is distinct from old.held_reason or new.amount::numeric is distinct from old.amount::numeric or new.recipient::text is distinct from old.recipient::text or new.tx_hash::text is distinct from old.tx_hash::text or new.gas_cost::numeric is distinct from old.gas_cost::numeric)) execute function note_change('payout');
create trigger payouts_note_made after insert on payouts for each row when (new.kind = any (array['share'::text, 'sweep'::text, 'return'::text, 'capture'::text])) execute function note_change('payout');
create trigger payouts_reopen_payment after update on payouts for each row when (new.kind = 'return'::text and new.state = 'cancelled'::text and old.state <> 'cancelled'::text) execute function reopen_payment();
create trigger payouts_set_lane before insert on payouts for each row execute function set_lane();
create trigger payouts_set_merchant before insert on payouts for each row execute function set_merchant();
create trigger payouts_set_mined before insert or update of state on payouts for each row execute function set_mined();
create trigger payouts_wake_escrow after update on payouts for each row when (new.escrow_id is not null and (old.state = 'mined'::text or (new.state = any (array['mined'::text, 'final'::text, 'reverted'::text, 'cancelled'::text]))) and (new.state is distinct from old.state or new.block_hash::text is distinct from old.block_hash::text or new.succeeded is distinct from old.succeeded)) execute function wake_escrow();
create trigger payouts_wake_session after update on payouts for each row when (new.kind = 'authorize'::text and new.state is distinct from old.state and (new.state = any (array['final'::text, 'reverted'::text, 'cancelled'::text]))) execute function wake_session();

-- Price, switch and receiving address of a paywall, dated: a transfer counts by the version of the time when it was mined.
create table paywall_versions (
  paywall_id text not null,
  n integer not null,
  price base_units not null,
  active boolean not null,
  deposit_id bigint not null,
  from_at timestamp with time zone not null,
  until_at timestamp with time zone,
  constraint paywall_versions_pkey primary key (paywall_id, n),
  constraint paywall_versions_check check (until_at >= from_at),
  constraint paywall_versions_deposit_id_fkey foreign key (deposit_id) references deposits(id),
  constraint paywall_versions_paywall_id_fkey foreign key (paywall_id) references paywalls(id)
);
create index paywall_versions_of_deposit on paywall_versions using btree (deposit_id);
create unique index paywall_versions_open on paywall_versions using btree (paywall_id) where until_at is null;

-- What a merchant sells to many, each of whom gets access for a time or for a number of calls.
create table paywalls (
  id text not null,
  merchant_id text not null,
  chain_id integer not null,
  name text not null,
  price base_units not null,
  currency text not null,
  description text,
  content_type text not null,
  content_data jsonb,
  content_url text,
  pricing_model text not null,
  access_duration_s bigint,
  slug text,
  active boolean not null,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  split_id text,
  -- Whether `/.well-known/x402` lists it.
  listed boolean not null default false,
  -- Subscribers of this product have access.
  subscription_product_id text,
  constraint paywalls_pkey primary key (id),
  constraint paywalls_slug_key unique (slug),
  constraint paywalls_access_duration_s_check check (access_duration_s > 0),
  constraint paywalls_name_check check (char_length(name) >= 1 and char_length(name) <= 200),
  constraint paywalls_prefix check (starts_with(id, 'pw_'::text)),
  constraint paywalls_price_check check (price::numeric > 0::numeric),
  constraint paywalls_slug_check check (slug ~ '^[a-z0-9-]{3,64}$'::text),
  constraint paywalls_resource foreign key (id, merchant_id, chain_id) references resources(id, merchant_id, chain_id),
  constraint paywalls_split_id_fkey foreign key (split_id) references splits(id) on delete set null,
  constraint paywalls_subscription_product_id_fkey foreign key (subscription_product_id) references products(id)
);
create index paywalls_listed on paywalls using btree (updated_at desc) where listed and active and slug is not null;
create index paywalls_of_merchant on paywalls using btree (merchant_id, created_at desc, id desc);
create index paywalls_of_name on paywalls using btree (merchant_id, lower(name) text_pattern_ops);
create index paywalls_of_split on paywalls using btree (split_id) where split_id is not null;
create trigger notify_access after update on paywalls for each row when (old.subscription_product_id is distinct from new.subscription_product_id) execute function notify_paywall_access();
create trigger notify_no_access after delete on paywalls for each row execute function notify_paywall_access();
create trigger paywalls_add_slug after insert on paywalls for each row when (new.slug is not null) execute function keep_slug();
create trigger paywalls_audit after insert or delete or update on paywalls for each row execute function write_audit_entry('paywall', 'id', 'name,chain_id,price,currency,description,content_type,pricing_model,access_duration_s,slug,active,listed,subscription_product_id,split_id', 'content_url,content_data');
create trigger paywalls_keep_slug after update of slug on paywalls for each row when (new.slug is distinct from old.slug) execute function keep_slug();
create trigger paywalls_register before insert on paywalls for each row execute function register_resource();
create trigger paywalls_unregister after delete on paywalls for each row execute function unregister_resource();

-- Who has signed in to the console at the issuer, or is or was a member of a merchant.
create table persons (
  id text not null,
  iss text not null,
  sub text not null,
  -- As the issuer had verified it when the person last signed in or became a member.
  email text,
  -- Whether the person is or was a member of a merchant: such a one gets none by itself.
  was_member boolean not null default true,
  created_at timestamp with time zone not null,
  constraint persons_pkey primary key (id),
  constraint persons_iss_sub_key unique (iss, sub)
);

-- What checkouts, payment links and subscriptions sell.
create table products (
  id text not null,
  merchant_id text not null,
  chain_id integer not null,
  name text not null,
  description text,
  price base_units not null,
  currency text not null,
  active boolean not null,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  split_id text,
  -- The length of a period, with `billing_count`; null for a product that is no subscription.
  billing_interval text,
  billing_count integer,
  trial_days integer not null default 0,
  -- How many periods are billed; null: until it is cancelled.
  max_periods integer,
  constraint products_pkey primary key (id),
  constraint products_billing check ((billing_interval is null) = (billing_count is null) and (billing_interval is not null or trial_days = 0 and max_periods is null)),
  constraint products_billing_count_check check (billing_count >= 1 and billing_count <= 12),
  constraint products_billing_interval_check check (billing_interval = any (array['day'::text, 'week'::text, 'month'::text, 'year'::text])),
  constraint products_max_periods_check check (max_periods >= 1 and max_periods <= 1000),
  constraint products_name_check check (char_length(name) >= 1 and char_length(name) <= 200),
  constraint products_price_check check (price::numeric > 0::numeric),
  constraint products_trial_days_check check (trial_days >= 0 and trial_days <= 365),
  constraint products_merchant_id_fkey foreign key (merchant_id) references merchants(id),
  constraint products_split_id_fkey foreign key (split_id) references splits(id) on delete set null
);
create index products_of_merchant on products using btree (merchant_id, created_at desc, id desc);
create index products_of_name on products using btree (merchant_id, lower(name) text_pattern_ops);
create index products_of_split on products using btree (split_id) where split_id is not null;
create trigger products_audit after insert or delete or update on products for each row execute function write_audit_entry('product', 'id', 'name,chain_id,price,currency,description,split_id,active,billing_interval,billing_count,trial_days,max_periods', '');

-- An unpaid checkout of long ago: some hundred bytes in place of thousands. `deposits/put-away.ts` brings it back when anyone asks for it or money is found at its address.
create table put_away (
  -- The id of the checkout session.
  id text not null,
  merchant_id text not null,
  chain_id integer not null,
  terms_id bigint not null,
  -- The receiving address, as bytes; `salt` too.
  address bytea not null,
  salt bytea not null,
  open_after_s bigint not null,
  -- The block up to which it is known that nothing came.
  watched_number bigint not null,
  created_at timestamp with time zone not null,
  expires_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  -- When its balance is read next.
  check_at timestamp with time zone not null,
  -- Hashes that were submitted to it and refused.
  submissions jsonb,
  constraint put_away_pkey primary key (id),
  constraint put_away_merchant_id_fkey foreign key (merchant_id) references merchants(id),
  constraint put_away_terms_id_fkey foreign key (terms_id) references put_away_terms(id)
);
create unique index put_away_address on put_away using btree (address, chain_id);
create index put_away_due on put_away using btree (chain_id, check_at);
create index put_away_of_merchant on put_away using btree (merchant_id, id);

-- What many checkouts that were put away have in common: the other columns of their rows, as the database has them.
create table put_away_terms (
  id bigint not null generated always as identity,
  merchant_id text not null,
  -- A column of its own, like product_id and recipient_set_id, so that what the rows refer to is not deleted meanwhile.
  link_id text,
  product_id text,
  recipient_set_id bigint,
  -- All columns that `put_away` does not have; `deposit` has those of the address.
  session jsonb not null,
  deposit jsonb not null,
  -- SHA-256 of `session` and `deposit`.
  hash bytea not null,
  constraint put_away_terms_pkey primary key (id),
  constraint put_away_terms_merchant_id_hash_key unique (merchant_id, hash),
  constraint put_away_terms_link_id_fkey foreign key (link_id) references payment_links(id),
  constraint put_away_terms_merchant_id_fkey foreign key (merchant_id) references merchants(id),
  constraint put_away_terms_product_id_fkey foreign key (product_id) references products(id),
  constraint put_away_terms_recipient_set_id_fkey foreign key (recipient_set_id) references recipient_sets(id)
);

-- How far the rates of a source are known. Later amounts have no value yet.
create table rate_sources (
  source text not null,
  complete_until timestamp with time zone not null,
  -- When the source is asked again.
  next_at timestamp with time zone not null,
  constraint rate_sources_pkey primary key (source),
  constraint rate_sources_source_check check (source = any (array['ecb'::text, 'fixed'::text]))
);

-- What one unit of a currency, or one token, is worth in US dollars from a time on. A row is never changed, and none is added where a value may have been read: so the value of a payment stays what it was.
create table rates (
  -- A currency of ISO 4217, or the symbol of a settlement token.
  unit text not null,
  published_at timestamp with time zone not null,
  usd numeric not null,
  source text not null,
  -- Until when it counts if no newer one is published; null: until there is a newer one.
  valid_until timestamp with time zone,
  constraint rates_pkey primary key (unit, published_at),
  constraint rates_check check (valid_until > published_at),
  constraint rates_source_check check (source = any (array['ecb'::text, 'fixed'::text])),
  constraint rates_unit_check check (unit ~ '^[A-Z0-9]{3,10}$'::text),
  constraint rates_usd_check check (usd > 0::numeric)
);
create trigger rates_keep before delete or update on rates for each row execute function keep_rates();
create trigger rates_keep_all before truncate on rates for each statement execute function keep_rates();

-- Files of sealed receipts of one network.
create table receipt_batches (
  -- The Merkle root of its bytes, as 0G computes it.
  root evm_hash not null,
  key_id text not null,
  chain_id integer not null,
  n bigint not null generated always as identity,
  prev_root evm_hash,
  receipts integer not null,
  size integer not null,
  -- Null once the store has them.
  bytes bytea,
  stored_at timestamp with time zone,
  created_at timestamp with time zone not null,
  -- The call that writes its root to the chain.
  anchor_id uuid,
  -- The newest call that has 0G keep it; null where it is in no other store than ours.
  storage_id uuid,
  -- Its number among all files of 0G.
  storage_seq bigint,
  -- When 0G's nodes had proven that they have it.
  uploaded_at timestamp with time zone,
  -- How often bringing it to 0G failed.
  storage_tries integer not null default 0,
  -- Before this it is not brought to 0G: a try failed, or one goes on; null: at once.
  storage_run_at timestamp with time zone,
  constraint receipt_batches_pkey primary key (root),
  constraint receipt_batches_kept check (bytes is not null or stored_at is not null),
  constraint receipt_batches_uploaded check ((storage_seq is null) = (uploaded_at is null) and (uploaded_at is null or storage_id is not null)),
  constraint receipt_batches_anchor_id_fkey foreign key (anchor_id) references payouts(id),
  constraint receipt_batches_key_id_fkey foreign key (key_id) references receipt_keys(id),
  constraint receipt_batches_prev_root_fkey foreign key (prev_root) references receipt_batches(root),
  constraint receipt_batches_storage_id_fkey foreign key (storage_id) references payouts(id)
);
create index receipt_batches_in_order on receipt_batches using btree (chain_id, n desc);
create index receipt_batches_not_anchored on receipt_batches using btree (chain_id, n) where anchor_id is null;
create index receipt_batches_not_stored on receipt_batches using btree (n) where stored_at is null;
create index receipt_batches_not_uploaded on receipt_batches using btree (n) where uploaded_at is null;
create index receipt_batches_of_anchor on receipt_batches using btree (anchor_id) where anchor_id is not null;
create index receipt_batches_of_storage on receipt_batches using btree (storage_id) where storage_id is not null;

-- The keys that sign receipts, one for each network and factory. They are published for ever.
create table receipt_keys (
  -- The thumbprint of the public key (RFC 7638).
  id text not null,
  chain_id integer not null,
  factory evm_address not null,
  public_key jsonb not null,
  -- The private key, sealed under SECRET_KEY. Null once that was lost: then the key signs nothing more.
  sealed text,
  created_at timestamp with time zone not null,
  -- The call that registers it on the chain.
  anchor_id uuid,
  -- The call that revokes it on the chain.
  revoke_id uuid,
  constraint receipt_keys_pkey primary key (id),
  constraint receipt_keys_anchor_id_fkey foreign key (anchor_id) references payouts(id),
  constraint receipt_keys_revoke_id_fkey foreign key (revoke_id) references payouts(id)
);

-- Who makes the batches of a network now.
create table receipt_rounds (
  chain_id integer not null,
  run_at timestamp with time zone not null,
  anchored_at timestamp with time zone,
  claim_id uuid,
  lease_until timestamp with time zone,
  constraint receipt_rounds_pkey primary key (chain_id)
);

-- What holders can prove. A row without a root waits for its batch.
create table receipts (
  merchant_id text not null,
  n bigint not null generated always as identity,
  chain_id integer not null,
  type text not null,
  resource_id text not null,
  -- The id of the payment, or of the call of an escrow.
  about text not null,
  token evm_address not null,
  amount base_units not null,
  -- What is signed and could change until then; null once it is.
  body jsonb,
  settled_at timestamp with time zone not null,
  -- Its place in the merchant's chain of receipts, from 1 on, without a gap.
  seq integer,
  -- Of the signed receipt; the next one of the merchant names it.
  hash text,
  root evm_hash,
  byte_offset integer,
  byte_length integer,
  -- The hashes that prove it within its batch, 32 bytes each.
  path bytea,
  -- Its key and its facts with their salts, sealed under SECRET_KEY. Null once they are erased: then only its holders can read it.
  sealed text,
  constraint receipts_pkey primary key (merchant_id, n),
  constraint receipts_body check ((body is null) = (root is not null)),
  constraint receipts_sealed check (sealed is null or root is not null),
  constraint receipts_type_check check (type = any (array['payment'::text, 'refund'::text, 'reversed'::text, 'capture'::text, 'void'::text])),
  constraint receipts_whole check (num_nonnulls(seq, hash, root, byte_offset, byte_length, path) = any (array[0, 6])),
  constraint receipts_merchant_id_fkey foreign key (merchant_id) references merchants(id),
  constraint receipts_root_fkey foreign key (root) references receipt_batches(root)
);
create unique index receipts_in_chain on receipts using btree (merchant_id, seq) where seq is not null;
create index receipts_of_about on receipts using btree (about, n);
create index receipts_of_root on receipts using btree (root) where root is not null;
create index receipts_settled on receipts using btree (merchant_id, settled_at, n);
create index receipts_waiting on receipts using btree (chain_id, n) where root is null;

-- Who is paid which part. A set never changes, and what refers to it keeps it whatever becomes of the split. Each change of a split makes another set.
create table recipient_sets (
  id bigint not null generated always as identity,
  created_at timestamp with time zone not null,
  constraint recipient_sets_pkey primary key (id)
);

-- The recipients of a set and their parts.
create table recipients (
  set_id bigint not null,
  position integer not null,
  address evm_address not null,
  -- Ten-thousandths of a percent: 1,000,000 is all of it.
  percent_e4 integer not null,
  label text,
  constraint recipients_pkey primary key (set_id, "position"),
  constraint recipients_set_id_address_key unique (set_id, address),
  constraint recipients_percent_e4_check check (percent_e4 >= 1 and percent_e4 <= 1000000),
  constraint recipients_set_id_fkey foreign key (set_id) references recipient_sets(id)
);

-- How far the books of a network are compared with themselves and with the chain, and which process compares them.
create table reconciliations (
  chain_id integer not null,
  -- When what moved is compared next.
  hour_at timestamp with time zone not null,
  -- The last block up to which the balances of deposits where something moved are compared.
  moved_number bigint,
  -- When everything is compared next; the positions are where that continues, null between two.
  pass_at timestamp with time zone not null,
  deposit_position bigint,
  transfer_position bigint,
  payout_position uuid,
  run_at timestamp with time zone not null,
  claim_id uuid,
  lease_until timestamp with time zone,
  -- The block at which that goes on now; `moved_position` is the deposit up to which it is done. Null between two.
  moved_to bigint,
  moved_position bigint,
  constraint reconciliations_pkey primary key (chain_id),
  constraint reconciliations_moved_part check ((moved_to is null) = (moved_position is null))
);

-- Money that goes back from a merchant's wallet to a payer: one call of an escrow. If the call fails finally, so does the refund.
create table refunds (
  id text not null,
  session_id text not null,
  merchant_id text not null,
  amount base_units not null,
  -- The merchant's own words.
  reason text,
  payout_id uuid not null,
  -- The state on chain: a reorg turns `succeeded` back into `pending`.
  status text not null default 'pending'::text,
  -- When its merchant was notified: once, whatever a reorg does afterwards.
  notified_at timestamp with time zone,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  constraint refunds_pkey primary key (id),
  constraint refunds_payout_id_key unique (payout_id),
  constraint refunds_amount_check check (amount::numeric > 0::numeric),
  constraint refunds_id_check check (starts_with(id, 're_'::text)),
  constraint refunds_reason_check check (char_length(reason) >= 1 and char_length(reason) <= 500),
  constraint refunds_status_check check (status = any (array['pending'::text, 'succeeded'::text, 'failed'::text])),
  constraint refunds_merchant_id_fkey foreign key (merchant_id) references merchants(id),
  constraint refunds_payout_id_fkey foreign key (payout_id) references payouts(id),
  constraint refunds_session_id_fkey foreign key (session_id) references escrows(session_id)
);
create index refunds_of_amount on refunds using btree (merchant_id, amount, created_at desc, id desc);
create index refunds_of_merchant on refunds using btree (merchant_id, created_at desc, id desc);
create index refunds_of_session on refunds using btree (session_id);
create trigger refunds_audit_created after insert on refunds for each row when (current_setting('sluice.actor'::text, true) <> ''::text) execute function write_audit_entry('refund', 'id', 'session_id,amount,reason', '');
create trigger refunds_audit_withdrawn after update of status on refunds for each row when (new.status = 'failed'::text and old.status <> 'failed'::text and current_setting('sluice.actor'::text, true) <> ''::text) execute function write_audit_entry('refund.withdrawn', 'id', 'status', '');
create trigger refunds_note_changed after update of status, reason on refunds for each row when (new.status is distinct from old.status or new.reason is distinct from old.reason) execute function note_change('refund');
create trigger refunds_note_made after insert on refunds for each row execute function note_change('refund');

-- What a merchant's people and API keys asked for in the last 30 days, and how it was answered. Never of a payer, and never a body of a request. Written in batches after the answers: what a killed process had not written is missing.
create table requests (
  merchant_id text not null,
  -- When it was answered.
  at timestamp with time zone not null,
  n bigint not null generated always as identity,
  -- The caller may have chosen it, and more than once.
  request_id text not null,
  method text not null,
  -- The pattern, such as `/api/console/payments/:id`: what a path or a query has may be secret.
  route text not null,
  status smallint not null,
  -- The error's code; null where it was not refused.
  code text,
  api_key_id text,
  person_id text,
  duration_ms integer not null,
  -- The first 1 KB of the answer, where that is an error.
  refusal text,
  constraint requests_pkey primary key (merchant_id, at, n)
) with (autovacuum_vacuum_scale_factor=0.02);
create index requests_of_id on requests using btree (merchant_id, request_id);
create index requests_of_keys on requests using btree (merchant_id, at, n) where api_key_id is not null;
create index requests_of_people on requests using btree (merchant_id, at, n) where api_key_id is null;
create index requests_old on requests using btree (at);
create index requests_refused on requests using btree (merchant_id, at, n) where status >= 400;

-- Everything that is for sale, of every kind, with its merchant and network. The prefix of an id shows the kind. Triggers on the tables of the kinds maintain it.
create table resources (
  id text not null,
  merchant_id text not null,
  chain_id integer not null,
  constraint resources_pkey primary key (id),
  constraint resources_id_merchant_id_chain_id_key unique (id, merchant_id, chain_id),
  constraint resources_merchant_id_fkey foreign key (merchant_id) references merchants(id)
);

-- Where payers want their money back, signed by them. The newest counts; all are kept.
create table return_addresses (
  id bigint not null generated always as identity,
  -- The paywall or session that `payer` sent money to.
  resource_id text not null,
  payer evm_address not null,
  address evm_address not null,
  message text not null,
  signature text not null,
  named_at timestamp with time zone not null,
  constraint return_addresses_pkey primary key (id)
);
create index return_addresses_of_payer on return_addresses using btree (resource_id, payer, id desc);

-- Each comparison of an address with a sanctions list, with its source.
create table screenings (
  id bigint not null generated always as identity,
  address evm_address not null,
  listed boolean not null,
  source text not null,
  subject text not null,
  screened_at timestamp with time zone not null,
  constraint screenings_pkey primary key (id)
);
create index screenings_of_address on screenings using btree (address, source, screened_at);

-- A browser that is signed in to the console; a row of its own for each sign-in.
create table sessions (
  id text not null,
  -- Of what the browser's cookie holds.
  hash text not null,
  iss text not null,
  sub text not null,
  -- How the person signed in: at the identity provider, with a wallet, or by the sandbox's button.
  way text not null,
  -- The IP address that signed in, and user_agent the browser.
  address text,
  user_agent text,
  created_at timestamp with time zone not null,
  -- Accurate to a minute. An hour later it has ended.
  last_seen_at timestamp with time zone not null,
  expires_at timestamp with time zone not null,
  constraint sessions_pkey primary key (id),
  constraint sessions_hash_key unique (hash),
  constraint sessions_way_check check (way = any (array['provider'::text, 'wallet'::text, 'sandbox'::text]))
);
create index sessions_end on sessions using btree (expires_at);
create index sessions_of on sessions using btree (iss, sub, created_at);

-- A signed authorization (x402), bound to the request that it pays for.
create table settlements (
  id text not null,
  merchant_id text not null,
  chain_id integer not null,
  token evm_address not null,
  payer evm_address not null,
  nonce evm_hash not null,
  digest evm_hash not null,
  pay_to evm_address not null,
  amount base_units not null,
  -- Unix time in seconds.
  valid_before bigint not null,
  -- Null if another server sells it.
  resource_id text,
  -- SHA-256 of the request that the payment is for, and of the payload that came with it.
  binding text not null,
  payload_hash text not null,
  -- The caller's own id of the payment (extension payment-identifier).
  identifier text,
  -- The relay in progress, or the last one.
  payout_id uuid not null,
  -- The chain's height when it was claimed: the search for another sender's transaction starts here.
  from_block bigint not null,
  -- Another sender's transaction that used the authorization.
  found_hash evm_hash,
  -- Which request may serve what was bought, until its lease expires.
  claim_id uuid,
  lease_until timestamp with time zone,
  served_at timestamp with time zone,
  -- Set when the merchant's server failed: until then its retry token repeats the call.
  retry_until timestamp with time zone,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  -- When its caller got what was bought, or a token for it: the payment alone buys nothing more.
  answered_at timestamp with time zone,
  -- When it became certain that it can't be paid.
  failed_at timestamp with time zone,
  -- A MAC of the address that the first request came from.
  caller text not null default ''::text,
  found_block bigint,
  -- Whether the block of the transaction that was found is final; before, a reorg may remove it.
  found_final boolean not null default false,
  constraint settlements_pkey primary key (id),
  constraint settlements_chain_id_token_payer_nonce_key unique (chain_id, token, payer, nonce),
  constraint settlements_amount_check check (amount::numeric > 0::numeric),
  constraint settlements_id_check check (starts_with(id, 'set_'::text)),
  constraint settlements_merchant_id_fkey foreign key (merchant_id) references merchants(id),
  constraint settlements_payout_id_fkey foreign key (payout_id) references payouts(id),
  constraint settlements_resource_id_fkey foreign key (resource_id) references resources(id)
);
create index settlements_of_amount on settlements using btree (merchant_id, amount, created_at desc, id desc) where resource_id is null;
create index settlements_of_found on settlements using btree (found_hash) where found_hash is not null;
create unique index settlements_of_identifier on settlements using btree (coalesce(resource_id, merchant_id), (
case
    when resource_id is null then ''::text
    else payer::text
end), identifier) where identifier is not null;
create index settlements_of_merchant on settlements using btree (merchant_id, created_at desc, id desc);
create index settlements_of_payout on settlements using btree (payout_id);
create index settlements_of_resource on settlements using btree (resource_id) where resource_id is not null;
create trigger settlements_note_changed after update of failed_at, found_hash on settlements for each row when (new.failed_at is distinct from old.failed_at or new.found_hash::text is distinct from old.found_hash::text) execute function note_change('payment');
create trigger settlements_note_made after insert on settlements for each row execute function note_change('payment');

-- A sign-in at the identity provider; the return of the browser deletes it.
create table sign_ins (
  -- Of what the browser's cookie holds.
  hash text not null,
  state text not null,
  nonce text not null,
  -- Proves to the provider that whoever brings the code also began the sign-in (PKCE, RFC 7636).
  verifier text not null,
  -- A path below /console.
  return_to text not null,
  expires_at timestamp with time zone not null,
  constraint sign_ins_pkey primary key (hash)
);
create index sign_ins_end on sign_ins using btree (expires_at);

-- Keys that sign access tokens. The newest that was published an hour ago signs; the others are published until their tokens have expired.
create table signing_keys (
  -- The thumbprint of the public key (RFC 7638).
  id text not null,
  public_key jsonb not null,
  -- The private key, sealed under SECRET_KEY.
  sealed text not null,
  created_at timestamp with time zone not null,
  constraint signing_keys_pkey primary key (id)
);

-- A slug names one paywall, payment link or bundle, as all of them have the same paths.
create table slugs (
  slug text not null,
  resource_id text not null,
  constraint slugs_pkey primary key (slug),
  constraint slugs_resource_id_key unique (resource_id)
);

-- A merchant's named division of what it sells.
create table splits (
  id text not null,
  merchant_id text not null,
  name text not null,
  description text,
  set_id bigint not null,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  constraint splits_pkey primary key (id),
  constraint splits_name_check check (char_length(name) >= 1 and char_length(name) <= 200),
  constraint splits_merchant_id_fkey foreign key (merchant_id) references merchants(id),
  constraint splits_set_id_fkey foreign key (set_id) references recipient_sets(id)
);
create index splits_of_merchant on splits using btree (merchant_id, created_at desc, id desc);
create trigger splits_audit after insert or delete or update on splits for each row execute function write_audit_entry('split', 'id', 'name,description,recipients', '');

-- Transactions that buyers say they paid with: hints that find a transfer sooner, never evidence.
create table submissions (
  id bigint not null generated always as identity,
  chain_id integer not null,
  tx_hash evm_hash not null,
  -- The claimed payer; null if a checkout does not know it.
  address evm_address,
  status text not null,
  reason text,
  message text not null,
  block_number bigint,
  attempts integer not null default 0,
  -- When its receipt is asked for next; null: its transfers, or its end, are known.
  run_at timestamp with time zone,
  submitted_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  resource_id text not null,
  -- Whether only a transfer from `address` answers it; otherwise a transfer from anyone does.
  by_sender boolean not null,
  traceparent text,
  constraint submissions_pkey primary key (id),
  constraint submissions_check check ((status = 'failed'::text) = (reason is not null)),
  constraint submissions_reason_check check (reason = any (array['reverted'::text, 'no_transfer'::text, 'wrong_recipient'::text, 'wrong_sender'::text, 'wrong_asset'::text, 'underpaid'::text, 'already_used'::text, 'not_found'::text, 'sanctioned'::text, 'late'::text])),
  constraint submissions_sender check (not by_sender or address is not null),
  constraint submissions_status_check check (status = any (array['verifying'::text, 'granted'::text, 'failed'::text, 'reversed'::text])),
  constraint submissions_resource foreign key (resource_id) references resources(id)
);
create index submissions_due on submissions using btree (chain_id, run_at) where run_at is not null;
create unique index submissions_of_anybody on submissions using btree (resource_id, tx_hash) where not by_sender;
create index submissions_of_hash on submissions using btree (chain_id, tx_hash);
create index submissions_of_resource on submissions using btree (resource_id, address, tx_hash);
create unique index submissions_of_sender on submissions using btree (resource_id, tx_hash, address) where by_sender;
create index submissions_open on submissions using btree (chain_id, tx_hash) where status = 'verifying'::text or status = 'failed'::text and reason = 'not_found'::text;
create index submissions_verifying on submissions using btree (resource_id, address) where status = 'verifying'::text;

-- A product that one payer is billed for repeatedly. It has no status, and is not shown, until its first invoice is paid.
create table subscriptions (
  id text not null,
  merchant_id text not null,
  chain_id integer not null,
  -- The product of the next invoice.
  product_id text not null,
  billing_interval text not null,
  billing_count integer not null,
  -- What its checkout promised; given if `has_trial`.
  trial_days integer not null,
  max_periods integer,
  -- The wallet that paid first. It has the access, whichever wallet pays later.
  payer evm_address,
  customer_email text,
  started_at timestamp with time zone,
  -- The time from which periods are counted.
  anchor timestamp with time zone,
  paused_at timestamp with time zone,
  -- When cancelling was asked for; with `cancel_at_period_end` it takes effect when the paid time ends.
  canceled_at timestamp with time zone,
  cancel_at_period_end boolean not null default false,
  -- The result of the last computation.
  status text,
  cancel_reason text,
  -- When it was first known to be canceled; null before.
  ended_at timestamp with time zone,
  paid_until timestamp with time zone,
  access_until timestamp with time zone,
  event_sequence integer not null default 0,
  -- When it is computed next; null while nothing can change without a payment or a request.
  run_at timestamp with time zone,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  -- Who asked for either: each can only withdraw its own request.
  cancel_asked_by text,
  -- Why the due invoice can't be made.
  blocked_by text,
  -- Failed rounds since the last that advanced it.
  failed_rounds integer not null default 0,
  -- Whether it is its payer's first of the product of its last invoice: only that one has days of grace.
  is_first boolean not null default true,
  -- Whether it was its payer's first of the product that it started with: only that one has a trial.
  has_trial boolean not null default true,
  constraint subscriptions_pkey primary key (id),
  constraint subscriptions_billing_count_check check (billing_count >= 1 and billing_count <= 12),
  constraint subscriptions_billing_interval_check check (billing_interval = any (array['day'::text, 'week'::text, 'month'::text, 'year'::text])),
  constraint subscriptions_blocked_by_check check (blocked_by = any (array['payments_paused'::text, 'payout_address'::text, 'price'::text])),
  constraint subscriptions_cancel_asked_by_check check (cancel_asked_by = any (array['merchant'::text, 'subscriber'::text, 'both'::text])),
  constraint subscriptions_cancel_reason_check check (cancel_reason = any (array['requested'::text, 'unpaid'::text, 'completed'::text])),
  constraint subscriptions_check check (num_nulls(payer, started_at, anchor) = any (array[0, 3])),
  constraint subscriptions_check1 check (status is null or started_at is not null),
  constraint subscriptions_check2 check ((status = 'canceled'::text) = (cancel_reason is not null) and (cancel_reason is null) = (ended_at is null)),
  constraint subscriptions_check3 check ((status is null) = (paid_until is null) and (status is null) = (access_until is null)),
  constraint subscriptions_end_asked check (not cancel_at_period_end or cancel_asked_by is not null),
  constraint subscriptions_id_check check (starts_with(id, 'sub_'::text)),
  constraint subscriptions_status_check check (status = any (array['active'::text, 'payment_due'::text, 'past_due'::text, 'paused'::text, 'canceled'::text])),
  constraint subscriptions_merchant_id_fkey foreign key (merchant_id) references merchants(id),
  constraint subscriptions_product_id_fkey foreign key (product_id) references products(id)
);
create index subscriptions_current on subscriptions using btree (merchant_id, status, chain_id, product_id, billing_interval, billing_count) where status <> 'canceled'::text;
create index subscriptions_due on subscriptions using btree (run_at, id) where run_at is not null;
create index subscriptions_ended on subscriptions using btree (merchant_id, ended_at, chain_id) where ended_at is not null;
create index subscriptions_failing on subscriptions using btree (chain_id) where failed_rounds >= 3;
create index subscriptions_of_email on subscriptions using btree (merchant_id, lower(customer_email), started_at desc, id desc) where customer_email is not null and started_at is not null;
create index subscriptions_of_merchant on subscriptions using btree (merchant_id, started_at desc, id desc) where started_at is not null;
create index subscriptions_of_payer on subscriptions using btree (payer, started_at desc, id desc) where payer is not null;
create trigger subscriptions_audit after update of product_id, billing_interval, billing_count, max_periods, paused_at, canceled_at, cancel_at_period_end, cancel_asked_by on subscriptions for each row when (current_setting('sluice.actor'::text, true) <> ''::text) execute function write_audit_entry('subscription', 'id', 'product_id,billing_interval,billing_count,max_periods,paused_at,canceled_at,cancel_at_period_end,cancel_asked_by', '');
create trigger subscriptions_note_changed after update of status, started_at, paid_until, access_until, product_id, customer_email, paused_at, canceled_at, cancel_at_period_end, cancel_reason, blocked_by, ended_at on subscriptions for each row when (new.started_at is not null and (new.status is distinct from old.status or new.started_at is distinct from old.started_at or new.paid_until is distinct from old.paid_until or new.access_until is distinct from old.access_until or new.product_id is distinct from old.product_id or new.customer_email is distinct from old.customer_email or new.paused_at is distinct from old.paused_at or new.canceled_at is distinct from old.canceled_at or new.cancel_at_period_end is distinct from old.cancel_at_period_end or new.cancel_reason is distinct from old.cancel_reason or new.blocked_by is distinct from old.blocked_by or new.ended_at is distinct from old.ended_at)) execute function note_change('subscription');
create trigger subscriptions_note_made after insert on subscriptions for each row when (new.started_at is not null) execute function note_change('subscription');

-- What an overpayment brought beyond the price. The status of the payment says whether it counts.
create table surpluses (
  payment_id text not null,
  -- The transfer that holds it: all of it is one sender's, and in one deposit.
  transfer_id bigint not null,
  deposit_id bigint not null,
  token evm_address not null,
  amount base_units not null,
  state text not null,
  returned_at timestamp with time zone,
  returned_to evm_address,
  constraint surpluses_pkey primary key (payment_id),
  constraint surpluses_amount_check check (amount::numeric > 0::numeric),
  constraint surpluses_check check ((state = 'returned'::text) = (returned_at is not null) and (returned_at is null) = (returned_to is null)),
  constraint surpluses_state_check check (state = any (array['open'::text, 'accepted'::text, 'returned'::text])),
  constraint surpluses_deposit_id_fkey foreign key (deposit_id) references deposits(id),
  constraint surpluses_payment_id_fkey foreign key (payment_id) references payments(id) on delete cascade,
  constraint surpluses_transfer_id_fkey foreign key (transfer_id) references transfers(id)
);
create index surpluses_of_transfer on surpluses using btree (transfer_id);
create index surpluses_open_at on surpluses using btree (deposit_id, token) where state = 'open'::text;
create trigger surpluses_audit_accepted after update of state on surpluses for each row when (new.state = 'accepted'::text and old.state <> 'accepted'::text and current_setting('sluice.actor'::text, true) <> ''::text) execute function write_audit_entry('surplus.accepted', 'payment_id', 'state', '');
create trigger surpluses_audit_returned after update of state on surpluses for each row when (new.state = 'returned'::text and old.state <> 'returned'::text and current_setting('sluice.actor'::text, true) <> ''::text) execute function write_audit_entry('surplus.returned', 'payment_id', 'state,returned_at,returned_to', '');
create trigger surpluses_note_change after insert or update of state, amount on surpluses for each row execute function note_surplus_change();
create trigger surpluses_note_reopened after update of state on surpluses for each row when (old.state = 'returned'::text and new.state = 'open'::text) execute function note_reopened_surplus();

-- Which transfers a sweep takes, and how much of each.
create table sweep_parts (
  payout_id uuid not null,
  transfer_id bigint not null,
  amount base_units not null,
  constraint sweep_parts_pkey primary key (payout_id, transfer_id),
  constraint sweep_parts_amount_check check (amount::numeric > 0::numeric),
  constraint sweep_parts_payout_id_fkey foreign key (payout_id) references payouts(id),
  constraint sweep_parts_transfer_id_fkey foreign key (transfer_id) references transfers(id)
);
create index sweep_parts_of_transfer on sweep_parts using btree (transfer_id);

-- An invitation to become a member, until it is accepted, revoked or too old.
create table team_invitations (
  id text not null,
  merchant_id text not null,
  -- Of its token: SHA-256 in hexadecimal.
  hash text not null,
  -- Who may accept it, if it names no wallet (CAIP-10): the letters of ASCII are in lower case.
  email text,
  wallet text,
  role text not null,
  invited_by text not null,
  -- Whether the payout wallet signed it.
  by_wallet boolean not null,
  created_at timestamp with time zone not null,
  expires_at timestamp with time zone not null,
  constraint team_invitations_pkey primary key (id),
  constraint team_invitations_hash_key unique (hash),
  constraint team_invitations_check check ((email is null) <> (wallet is null)),
  constraint team_invitations_role_check check (role = any (array['owner'::text, 'admin'::text, 'developer'::text, 'finance'::text, 'support'::text, 'viewer'::text])),
  constraint team_invitations_invited_by_fkey foreign key (invited_by) references persons(id),
  constraint team_invitations_merchant_id_fkey foreign key (merchant_id) references merchants(id)
);
create index team_invitations_expired on team_invitations using btree (expires_at);
create index team_invitations_of_merchant on team_invitations using btree (merchant_id, created_at, id);
create trigger team_invitations_audit after insert or delete on team_invitations for each row execute function write_audit_entry('team_invitation', 'id', 'email,wallet,role,expires_at', '');

-- The scan for tokens that nothing is sold for; see `scanner/scan-foreign-tokens.ts`.
create table token_scans (
  chain_id integer not null,
  -- The first block that is read now; none is while `to_block`, the last, is below it.
  from_block bigint not null,
  to_block bigint not null,
  -- The time of the block before `from_block`.
  from_time timestamp with time zone not null,
  -- The deposits up to this id are read.
  after_id bigint not null default 0,
  -- How many blocks are read next.
  blocks bigint not null,
  run_at timestamp with time zone not null,
  claim_id uuid,
  lease_until timestamp with time zone,
  constraint token_scans_pkey primary key (chain_id),
  constraint token_scans_blocks_check check (blocks > 0)
);

-- What other tokens say about themselves; null if they say nothing that can be shown.
create table tokens (
  chain_id integer not null,
  address evm_address not null,
  symbol text,
  decimals integer,
  asked_at timestamp with time zone not null,
  constraint tokens_pkey primary key (chain_id, address),
  constraint tokens_check check (symbol is null or decimals is not null)
);

-- A transaction that may be broadcast: it is committed before. Never deleted, and what is signed never changes.
create table transaction_attempts (
  id bigint not null generated always as identity,
  payout_id uuid not null,
  chain_id integer not null,
  wallet evm_address not null,
  nonce bigint not null,
  n integer not null,
  -- The signed bytes; null, like their hash, until it is signed.
  raw text,
  hash evm_hash,
  gas bigint not null,
  max_fee numeric(78,0) not null,
  tip numeric(78,0) not null,
  -- By the database's clock: several processes measure the times between attempts.
  created_at timestamp with time zone not null default clock_timestamp(),
  sent_at timestamp with time zone,
  sends integer not null default 0,
  last_result text,
  -- It does not make its payout's call, and only uses its nonce.
  empty boolean not null default false,
  -- The most that its data may cost in addition to its gas, in wei.
  data_fee numeric(78,0) not null default 0,
  -- The hash to sign; null for attempts from before it was stored, and for those adopted from the chain.
  unsigned_hash evm_hash,
  signed_at timestamp with time zone,
  constraint transaction_attempts_pkey primary key (id),
  constraint transaction_attempts_chain_id_wallet_nonce_n_key unique (chain_id, wallet, nonce, n),
  constraint transaction_attempts_hash_key unique (hash),
  constraint transaction_attempts_check check (tip <= max_fee),
  constraint transaction_attempts_data_fee check (data_fee >= 0::numeric),
  constraint transaction_attempts_last_result_check check (last_result = any (array['sent'::text, 'look'::text, 'wait'::text, 'bump'::text, 'alarm'::text, 'unknown'::text])),
  constraint transaction_attempts_signed check (
case
    when raw is null then hash is null and unsigned_hash is not null and signed_at is null
    else hash is not null
end),
  constraint transaction_attempts_payout_id_fkey foreign key (payout_id) references payouts(id)
);
create index transaction_attempts_of_payout on transaction_attempts using btree (payout_id);
create index transaction_attempts_unsigned on transaction_attempts using btree (chain_id, wallet, nonce) where raw is null;
create trigger transaction_attempts_keep before delete or update on transaction_attempts for each row execute function keep_transaction_attempts();

-- What payments for checkouts are found by: product, link, capture, e-mail address and fields of metadata. Triggers maintain it. A filter reads it in the order of its key. With the checkouts that match, a filter would cost as much as there are of them.
create table transaction_terms (
  merchant_id text not null,
  -- The MD5 of a name and a value, as `terms_of_checkout` makes it: no personal data, and 16 bytes of each.
  term uuid not null,
  -- The payment's; of one through escrow, when it was authorized.
  created_at timestamp with time zone not null,
  -- The payment's id; of one through escrow, the checkout's.
  transaction_id text not null,
  constraint transaction_terms_pkey primary key (merchant_id, term, created_at, transaction_id)
);

-- Every Transfer log to a deposit that was ever seen. k counts the transfers of one token to one address within a transaction: log_index changes when the transaction is mined again, k does not.
create table transfers (
  id bigint not null generated always as identity,
  chain_id integer not null,
  tx_hash evm_hash not null,
  token evm_address not null,
  to_address evm_address not null,
  k integer not null,
  deposit_id bigint not null,
  from_address evm_address not null,
  value base_units not null,
  block_number bigint not null,
  block_hash evm_hash not null,
  log_index integer not null,
  block_time timestamp with time zone not null,
  state text not null,
  -- When another block was first seen at this height; one observation is not evidence.
  suspect_at timestamp with time zone,
  -- When settling reads it; null: nothing to do.
  run_at timestamp with time zone,
  created_at timestamp with time zone not null,
  -- Set by a trigger, like reorged_at: when a reorg removed it, or mined it again with another value or sender.
  merchant_id text not null,
  reorged_at timestamp with time zone,
  -- Whether only one of two endpoints reports it; see `chain/agreement.ts`.
  single_source boolean not null default false,
  -- Whether a granted or returned payment claims it; it may be set late, but is never wrongly true.
  applied boolean not null default false,
  constraint transfers_pkey primary key (id),
  constraint transfers_chain_id_tx_hash_token_to_address_k_key unique (chain_id, tx_hash, token, to_address, k),
  constraint transfers_state_check check (state = any (array['seen'::text, 'confirmed'::text, 'final'::text, 'gone'::text])),
  constraint transfers_value_check check (value::numeric > 0::numeric),
  constraint transfers_deposit_id_fkey foreign key (deposit_id) references deposits(id),
  constraint transfers_merchant_id_fkey foreign key (merchant_id) references merchants(id)
);
create index transfers_due on transfers using btree (chain_id, run_at) where run_at is not null;
create index transfers_due_of_payer on transfers using btree (deposit_id, from_address) where run_at is not null;
create index transfers_final on transfers using btree (chain_id, block_number) where state = 'final'::text;
create index transfers_greatest on transfers using btree (deposit_id, token, value desc, id) where not applied;
create index transfers_greatest_of_payer on transfers using btree (deposit_id, from_address, token, value desc, id) where not applied;
create index transfers_of_merchant on transfers using btree (merchant_id, block_time desc, (id::text) desc) where state = any (array['confirmed'::text, 'mined'::text, 'final'::text]);
create index transfers_of_payer on transfers using btree (deposit_id, from_address);
create index transfers_seen on transfers using btree (chain_id, block_number) where state = 'seen'::text;
create index transfers_single on transfers using btree (chain_id, id) where single_source and (state = any (array['seen'::text, 'confirmed'::text]));
create index transfers_suspected on transfers using btree (chain_id, block_number) where suspect_at is not null;
create index transfers_unfinal on transfers using btree (chain_id, block_number) where state = any (array['seen'::text, 'confirmed'::text]);
create trigger transfers_count_added after insert on transfers for each row when (new.state = any (array['confirmed'::text, 'final'::text])) execute function count_transfer();
create trigger transfers_count_changed after update on transfers for each row when (((old.state = any (array['confirmed'::text, 'final'::text])) or (new.state = any (array['confirmed'::text, 'final'::text]))) and ((old.state = any (array['confirmed'::text, 'final'::text])) is distinct from (new.state = any (array['confirmed'::text, 'final'::text])) or old.merchant_id is distinct from new.merchant_id or old.chain_id is distinct from new.chain_id or old.token::text is distinct from new.token::text or old.value::numeric is distinct from new.value::numeric or old.block_time is distinct from new.block_time)) execute function count_transfer();
create trigger transfers_keep_inflow_added after insert on transfers referencing new table as added for each statement execute function keep_inflow();
create trigger transfers_keep_inflow_changed after update on transfers referencing old table as removed new table as added for each statement execute function keep_inflow();
create trigger transfers_set_facts before insert or update on transfers for each row execute function set_transfer_facts();

-- A payout wallet that signed when its merchant switched the wallet lock on. Refunds from a wallet are of the merchant that proved it last.
create table wallet_proofs (
  merchant_id text not null,
  chain_id integer not null,
  address evm_address not null,
  -- Whether its key signed, which is the same on every network; otherwise its contract did, on this network.
  by_key boolean not null,
  proven_at timestamp with time zone not null,
  constraint wallet_proofs_pkey primary key (merchant_id, chain_id, address),
  constraint wallet_proofs_merchant_id_fkey foreign key (merchant_id) references merchants(id)
);
create index wallet_proofs_of_address on wallet_proofs using btree (address, proven_at desc);
create trigger wallet_proofs_audit after insert or delete or update on wallet_proofs for each row execute function write_audit_entry('wallet_proof', 'address', 'chain_id,by_key,proven_at', '');

-- A wallet of the service on a chain. next_nonce moves in the transaction that writes what is to be signed.
create table wallets (
  id integer not null generated always as identity,
  chain_id integer not null,
  address evm_address not null,
  next_nonce bigint not null,
  status text not null default 'active'::text,
  halted_reason text,
  -- Since when a nonce seems to be used by a transaction that is not the service's; one observation is not evidence.
  suspect_at timestamp with time zone,
  -- The last block up to which all logs are compared with the rows.
  checked_number bigint,
  check_at timestamp with time zone,
  run_at timestamp with time zone not null,
  claim_id uuid,
  lease_until timestamp with time zone,
  -- Relays never queue behind payouts: each lane has a wallet, a loop and a limit of its own.
  lane text not null default 'payout'::text,
  -- The alarms of the wallet's last round.
  alarms text[] not null default '{}'::text[],
  -- The last block of the range that is being compared; `checked_position` is the deposit up to which that is done. Null between two.
  checked_to bigint,
  checked_position bigint,
  constraint wallets_pkey primary key (id),
  constraint wallets_chain_id_address_key unique (chain_id, address),
  constraint wallets_check check ((status = 'halted'::text) = (halted_reason is not null)),
  constraint wallets_checked_part check ((checked_to is null) = (checked_position is null)),
  constraint wallets_lane_check check (lane = any (array['payout'::text, 'relay'::text, 'storage'::text])),
  constraint wallets_next_nonce_check check (next_nonce >= 0),
  constraint wallets_status_check check (status = any (array['active'::text, 'halted'::text]))
);

-- Signing secrets, encrypted: of a webhook, or of the account if there is none. A replaced one is valid until it expires.
create table webhook_secrets (
  id bigint not null generated always as identity,
  merchant_id text not null,
  webhook_id text,
  sealed text not null,
  created_at timestamp with time zone not null,
  expires_at timestamp with time zone,
  -- When it was shown: it is shown once.
  shown_at timestamp with time zone,
  constraint webhook_secrets_pkey primary key (id),
  constraint webhook_secrets_merchant_id_fkey foreign key (merchant_id) references merchants(id),
  constraint webhook_secrets_webhook_id_fkey foreign key (webhook_id) references webhooks(id)
);
create index webhook_secrets_expired on webhook_secrets using btree (expires_at) where expires_at is not null;
create unique index webhook_secrets_newest on webhook_secrets using btree (merchant_id, coalesce(webhook_id, ''::text)) where expires_at is null;
create index webhook_secrets_of on webhook_secrets using btree (webhook_id, merchant_id);
create trigger webhook_secrets_audit after insert on webhook_secrets for each row execute function write_audit_entry('webhook_secret', 'owner', 'shown_at', 'sealed');
create trigger webhook_secrets_audit_reveal after update of shown_at on webhook_secrets for each row execute function write_audit_entry('webhook_secret.revealed', 'owner', 'shown_at', 'sealed');

-- Endpoints of merchants.
create table webhooks (
  id text not null,
  merchant_id text not null,
  url text not null,
  description text,
  events jsonb not null,
  active boolean not null,
  -- Why the service switched it off: it answered 410, or has failed for days.
  disabled_reason text,
  -- Since when every attempt has failed.
  failing_since timestamp with time zone,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  deleted_at timestamp with time zone,
  -- Of a listener, when somebody last asked for its deliveries, by the database's clock; null for an endpoint that has a URL.
  pulled_at timestamp with time zone,
  -- A listener that also gets a copy of what is sent to callback URLs.
  copies_callbacks boolean not null default false,
  constraint webhooks_pkey primary key (id),
  constraint webhooks_check check (not active or disabled_reason is null and deleted_at is null),
  constraint webhooks_disabled_reason_check check (disabled_reason = any (array['gone'::text, 'failing'::text])),
  constraint webhooks_id_check check (id ~ '^(c|lsn_)[a-z0-9]{24}$'::text),
  constraint webhooks_listener_check check ((pulled_at is not null) = starts_with(id, 'lsn_'::text) and (pulled_at is not null or not copies_callbacks)),
  constraint webhooks_url_check check (char_length(url) <= 2048),
  constraint webhooks_merchant_id_fkey foreign key (merchant_id) references merchants(id)
);
create index webhooks_listeners on webhooks using btree (merchant_id, created_at desc, id desc) where starts_with(id, 'lsn_'::text) and deleted_at is null;
create index webhooks_of_merchant on webhooks using btree (merchant_id, created_at desc, id desc) where deleted_at is null;
create index webhooks_paused on webhooks using btree (id) where not active;
create trigger webhooks_audit after update of url, description, events, active, disabled_reason on webhooks for each row when (new.deleted_at is null) execute function write_audit_entry('webhook', 'id', 'url,description,events,active,disabled_reason', '');
create trigger webhooks_audit_deleted after update of deleted_at on webhooks for each row execute function write_audit_entry('webhook.deleted', 'id', 'active,deleted_at', '');
create trigger webhooks_audit_made after insert or delete on webhooks for each row execute function write_audit_entry('webhook', 'id', 'url,description,events,active,copies_callbacks', '');
create trigger webhooks_note_changed after update of url, description, events, active, disabled_reason, failing_since, deleted_at on webhooks for each row when (new.url is distinct from old.url or new.description is distinct from old.description or new.events is distinct from old.events or new.active is distinct from old.active or new.disabled_reason is distinct from old.disabled_reason or new.failing_since is distinct from old.failing_since or new.deleted_at is distinct from old.deleted_at) execute function note_change('webhook');
create trigger webhooks_note_made after insert on webhooks for each row execute function note_change('webhook');

-- Every transfer into and out of deposits and escrows.
--   id text
--   merchant_id text
--   `through`: out of a merchant's wallet and on to a payer.
--   direction text
--   Null for a transfer to a deposit.
--   reason text
--   state text
--   chain_id integer
--   Null for a row of an escrow.
--   deposit_id bigint
--   token text
--   amount numeric(78,0)
--   sender text
--   recipient text
--   Null, like its block, for what a payer took back without the service.
--   tx_hash text
--   block_number bigint
--   at timestamp with time zone
--   transfer_id bigint
--   payout_id uuid
--   payment_id text
--   The session of an escrow; null for a row of a deposit.
--   escrow_id text
--   Always false: a transaction that was mined without moving anything is left out.
--   failed boolean
create view books as
 select id,
    merchant_id,
    direction,
    reason,
    state,
    chain_id,
    deposit_id,
    token,
    amount,
    sender,
    recipient,
    tx_hash,
    block_number,
    at,
    transfer_id,
    payout_id,
    payment_id,
    escrow_id,
    failed
   from movements
  where (state = any (array['confirmed'::text, 'mined'::text, 'final'::text])) and at is not null and not failed and (reason is null or (reason = any (array['share'::text, 'sweep'::text, 'return'::text, 'recovery'::text, 'given_back'::text, 'unknown'::text, 'reserve'::text, 'capture'::text, 'void'::text, 'refund'::text, 'reclaim'::text])));

-- What the figures are the sums of. Only what was reversed is not in it: that counts in `received` and in `reversed`.
--   merchant_id text
--   at timestamp with time zone
--   chain_id integer
--   token text
--   figure text
--   amount numeric
--   count integer
create view figure_entries as
 select books.merchant_id,
    books.at,
    books.chain_id,
    books.token,
    coalesce(figure_of(books.reason), 'received'::text) as figure,
    books.amount,
    1 as count
   from books
union all
 select checkout_sessions.merchant_id,
    checkout_sessions.created_at as at,
    checkout_sessions.chain_id,
    ''::text as token,
    'checkouts'::text as figure,
    0 as amount,
    1 as count
   from checkout_sessions
  where not checkout_sessions.agent
union all
 select p.merchant_id,
    p.created_at as at,
    p.chain_id,
    ''::text as token,
    'checkouts'::text as figure,
    0 as amount,
    1 as count
   from put_away p
     join put_away_terms t on t.id = p.terms_id
  where (t.session -> 'agent'::text) is distinct from 'true'::jsonb
union all
 select s.merchant_id,
        case figure.figure
            when 'paid'::text then s.confirmed_at
            else s.created_at
        end as at,
    s.chain_id,
    ''::text as token,
    figure.figure,
    0 as amount,
    1 as count
   from checkout_sessions s,
    unnest(array['paid'::text, 'converted'::text]) figure(figure)
  where not s.agent and (s.status = any (array['confirmed'::text, 'partially_refunded'::text, 'refunded'::text]));

-- All transfers that happened or may happen. Its parts have no conditions, so that a page of `books` is read from an index of each, in order; with conditions Postgres reads and sorts all of them.
--   id text
--   merchant_id text
--   direction text
--   reason text
--   state text
--   chain_id integer
--   deposit_id bigint
--   token text
--   amount numeric(78,0)
--   sender text
--   recipient text
--   tx_hash text
--   block_number bigint
--   at timestamp with time zone
--   transfer_id bigint
--   payout_id uuid
--   payment_id text
--   escrow_id text
--   failed boolean
create view movements as
 select transfers.id::text as id,
    transfers.merchant_id,
    'in'::text as direction,
    null::text as reason,
    transfers.state,
    transfers.chain_id,
    transfers.deposit_id,
    transfers.token::text as token,
    transfers.value::numeric(78,0) as amount,
    transfers.from_address::text as sender,
    transfers.to_address::text as recipient,
    transfers.tx_hash::text as tx_hash,
    transfers.block_number,
    transfers.block_time as at,
    transfers.id as transfer_id,
    null::uuid as payout_id,
    null::text as payment_id,
    null::text as escrow_id,
    false as failed
   from transfers
union all
 select payouts.id::text as id,
    payouts.merchant_id,
        case payouts.kind
            when 'reserve'::text then 'in'::text
            when 'refund'::text then 'through'::text
            else 'out'::text
        end as direction,
    payouts.kind as reason,
    payouts.state,
    payouts.chain_id,
    payouts.deposit_id,
    payouts.token::text as token,
    payouts.amount::numeric(78,0) as amount,
    payouts.payer::text as sender,
    payouts.recipient::text as recipient,
    payouts.tx_hash::text as tx_hash,
    payouts.block_number,
    payouts.mined_at as at,
    null::bigint as transfer_id,
    payouts.id as payout_id,
    payouts.payment_id,
    payouts.escrow_id,
    payouts.succeeded is false as failed
   from payouts
union all
 select outflows.id::text as id,
    outflows.merchant_id,
    'out'::text as direction,
        case
            when outflows.payout_id is null then outflows.reason
            else 'carried_out'::text
        end as reason,
    'final'::text as state,
    outflows.chain_id,
    outflows.deposit_id,
    outflows.token::text as token,
    outflows.amount::numeric(78,0) as amount,
    null::text as sender,
    outflows.recipient::text as recipient,
    outflows.tx_hash::text as tx_hash,
    outflows.block_number,
    outflows.block_time as at,
    null::bigint as transfer_id,
    null::uuid as payout_id,
    null::text as payment_id,
    null::text as escrow_id,
    false as failed
   from outflows
union all
 select escrows.session_id as id,
    escrows.merchant_id,
    'out'::text as direction,
    'reclaim'::text as reason,
    'final'::text as state,
    escrows.chain_id,
    null::bigint as deposit_id,
    escrows.token::text as token,
    escrows.reclaimed::numeric(78,0) as amount,
    null::text as sender,
    escrows.payer::text as recipient,
    null::text as tx_hash,
    null::bigint as block_number,
    escrows.reclaimed_at as at,
    null::bigint as transfer_id,
    null::uuid as payout_id,
    null::text as payment_id,
    escrows.session_id as escrow_id,
    false as failed
   from escrows
  where escrows.reclaimed::numeric > 0::numeric;

-- Payments and payouts in one list.
--   id text
--   merchant_id text
--   type text
--   For a payment through escrow, its session's status.
--   status text
--   exception text
--   chain_id integer
--   token text
--   amount numeric(78,0)
--   tx_hash text
--   payer text
--   recipient text
--   Null if an agent paid another server.
--   resource_id text
--   payment_id text
--   created_at timestamp with time zone
--   The table, or the kind of payouts, of the row.
--   source text
--   payout_id uuid
--   The deposit that a payout takes the money from.
--   out_of bigint
--   The amount as indexes have it: a condition on `amount` would read all of a merchant's rows.
--   units numeric
create view transactions as
 select id,
    merchant_id,
    type,
    status,
    exception,
    chain_id,
    token,
    amount,
    tx_hash,
    payer,
    recipient,
    resource_id,
    payment_id,
    created_at,
    source,
    payout_id,
    out_of,
    units
   from ( select payments.id,
            payments.merchant_id,
                case
                    when payments.agent then 'agent'::text
                    else 'payment'::text
                end as type,
            payments.status,
            payments.exception,
            payments.chain_id,
            payments.token::text as token,
            payments.amount::numeric(78,0) as amount,
            payments.tx_hash::text as tx_hash,
            payments.payer::text as payer,
            null::text as recipient,
            payments.resource_id,
            payments.id as payment_id,
            payments.created_at,
            'payments'::text as source,
            null::uuid as payout_id,
            null::bigint as out_of,
            true as listed,
            payments.amount::numeric as units
           from payments
        union all
         select i.id::text as id,
            i.merchant_id,
            i.kind,
            i.state,
            null::text,
            i.chain_id,
            i.token::text as token,
            i.amount::numeric(78,0) as amount,
            i.tx_hash::text as tx_hash,
            null::text,
            i.recipient::text as recipient,
            ( select d.resource_id
                   from deposits d
                  where d.id = i.deposit_id) as resource_id,
            i.payment_id,
            i.created_at,
            'payouts'::text,
            i.id,
            i.deposit_id,
            i.lane = 'payout'::text and i.kind <> 'anchor'::text,
            i.amount::numeric as amount
           from payouts i
        union all
         select s.id,
            s.merchant_id,
            'agent'::text,
            ( select i.state
                   from payouts i
                  where i.id = s.payout_id) as state,
            null::text,
            s.chain_id,
            s.token::text as token,
            s.amount::numeric(78,0) as amount,
            coalesce(s.found_hash, ( select i.tx_hash
                   from payouts i
                  where i.id = s.payout_id))::text as "coalesce",
            s.payer::text as payer,
            s.pay_to::text as pay_to,
            null::text,
            null::text,
            s.created_at,
            'settlements'::text,
            null::uuid,
            null::bigint,
            s.resource_id is null and not (exists ( select
                   from deposits d
                  where d.chain_id = s.chain_id and d.address::text = s.pay_to::text)),
            s.amount::numeric as amount
           from settlements s
        union all
         select e.session_id,
            e.merchant_id,
            'payment'::text,
            ( select s.status
                   from checkout_sessions s
                  where s.id = e.session_id) as status,
            null::text,
            e.chain_id,
            e.token::text as token,
            e.authorized::numeric(78,0) as authorized,
            (( select i.tx_hash
                   from payouts i
                  where i.escrow_id = e.session_id and i.kind = 'reserve'::text and (i.state = any (array['mined'::text, 'final'::text]))))::text as tx_hash,
            e.payer::text as payer,
            null::text,
            e.session_id,
            null::text,
            e.authorized_at,
            'escrows'::text,
            null::uuid,
            null::bigint,
            e.authorized::numeric > 0::numeric,
            e.authorized::numeric as authorized
           from escrows e
        union all
         select i.id::text as id,
            i.merchant_id,
            i.kind,
            i.state,
            null::text,
            i.chain_id,
            i.token::text as token,
            i.amount::numeric(78,0) as amount,
            i.tx_hash::text as tx_hash,
            null::text,
            i.recipient::text as recipient,
            i.escrow_id,
            null::text,
            i.created_at,
            'calls'::text,
            i.id,
            null::bigint,
            i.kind = any (array['capture'::text, 'void'::text]),
            i.amount::numeric as amount
           from payouts i
        union all
         select r.id,
            r.merchant_id,
            'refund'::text,
            ( select i.state
                   from payouts i
                  where i.id = r.payout_id) as state,
            null::text,
            ( select i.chain_id
                   from payouts i
                  where i.id = r.payout_id) as chain_id,
            (( select i.token
                   from payouts i
                  where i.id = r.payout_id))::text as token,
            r.amount::numeric(78,0) as amount,
            (( select i.tx_hash
                   from payouts i
                  where i.id = r.payout_id))::text as tx_hash,
            null::text,
            (( select i.recipient
                   from payouts i
                  where i.id = r.payout_id))::text as recipient,
            r.session_id,
            null::text,
            r.created_at,
            'refunds'::text,
            null::uuid,
            null::bigint,
            true,
            r.amount::numeric as amount
           from refunds r) parts
  where listed;

create or replace function add_audit_entry(merchant text, what text, object text, chain integer, was jsonb, is_now jsonb)
 returns void
 language plpgsql
 set search_path to 'pg_catalog', 'public', 'pg_temp'
AS $function$
declare
  -- Base64 of JSON: `server/src/platform/actor.ts`.
  actor constant jsonb :=
    convert_from(decode(nullif(current_setting('sluice.actor', true), ''), 'base64'), 'utf8')::jsonb;
begin
  insert into audit_entries (merchant_id, actor_kind, actor_id, actor_issuer, action, object_id, chain_id, before, after, address,
      user_agent, route, request_id)
    values (merchant, coalesce(actor ->> 'kind', 'service'), actor ->> 'id', actor ->> 'issuer', what, object, chain, was, is_now,
      actor ->> 'address', actor ->> 'userAgent', actor ->> 'route', actor ->> 'requestId');
end $function$;

create or replace function add_inflow(deposit bigint, asset text, change numeric)
 returns void
 language plpgsql
AS $function$
begin
  insert into deposit_books (deposit_id, token) values (deposit, asset) on conflict do nothing;
  update deposit_books set inflow = inflow + change, shortfall = greatest(0, committed - inflow - change)
    where deposit_id = deposit and token = asset;
end $function$;

create or replace function add_payment_terms()
 returns trigger
 language plpgsql
AS $function$
begin
  insert into transaction_terms (merchant_id, term, created_at, transaction_id)
    select p.merchant_id, t, p.created_at, p.id from made p
      join checkout_sessions s on s.id = p.resource_id, terms_of_checkout(s) t
    where starts_with(p.resource_id, 'cs_');
  return null;
end $function$;

create or replace function audit_value(value jsonb, is_secret boolean)
 returns jsonb
 language sql
 immutable
RETURN CASE WHEN (is_secret AND (value IS NOT NULL)) THEN to_jsonb('[secret]'::text) WHEN (length((value #>> '{}'::text[])) > 10000) THEN to_jsonb(("left"((value #>> '{}'::text[]), 10000) || '…'::text)) WHEN ((jsonb_typeof(value) = 'number'::text) AND (abs(((value #>> '{}'::text[]))::numeric) > ('9007199254740991'::bigint)::numeric)) THEN to_jsonb((value #>> '{}'::text[])) ELSE value END;

create or replace function audited(source text, line jsonb)
 returns jsonb
 language plpgsql
 stable
 set search_path to 'pg_catalog', 'public', 'pg_temp'
AS $function$
begin
  return line || coalesce(case
    when source = 'merchants' then jsonb_build_object('merchant_id', line -> 'id')
    when source = 'payout_addresses' then jsonb_build_object('network', 'eip155:' || (line ->> 'chain_id'))
    when source = 'webhook_secrets' then jsonb_build_object('owner', coalesce(line ->> 'webhook_id', line ->> 'merchant_id'))
    when source = 'payouts' then jsonb_build_object('payout', 'po_' || replace(line ->> 'id', '-', ''))
    when source = 'grants' then
      (select jsonb_build_object('merchant_id', merchant_id) from paywalls where id = line ->> 'paywall_id')
    when source = 'surpluses' then
      (select jsonb_build_object('merchant_id', merchant_id, 'chain_id', chain_id) from payments where id = line ->> 'payment_id')
    when source in ('bundle_headers', 'bundle_routes') then
      (select jsonb_build_object('merchant_id', merchant_id, 'chain_id', chain_id) from bundles where id = line ->> 'bundle_id')
    when source = 'refunds' then
      (select jsonb_build_object('chain_id', chain_id) from checkout_sessions where id = line ->> 'session_id')
    when source = 'splits' then (select jsonb_build_object('recipients',
        jsonb_agg(jsonb_build_object('address', address, 'percent_e4', percent_e4, 'label', label) order by position))
      from recipients where set_id = (line ->> 'set_id')::bigint)
    end, '{}');
end $function$;

create or replace function count_checkout()
 returns trigger
 language plpgsql
AS $function$
begin
  if tg_op = 'INSERT' then
    insert into figure_deltas (merchant_id, at, chain_id, token, figure, amount, count)
      values (new.merchant_id, new.created_at, new.chain_id, '', 'checkouts', 0, 1);
  elsif new.status in ('confirmed', 'partially_refunded', 'refunded') then
    insert into figure_deltas (merchant_id, at, chain_id, token, figure, amount, count)
      values (new.merchant_id, new.confirmed_at, new.chain_id, '', 'paid', 0, 1),
        (new.merchant_id, new.created_at, new.chain_id, '', 'converted', 0, 1);
  else
    insert into figure_deltas (merchant_id, at, chain_id, token, figure, amount, count)
      values (new.merchant_id, greatest(new.updated_at, old.confirmed_at), new.chain_id, '', 'paid', 0, -1),
        (new.merchant_id, new.created_at, new.chain_id, '', 'converted', 0, -1);
  end if;
  return null;
end $function$;

create or replace function count_outflow()
 returns trigger
 language plpgsql
AS $function$
begin
  if tg_op <> 'INSERT' and old.payout_id is null then
    insert into figure_deltas (merchant_id, at, chain_id, token, figure, amount, count)
      values (old.merchant_id, old.block_time, old.chain_id, old.token, figure_of(old.reason), -old.amount, -1);
  end if;
  if tg_op <> 'DELETE' and new.payout_id is null then
    insert into figure_deltas (merchant_id, at, chain_id, token, figure, amount, count)
      values (new.merchant_id, new.block_time, new.chain_id, new.token, figure_of(new.reason), new.amount, 1);
  end if;
  return null;
end $function$;

create or replace function count_payout()
 returns trigger
 language plpgsql
AS $function$
begin
  if tg_op = 'UPDATE' and old.state in ('mined', 'final') and old.succeeded is distinct from false and figure_of(old.kind) is not null then
    insert into figure_deltas (merchant_id, at, chain_id, token, figure, amount, count)
      values (old.merchant_id, old.mined_at, old.chain_id, old.token, figure_of(old.kind), -old.amount, -1);
  end if;
  if new.state in ('mined', 'final') and new.succeeded is distinct from false and figure_of(new.kind) is not null then
    insert into figure_deltas (merchant_id, at, chain_id, token, figure, amount, count)
      values (new.merchant_id, new.mined_at, new.chain_id, new.token, figure_of(new.kind), new.amount, 1);
  end if;
  return null;
end $function$;

create or replace function count_reclaim()
 returns trigger
 language plpgsql
AS $function$
begin
  if old.reclaimed > 0 then
    insert into figure_deltas (merchant_id, at, chain_id, token, figure, amount, count)
      values (old.merchant_id, old.reclaimed_at, old.chain_id, old.token, 'released', -old.reclaimed, -1);
  end if;
  if new.reclaimed > 0 then
    insert into figure_deltas (merchant_id, at, chain_id, token, figure, amount, count)
      values (new.merchant_id, new.reclaimed_at, new.chain_id, new.token, 'released', new.reclaimed, 1);
  end if;
  return null;
end $function$;

create or replace function count_transfer()
 returns trigger
 language plpgsql
AS $function$
begin
  if tg_op = 'UPDATE' and old.state in ('confirmed', 'final') then
    if new.state = 'gone' then
      insert into figure_deltas (merchant_id, at, chain_id, token, figure, amount, count)
        values (old.merchant_id, greatest(new.reorged_at, old.block_time), old.chain_id, old.token, 'reversed', old.value, 1);
      return null;
    end if;
    insert into figure_deltas (merchant_id, at, chain_id, token, figure, amount, count)
      values (old.merchant_id, old.block_time, old.chain_id, old.token, 'received', -old.value, -1);
  end if;
  if new.state in ('confirmed', 'final') then
    insert into figure_deltas (merchant_id, at, chain_id, token, figure, amount, count)
      values (new.merchant_id, new.block_time, new.chain_id, new.token, 'received', new.value, 1);
  end if;
  return null;
end $function$;

create or replace function drop_payment_terms()
 returns trigger
 language plpgsql
AS $function$
begin
  delete from transaction_terms t using checkout_sessions s
    where s.id = old.resource_id and t.merchant_id = old.merchant_id and t.term in (select terms_of_checkout(s))
      and t.created_at = old.created_at and t.transaction_id = old.id;
  return null;
end $function$;

create or replace function end_batch_calls()
 returns trigger
 language plpgsql
AS $function$
begin
  update payouts set updated_at = new.updated_at,
      state = case when new.state = 'final' and not succeeded then 'reverted' else new.state end,
      tx_hash = new.tx_hash, block_number = new.block_number, block_hash = new.block_hash,
      succeeded = case new.state when 'final' then succeeded when 'reverted' then false end
    where batch_id = new.id and (state = 'mined' or (state = 'assigned' and new.state = 'reverted'));
  return null;
end $function$;

create or replace function erased_answer(answer jsonb)
 returns jsonb
 language plpgsql
 immutable
AS $function$
begin
  return case jsonb_typeof(answer)
    when 'object' then (select coalesce(jsonb_object_agg(key, case
        when key = 'payerFields' then '[]'
        when key in ('customerEmail', 'payerInfo', 'metadata', 'description', 'redirectUrl', 'callbackUrl', 'reason') then 'null'
        else erased_answer(value) end), '{}') from jsonb_each(answer))
    when 'array' then (select coalesce(jsonb_agg(erased_answer(value) order by n), '[]') from jsonb_array_elements(answer) with ordinality e (value, n))
    else answer end;
end $function$;

create or replace function erased_entry(entry jsonb)
 returns jsonb
 language sql
 immutable
AS $function$
  select case when entry is not null then coalesce(jsonb_object_agg(key, case
    when key in ('description', 'redirect_url', 'metadata', 'reason', 'revoke_reason') and value <> 'null' then '"[erased]"' else value end), '{}') end
  from jsonb_each(entry)
$function$;

create or replace function field_term(key text, value text)
 returns uuid
 language sql
 immutable
AS $function$
  select md5('field:' || md5(left(key, 200)) || lower(left(value, 200)))::uuid
$function$;

create or replace function figure_of(reason text)
 returns text
 language sql
 immutable
AS $function$
  select case reason when 'reserve' then 'reserved' when 'capture' then 'captured' when 'void' then 'released'
    when 'reclaim' then 'released' when 'return' then 'returned' when 'given_back' then 'returned' when 'refund' then 'refunded'
    when 'share' then 'shares' when 'sweep' then 'swept' when 'recovery' then 'recovered' when 'unknown' then 'unknown' end
$function$;

create or replace function figure_start(at timestamp with time zone, seconds integer)
 returns timestamp with time zone
 language sql
 immutable
AS $function$
  select case seconds when 0 then 'epoch' else date_bin(make_interval(secs => seconds), at, 'epoch') end
$function$;

create or replace function forget_deliveries()
 returns trigger
 language plpgsql
AS $function$
begin
  delete from deliveries d using gone where d.event_id = gone.id;
  return null;
end $function$;

create or replace function has_money(i payouts)
 returns boolean
 language plpgsql
 stable
AS $function$
begin
  return case
    when i.lane <> 'payout' or i.kind = 'anchor' then true
    when not i.reserved then false
    when i.kind = 'sweep' then room_in(i.deposit_id, i.token) >= 0 and not exists (
      select from sweep_parts s join transfers t on t.id = s.transfer_id
      where s.payout_id = i.id and (t.state not in ('confirmed', 'final') or t.single_source))
    when i.payment_id is null then true
    else own_room(i.payment_id, i.deposit_id, i.token) >= 0
      and (i.kind = 'return' or room_in(i.deposit_id, i.token) >= 0)
  end;
end $function$;

create or replace function hold_credential(key text, key_hash text, session text)
 returns void
 language plpgsql
 set search_path to 'pg_catalog', 'public', 'pg_temp'
AS $function$
begin
  if key is not null then
    perform from api_keys where id = key and key_hash in (hash, previous_hash);
    if not found then
      raise exception 'the key was revoked' using errcode = 'SL002';
    end if;
  end if;
  if session is not null then
    perform from sessions where id = session;
    if not found then
      raise exception 'the session was ended' using errcode = 'SL002';
    end if;
  end if;
end $function$;

create or replace function hold_member(merchant text, person text, admitted_as text)
 returns void
 language plpgsql
 set search_path to 'pg_catalog', 'public', 'pg_temp'
AS $function$
begin
  perform from members where merchant_id = merchant and person_id = person and role = admitted_as for share;
  if not found then
    raise exception 'the member is gone, or has another role' using errcode = 'SL001';
  end if;
end $function$;

create or replace function keep_actions()
 returns trigger
 language plpgsql
AS $function$
begin
  raise exception 'what was done by hand stays written';
end $function$;

create or replace function keep_audit_entries()
 returns trigger
 language plpgsql
AS $function$
begin
  if tg_op = 'UPDATE' and current_setting('sluice.erasing', true) = 'on'
    and to_jsonb(old) - array['before', 'after'] = to_jsonb(new) - array['before', 'after']
  then return new; end if;
  raise exception 'an entry of the audit log is never changed or deleted';
end $function$;

create or replace function keep_checkout_terms()
 returns trigger
 language plpgsql
AS $function$
begin
  if tg_op <> 'INSERT' then
    delete from checkout_terms t using metadata_terms(old.metadata) was
      where t.merchant_id = old.merchant_id and t.value = was.value and t.key = was.key and t.created_at = old.created_at
        and t.session_id = old.id;
  end if;
  if tg_op <> 'DELETE' then
    insert into checkout_terms (merchant_id, value, key, created_at, session_id)
      select new.merchant_id, f.value, f.key, new.created_at, new.id from metadata_terms(new.metadata) f
      on conflict do nothing;
  end if;
  return null;
end $function$;

create or replace function keep_claim_books()
 returns trigger
 language plpgsql
AS $function$
begin
  if tg_op = 'INSERT' then
    update claim_books b set claims = claims + changed.n, transfer_ids = transfer_ids + changed.ids
      from (select payment_id, count(*) as n, sum(transfer_id) as ids from added group by 1) as changed
      where b.payment_id = changed.payment_id;
  elsif tg_op = 'DELETE' then
    update claim_books b set claims = claims - changed.n, transfer_ids = transfer_ids - changed.ids
      from (select payment_id, count(*) as n, sum(transfer_id) as ids from removed group by 1) as changed
      where b.payment_id = changed.payment_id;
  else
    update claim_books b set claims = claims + changed.n, transfer_ids = transfer_ids + changed.ids
      from (select payment_id, sum(n) as n, sum(ids) as ids from (
          select payment_id, 1 as n, transfer_id as ids from added
          union all select payment_id, -1, -transfer_id from removed) as moved
        group by 1 having sum(n) <> 0 or sum(ids) <> 0) as changed
      where b.payment_id = changed.payment_id;
  end if;
  return null;
end $function$;

create or replace function keep_committed()
 returns trigger
 language plpgsql
AS $function$
declare
  change numeric := 0;
begin
  if new.reserved and new.state not in ('cancelled', 'reverted') then change := new.amount; end if;
  if tg_op = 'UPDATE' and old.reserved and old.state not in ('cancelled', 'reverted') then
    change := change - old.amount;
  end if;
  if change <> 0 then
    update deposit_books set committed = committed + change,
        shortfall = case when change < 0 then greatest(0, committed + change - inflow) else shortfall end
      where deposit_id = new.deposit_id and token = new.token;
    if not found then
      raise exception 'nothing ever came into deposit %', new.deposit_id;
    end if;
  end if;
  return null;
end $function$;

create or replace function keep_escrow_terms()
 returns trigger
 language plpgsql
AS $function$
begin
  delete from transaction_terms t using checkout_sessions s
    where s.id = old.session_id and t.merchant_id = old.merchant_id and t.term in (select terms_of_checkout(s))
      and t.created_at = old.authorized_at and t.transaction_id = old.session_id;
  insert into transaction_terms (merchant_id, term, created_at, transaction_id)
    select new.merchant_id, t, new.authorized_at, s.id from checkout_sessions s, terms_of_checkout(s) t
    where s.id = new.session_id and new.authorized_at is not null and new.authorized > 0;
  return null;
end $function$;

create or replace function keep_inflow()
 returns trigger
 language plpgsql
AS $function$
declare
  changed record;
begin
  -- In one order, as two transactions may write transfers to the same addresses.
  if tg_op = 'INSERT' then
    for changed in
      select deposit_id, token, sum(value) as value from added where state in ('confirmed', 'final') group by 1, 2 order by 1, 2
    loop
      perform add_inflow(changed.deposit_id, changed.token, changed.value);
    end loop;
  else
    for changed in
      select deposit_id, token, sum(value) as value from (
        select deposit_id, token, value from added where state in ('confirmed', 'final')
        union all select deposit_id, token, -value from removed where state in ('confirmed', 'final')) as both_states
      group by 1, 2 having sum(value) <> 0 order by 1, 2
    loop
      perform add_inflow(changed.deposit_id, changed.token, changed.value);
    end loop;
  end if;
  return null;
end $function$;

create or replace function keep_older_factory()
 returns trigger
 language plpgsql
AS $function$
begin
  raise exception 'deposit % was made by this version, and stays so', new.id;
end $function$;

create or replace function keep_others_money()
 returns trigger
 language plpgsql
AS $function$
begin
  -- What is adopted has left already.
  if current_setting('sluice.adopting', true) is distinct from 'on' and not has_money(old) then
    raise exception 'the money of payout % is not there', old.id;
  end if;
  return new;
end $function$;

create or replace function keep_past_claims()
 returns trigger
 language plpgsql
AS $function$
begin
  insert into past_claims (transfer_id, payment_id)
    select r.transfer_id, r.payment_id from removed r
    where exists (select from payouts i where i.payment_id = r.payment_id and i.kind in ('share', 'return'))
      and not exists (select from claims c where c.transfer_id = r.transfer_id and c.payment_id = r.payment_id)
    on conflict do nothing;
  return null;
end $function$;

create or replace function keep_promises()
 returns trigger
 language plpgsql
AS $function$
begin
  if (new.id, new.chain_id, new.deposit_id, new.token, new.recipient, new.to_address, new.data, new.value)
      is distinct from
      (old.id, old.chain_id, old.deposit_id, old.token, old.recipient, old.to_address, old.data, old.value)
      or (new.amount <> old.amount and not (old.kind = 'void' and old.state in ('assigned', 'mined'))) then
    raise exception 'what payout % pays can not change', old.id;
  end if;
  if old.nonce is not null and (new.nonce, new.wallet) is distinct from (old.nonce, old.wallet) then
    raise exception 'payout % never gives up its nonce', old.id;
  end if;
  if old.batch_id is not null and new.batch_id is distinct from old.batch_id then
    raise exception 'payout % never leaves its batch', old.id;
  end if;
  if old.state in ('final', 'reverted', 'cancelled') and new.state <> old.state then
    raise exception 'payout % has ended as %', old.id, old.state;
  end if;
  return new;
end $function$;

create or replace function keep_rates()
 returns trigger
 language plpgsql
AS $function$
begin
  raise exception 'a rate is never changed or deleted: values that were reported depend on it';
end $function$;

create or replace function keep_slug()
 returns trigger
 language plpgsql
AS $function$
begin
  if tg_op = 'UPDATE' then
    delete from slugs where resource_id = old.id;
    -- The other of two that had it before the table above was made.
    insert into slugs
      select slug, id from (select slug, id from paywalls union all select slug, id from payment_links) named
        where slug = old.slug and id <> old.id
      on conflict do nothing;
    if old.slug is not null then
      insert into held_slugs values (old.slug, old.merchant_id, new.updated_at + interval '90 days')
        on conflict (slug) do update set merchant_id = excluded.merchant_id, until_at = excluded.until_at;
    end if;
  end if;
  if new.slug is not null then
    if exists (select from held_slugs h where h.slug = new.slug and h.merchant_id <> new.merchant_id
        and h.until_at > new.updated_at) then
      raise exception 'the slug % is held for another merchant', new.slug
        using errcode = 'unique_violation', constraint = 'held_slugs_pkey';
    end if;
    insert into slugs values (new.slug, new.id);
  end if;
  return null;
end $function$;

create or replace function keep_transaction_attempts()
 returns trigger
 language plpgsql
AS $function$
begin
  if tg_op = 'DELETE' then
    raise exception 'transaction attempts are never deleted';
  end if;
  if (new.payout_id, new.nonce, new.n, new.empty, new.unsigned_hash) is distinct from
      (old.payout_id, old.nonce, old.n, old.empty, old.unsigned_hash) then
    raise exception 'what transaction attempt % does can not change', old.id;
  end if;
  if old.raw is not null and (new.raw, new.hash) is distinct from (old.raw, old.hash) then
    raise exception 'transaction attempt % is signed and does not change', old.id;
  end if;
  return new;
end $function$;

create or replace function keep_transaction_terms()
 returns trigger
 language plpgsql
AS $function$
declare
  paid record;
begin
  for paid in
    select p.id, p.created_at from payments p where p.resource_id = new.id
    union all select e.session_id, e.authorized_at from escrows e where e.session_id = new.id and e.authorized_at is not null and e.authorized > 0
  loop
    delete from transaction_terms t
      where t.merchant_id = old.merchant_id and t.term in (select terms_of_checkout(old)) and t.created_at = paid.created_at
        and t.transaction_id = paid.id;
    insert into transaction_terms (merchant_id, term, created_at, transaction_id)
      select new.merchant_id, t, paid.created_at, paid.id from terms_of_checkout(new) t;
  end loop;
  return null;
end $function$;

create or replace function metadata_terms(metadata jsonb)
 returns table(key text, value text)
 language sql
 immutable
AS $function$
  select left(f.key, 200), lower(left(f.value #>> '{}', 200))
  from jsonb_each(case when jsonb_typeof(metadata) = 'object' then metadata end) f
  where jsonb_typeof(f.value) in ('string', 'number', 'boolean') and f.value #>> '{}' <> ''
  limit 50
$function$;

create or replace function note_address_change()
 returns trigger
 language plpgsql
AS $function$
begin
  insert into changes (merchant_id, kind, object_id) values (new.merchant_id, 'payout_address', new.chain_id);
  return null;
end $function$;

create or replace function note_call_change()
 returns trigger
 language plpgsql
AS $function$
begin
  insert into changes (merchant_id, kind, object_id)
    select r.merchant_id, 'refund', r.id from refunds r where new.kind = 'refund' and r.payout_id = new.id
    union all select s.merchant_id, 'payment', s.id from settlements s where new.kind = 'settle' and s.payout_id = new.id;
  return null;
end $function$;

create or replace function note_change()
 returns trigger
 language plpgsql
AS $function$
begin
  insert into changes (merchant_id, kind, object_id) values (new.merchant_id, tg_argv[0], new.id);
  return null;
end $function$;

create or replace function note_escrow_change()
 returns trigger
 language plpgsql
AS $function$
begin
  insert into changes (merchant_id, kind, object_id) values (new.merchant_id, 'payment', new.session_id);
  return null;
end $function$;

create or replace function note_reopened()
 returns trigger
 language plpgsql
AS $function$
begin
  new.reopened := true;
  return new;
end $function$;

create or replace function note_reopened_surplus()
 returns trigger
 language plpgsql
AS $function$
begin
  update payments set reopened = true where id = new.payment_id;
  return null;
end $function$;

create or replace function note_surplus_change()
 returns trigger
 language plpgsql
AS $function$
begin
  insert into changes (merchant_id, kind, object_id) select p.merchant_id, 'payment', p.id from payments p where p.id = new.payment_id;
  return null;
end $function$;

create or replace function notify_access()
 returns trigger
 language plpgsql
AS $function$
begin
  perform pg_notify('sluice', 'access ' || old.paywall_id || ' ' || old.address);
  return null;
end $function$;

create or replace function notify_api_key()
 returns trigger
 language plpgsql
 set search_path to 'pg_catalog', 'public', 'pg_temp'
AS $function$
begin
  perform pg_notify('sluice', 'credential ' || old.id);
  return null;
end $function$;

create or replace function notify_member()
 returns trigger
 language plpgsql
 set search_path to 'pg_catalog', 'public', 'pg_temp'
AS $function$
begin
  perform pg_notify('sluice', 'credential ' || old.merchant_id || ' ' || old.person_id);
  return null;
end $function$;

create or replace function notify_paywall_access()
 returns trigger
 language plpgsql
AS $function$
begin
  perform pg_notify('sluice', 'access ' || old.id);
  return null;
end $function$;

create or replace function open_claim_book()
 returns trigger
 language plpgsql
AS $function$
begin
  insert into claim_books (payment_id, claims, transfer_ids) values (new.id, 0, 0);
  return null;
end $function$;

create or replace function own_room(payment text, deposit bigint, token text)
 returns numeric
 language plpgsql
 stable
AS $function$
begin
  return coalesce((select sum(t.value) from claims c
        cross join lateral (select * from transfers where id = c.transfer_id offset 0) t
      where c.payment_id = $1 and t.deposit_id = $2 and t.token = $3 and t.state in ('confirmed', 'final')
        and not t.single_source), 0)
    - coalesce((select sum(i.amount) from payouts i where i.payment_id = $1 and i.deposit_id + 0 = $2 and i.token = $3
      and i.lane = 'payout' and i.reserved and i.state not in ('cancelled', 'reverted')), 0);
end $function$;

create or replace function rate_at(token text, currency text, at timestamp with time zone)
 returns table(rate numeric, source text, published_at timestamp with time zone)
 language sql
 stable
AS $function$
  select round(t.usd / c.usd, 8), concat_ws('; ', nullif(c.source, 'par'), t.source), coalesce(c.published_at, t.published_at)
  from (
    (select r.usd, r.source, r.published_at, r.valid_until from rates r
      where $2 <> 'USD' and r.unit = $2 and r.published_at <= $3 order by r.published_at desc limit 1)
    union all select 1, 'par', null, null where $2 = 'USD'
  ) c, (
    select * from (
      (select r.usd, r.source || ' ' || $1 as source, r.published_at, r.valid_until from rates r
        where r.unit = $1 and r.published_at <= $3 order by r.published_at desc limit 1)
      union all select 1, $1 || ' at par', null, null where $1 = 'USDC'
    ) of_token limit 1
  ) t
  where (c.valid_until is null or c.valid_until >= $3) and (t.valid_until is null or t.valid_until >= $3)
    and (coalesce(c.published_at, t.published_at) is null or $3 <= (select max(s.complete_until) from rate_sources s))
$function$;

create or replace function register_resource()
 returns trigger
 language plpgsql
AS $function$
begin
  insert into resources (id, merchant_id, chain_id) values (new.id, new.merchant_id, new.chain_id);
  return new;
end $function$;

create or replace function reopen_payment()
 returns trigger
 language plpgsql
AS $function$
begin
  update payments set status = 'open', returned_at = null, returned_to = null, updated_at = new.updated_at
    where id = new.payment_id and status = 'returned';
  update surpluses set state = 'open', returned_at = null, returned_to = null
    where payment_id = new.payment_id and state = 'returned';
  return null;
end $function$;

create or replace function room_in(deposit bigint, token text)
 returns numeric
 language plpgsql
 stable
AS $function$
begin
  return coalesce((select b.inflow - b.committed from deposit_books b where b.deposit_id = $1 and b.token = $2), 0)
    - coalesce((select sum(p.amount) from payments p where p.deposit_id = $1 and p.token = $2 and p.status = 'open'), 0)
    - coalesce((select sum(s.amount) from surpluses s
        join payments p on p.id = s.payment_id and p.status = 'granted'
        join claims c on c.transfer_id = s.transfer_id and c.payment_id = s.payment_id
        where s.deposit_id = $1 and s.token = $2 and s.state = 'open'), 0)
    - coalesce((select sum(o.amount) from outflows o where o.deposit_id = $1 and o.token = $2
        and o.reason <> 'unknown' and o.payout_id is null), 0);
end $function$;

create or replace function set_agent()
 returns trigger
 language plpgsql
AS $function$
begin
  new.agent := exists (select from transaction_attempts a join payouts i on i.id = a.payout_id
      join deposits d on d.id = i.deposit_id
      where a.hash = new.tx_hash and i.kind = 'settle' and d.resource_id = new.resource_id)
    or exists (select from transaction_attempts a join payouts i on i.batch_id = a.payout_id
      join deposits d on d.id = i.deposit_id
      where a.hash = new.tx_hash and d.resource_id = new.resource_id)
    or exists (select from settlements s where s.found_hash = new.tx_hash and s.resource_id = new.resource_id);
  return new;
end $function$;

create or replace function set_deposit_facts()
 returns trigger
 language plpgsql
AS $function$
begin
  new.merchant_id := (select merchant_id from resources where id = new.resource_id);
  new.balanced_number := (select block_number from cursors where chain_id = new.chain_id);
  return new;
end $function$;

create or replace function set_lane()
 returns trigger
 language plpgsql
AS $function$
begin
  new.lane := case when new.kind in ('authorize', 'settle', 'batch', 'reserve', 'capture', 'void', 'refund') then 'relay'
    when new.kind = 'store' then 'storage' else 'payout' end;
  return new;
end $function$;

create or replace function set_merchant()
 returns trigger
 language plpgsql
AS $function$
begin
  if new.deposit_id is not null then
    new.merchant_id := (select merchant_id from deposits where id = new.deposit_id);
  end if;
  return new;
end $function$;

create or replace function set_mined()
 returns trigger
 language plpgsql
AS $function$
begin
  if new.state not in ('mined', 'final') then
    new.mined_at := null;
  elsif tg_op = 'INSERT' or old.mined_at is null then
    new.mined_at := new.updated_at;
  end if;
  return new;
end $function$;

create or replace function set_reclaimed()
 returns trigger
 language plpgsql
AS $function$
begin
  new.reclaimed_at := case when new.reclaimed > 0 then coalesce(old.reclaimed_at, new.updated_at) end;
  return new;
end $function$;

create or replace function set_transfer_facts()
 returns trigger
 language plpgsql
AS $function$
begin
  if tg_op = 'INSERT' then
    new.merchant_id := (select merchant_id from deposits where id = new.deposit_id);
  elsif (new.state = 'gone' and old.state <> 'gone')
      or (new.value, new.from_address) is distinct from (old.value, old.from_address) then
    new.reorged_at := clock_timestamp();
  end if;
  return new;
end $function$;

create or replace function terms_of_checkout(s checkout_sessions)
 returns setof uuid
 language sql
 immutable
AS $function$
  select md5(t)::uuid from unnest(array['capture:' || s.capture, 'product:' || s.product_id, 'link:' || s.link_id,
    'email:' || lower(s.customer_email)]) t where t is not null
  union select field_term(f.key, f.value) from metadata_terms(s.metadata) f
$function$;

create or replace function unapply_transfer()
 returns trigger
 language plpgsql
AS $function$
begin
  update transfers set applied = false where id = old.transfer_id and applied;
  return null;
end $function$;

create or replace function unapply_transfers()
 returns trigger
 language plpgsql
AS $function$
begin
  update transfers t set applied = false from claims c where c.payment_id = new.id and t.id = c.transfer_id and t.applied;
  return null;
end $function$;

create or replace function unfold_access()
 returns trigger
 language plpgsql
AS $function$
declare
  changed grants := coalesce(new, old);
begin
  update access set folded_at = null
    where paywall_id = changed.paywall_id and address = changed.address and folded_at is not null;
  return null;
end $function$;

create or replace function unregister_resource()
 returns trigger
 language plpgsql
AS $function$
begin
  delete from resources where id = old.id;
  return null;
end $function$;

create or replace function wake_escrow()
 returns trigger
 language plpgsql
AS $function$
begin
  update escrows set run_at = least(new.updated_at, clock_timestamp(),
      (select c.block_time + interval '10 minutes' from cursors c where c.chain_id = new.chain_id))
    where session_id = new.escrow_id;
  return null;
end $function$;

create or replace function wake_session()
 returns trigger
 language plpgsql
AS $function$
begin
  update checkout_sessions set run_at = new.updated_at
    where id = (select resource_id from deposits where id = new.deposit_id);
  return null;
end $function$;

create or replace function wake_subscription()
 returns trigger
 language plpgsql
AS $function$
begin
  update subscriptions set run_at = new.updated_at
    where id = (select subscription_id from invoices where session_id = new.id)
      and (started_at is not null or new.status = 'confirmed');
  return null;
end $function$;

create or replace function withheld(transfer bigint, states text[])
 returns numeric
 language sql
 stable
AS $function$
  select coalesce((select sum(s.amount) from surpluses s
    join claims c on c.transfer_id = s.transfer_id and c.payment_id = s.payment_id
    join payments p on p.id = s.payment_id and p.status = 'granted'
    where s.transfer_id = $1 and s.state = any($2)), 0)
$function$;

create or replace function write_audit_entry()
 returns trigger
 language plpgsql
 set search_path to 'pg_catalog', 'public', 'pg_temp'
AS $function$
declare
  action constant text := case when tg_argv[0] like '%.%' then tg_argv[0] else tg_argv[0] || '.' ||
    case tg_op when 'INSERT' then 'created' when 'UPDATE' then 'changed' else 'deleted' end end;
  old_line jsonb;
  new_line jsonb;
  line jsonb;
  was jsonb;
  is_now jsonb;
begin
  if tg_op <> 'INSERT' then old_line := audited(tg_table_name, to_jsonb(old)); end if;
  if tg_op <> 'DELETE' then new_line := audited(tg_table_name, to_jsonb(new)); end if;
  line := coalesce(new_line, old_line);
  select jsonb_object_agg(name, audit_value(nullif(old_line -> name, 'null'), is_secret)),
      jsonb_object_agg(name, audit_value(nullif(new_line -> name, 'null'), is_secret)) into was, is_now
    from (select unnest(string_to_array(tg_argv[2], ',')) as name, false as is_secret
      union all select unnest(string_to_array(tg_argv[3], ',')), true) columns
    where nullif(old_line -> name, 'null') is distinct from nullif(new_line -> name, 'null');
  -- Nothing changed, or what it belonged to went with it.
  if is_now is null or line ->> 'merchant_id' is null then return null; end if;
  perform add_audit_entry(line ->> 'merchant_id', action, line ->> tg_argv[1], (line ->> 'chain_id')::integer,
    case when tg_op <> 'INSERT' then was end, case when tg_op <> 'DELETE' then is_now end);
  return null;
end $function$;

create or replace function write_audit_of_routes()
 returns trigger
 language plpgsql
 set search_path to 'pg_catalog', 'public', 'pg_temp'
AS $function$
declare
  bundle record;
begin
  for bundle in
    select b.id, b.merchant_id, b.chain_id, jsonb_build_object('routes', audit_value(jsonb_agg(jsonb_build_object('method', r.method,
        'path', r.path, 'price', r.price::text, 'description', r.description) order by r.n), false)) as routes
      from changed r join bundles b on b.id = r.bundle_id group by b.id
  loop
    perform add_audit_entry(bundle.merchant_id, 'bundle_routes.' || case tg_op when 'INSERT' then 'added' else 'removed' end,
      bundle.id, bundle.chain_id, case when tg_op = 'DELETE' then bundle.routes end, case when tg_op = 'INSERT' then bundle.routes end);
  end loop;
  return null;
end $function$;

create or replace function write_receipt()
 returns trigger
 language plpgsql
AS $function$
declare
  last record;
begin
  if tg_op = 'UPDATE' and old.status = 'granted' then
    select type, token, amount into last from receipts where about = new.id and merchant_id = new.merchant_id order by n desc limit 1;
    if last.type = 'payment' then
      insert into receipts (merchant_id, chain_id, type, resource_id, about, token, amount, body, settled_at)
        values (new.merchant_id, new.chain_id, 'reversed', new.resource_id, new.id, last.token, last.amount,
          jsonb_build_object('payer', old.payer), new.updated_at);
    end if;
  end if;
  if new.status = 'granted' then
    insert into receipts (merchant_id, chain_id, type, resource_id, about, token, amount, body, settled_at)
      values (new.merchant_id, new.chain_id, 'payment', new.resource_id, new.id, new.token, new.amount,
        jsonb_build_object('payer', new.payer,
          'merchant', (select name from merchants where id = new.merchant_id),
          'transfers', (select jsonb_agg(jsonb_build_object('deposit', t.deposit_id, 'txHash', t.tx_hash, 'blockHash', t.block_hash,
              'blockNumber', t.block_number, 'k', t.k, 'from', t.from_address, 'to', t.to_address, 'amount', t.value::text)
              order by t.block_number, t.log_index)
            from (select t.* from claims c join transfers t on t.id = c.transfer_id where c.payment_id = new.id
              order by t.value desc limit 48) t),
          'splits', (select jsonb_agg(jsonb_build_object('to', i.recipient, 'amount', i.amount::text) order by i.share, i.id) from payouts i
            where i.payment_id = new.id and i.kind = 'share' and i.state not in ('cancelled', 'reverted')),
          -- A second payer of a checkout learns nothing of what the first one entered.
          'what', case
            when new.beside then null
            when starts_with(new.resource_id, 'cs_') then (select jsonb_build_object('description', s.description, 'metadata', s.metadata,
              'answers', s.payer_info) from checkout_sessions s where s.id = new.resource_id)
            when starts_with(new.resource_id, 'pw_') then (select jsonb_build_object('description', w.name) from paywalls w
              where w.id = new.resource_id) end),
        new.updated_at);
  end if;
  return null;
end $function$;
