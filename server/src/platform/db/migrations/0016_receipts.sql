-- Receipts that can be verified without this service. What can change later is written in the transaction that settles a payment;
-- the worker numbers, signs and seals it, and puts many into one file, whose Merkle root proves each.
--
-- Locks: `payments` and `payouts` against reads and writes until all migrations of this start are committed; no row is rewritten, but
-- the constraints of `payouts` are checked anew.
create table receipt_keys (
  id text primary key,
  chain_id integer not null,
  factory evm_address not null,
  public_key jsonb not null,
  sealed text not null,
  created_at timestamptz not null,
  anchor_id uuid references payouts
);
comment on table receipt_keys is 'The keys that sign receipts, one for each network and factory. They are published for ever.';
comment on column receipt_keys.id is 'The thumbprint of the public key (RFC 7638).';
comment on column receipt_keys.sealed is 'The private key, sealed under SECRET_KEY.';
comment on column receipt_keys.anchor_id is 'The call that registers it on the chain.';

create table receipt_batches (
  root evm_hash primary key,
  key_id text not null references receipt_keys,
  chain_id integer not null,
  n bigint generated always as identity,
  prev_root evm_hash references receipt_batches,
  receipts integer not null,
  size integer not null,
  bytes bytea,
  stored_at timestamptz,
  created_at timestamptz not null,
  anchor_id uuid references payouts,
  constraint receipt_batches_kept check (bytes is not null or stored_at is not null)
);
comment on table receipt_batches is 'Files of sealed receipts of one network.';
comment on column receipt_batches.root is 'The Merkle root of its bytes, as 0G computes it.';
comment on column receipt_batches.bytes is 'Null once the store has them.';
comment on column receipt_batches.anchor_id is 'The call that writes its root to the chain.';
create index receipt_batches_in_order on receipt_batches (chain_id, n desc);
create index receipt_batches_not_stored on receipt_batches (n) where stored_at is null;
create index receipt_batches_not_anchored on receipt_batches (chain_id, n) where anchor_id is null;
create index receipt_batches_of_anchor on receipt_batches (anchor_id) where anchor_id is not null;

create table receipt_rounds (
  chain_id integer primary key,
  run_at timestamptz not null,
  anchored_at timestamptz,
  claim_id uuid,
  lease_until timestamptz
);
comment on table receipt_rounds is 'Who makes the batches of a network now.';

create table receipts (
  merchant_id text not null references merchants,
  n bigint generated always as identity,
  chain_id integer not null,
  type text not null check (type in ('payment', 'refund', 'reversed', 'capture', 'void')),
  resource_id text not null,
  about text not null,
  token evm_address not null,
  amount base_units not null,
  body jsonb,
  settled_at timestamptz not null,
  seq integer,
  hash text,
  root evm_hash references receipt_batches,
  byte_offset integer,
  byte_length integer,
  path bytea,
  sealed text,
  primary key (merchant_id, n),
  constraint receipts_whole check (num_nonnulls(seq, hash, root, byte_offset, byte_length, path) in (0, 6)),
  constraint receipts_body check ((body is null) = (root is not null)),
  constraint receipts_sealed check (sealed is null or root is not null)
);
comment on table receipts is 'What holders can prove. A row without a root waits for its batch.';
comment on column receipts.about is 'The id of the payment, or of the call of an escrow.';
comment on column receipts.body is 'What is signed and could change until then; null once it is.';
comment on column receipts.seq is 'Its place in the merchant''s chain of receipts, from 1 on, without a gap.';
comment on column receipts.hash is 'Of the signed receipt; the next one of the merchant names it.';
comment on column receipts.path is 'The hashes that prove it within its batch, 32 bytes each.';
comment on column receipts.sealed is 'Its key and its facts with their salts, sealed under SECRET_KEY. Null once they are erased: then only its holders can read it.';
create index receipts_waiting on receipts (chain_id, n) where root is null;
create index receipts_of_about on receipts (about, n);
create index receipts_of_root on receipts (root) where root is not null;
create unique index receipts_in_chain on receipts (merchant_id, seq) where seq is not null;
create index receipts_settled on receipts (merchant_id, settled_at, n);

-- At the commit, when the claims are written. A payment of a settlement that goes back and forth in one transaction has a receipt for
-- each step, and they end where the payment does.
create function write_receipt() returns trigger language plpgsql as $$
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
end $$;

create constraint trigger payments_write_receipt_made after insert on payments deferrable initially deferred for each row
  when (new.status = 'granted') execute function write_receipt();
create constraint trigger payments_write_receipt_changed after update on payments deferrable initially deferred for each row
  when ((old.status = 'granted' or new.status = 'granted') and (old.status, old.amount::numeric) is distinct from (new.status, new.amount::numeric))
  execute function write_receipt();

-- Each round of receipts asks for those that are under way, and for those that failed.
create index payouts_anchors on payouts (chain_id, state) where kind = 'anchor';

-- A call of `ReceiptAnchor` by the wallet that the factory obeys. It moves no money.
alter table payouts
  drop constraint payouts_kind_check, drop constraint payouts_deposit, drop constraint payouts_reserved,
  add constraint payouts_kind_check check (kind in ('share', 'sweep', 'return', 'authorize', 'settle', 'batch', 'reserve', 'capture', 'void', 'refund', 'anchor')),
  add constraint payouts_deposit check (deposit_id is not null or kind in ('settle', 'batch', 'anchor') or escrow_id is not null),
  add constraint payouts_reserved check (case when lane = 'relay' or kind = 'anchor' then not reserved
    else reserved or state in ('held', 'cancelled') end);

create or replace function has_money(i payouts) returns boolean language plpgsql stable as $$
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
end $$;
