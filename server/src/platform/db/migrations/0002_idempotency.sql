-- Requests with an Idempotency-Key: reserved while the first one runs, then the answer it got. A request that failed
-- leaves no row.

create table idempotency_keys (
  merchant_id text not null references merchants,
  -- Method and path as it was declared, such as "POST /api/console/paywalls".
  route text not null,
  key text not null check (char_length(key) between 1 and 255),
  request_hash text not null check (request_hash ~ '^[0-9a-f]{64}$'),
  -- Whose reservation it is, and until when; both null once there is an answer.
  claim_id uuid,
  lease_until timestamptz,
  status integer check (status between 200 and 299),
  answer text,
  expires_at timestamptz not null,
  primary key (merchant_id, route, key),
  check ((claim_id is null) = (lease_until is null)),
  check ((status is null) = (answer is null)),
  check ((status is null) = (claim_id is not null))
);
create index idempotency_keys_expired on idempotency_keys (expires_at);
