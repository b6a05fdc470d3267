-- How a merchant's pages look, and the sites that may show them in a frame. Beside `merchants`, whose rows everything locks and
-- reads: a logo has up to 64 KB.
create table branding (
  merchant_id text primary key references merchants,
  -- As `#rrggbb`, in small letters.
  accent_color text check (accent_color ~ '^#[0-9a-f]{6}$'),
  -- A list of origins in their normal form.
  allowed_origins jsonb not null default '[]' check (jsonb_typeof(allowed_origins) = 'array'),
  logo bytea check (octet_length(logo) between 1 and 65536),
  logo_type text check (logo_type in ('image/png', 'image/jpeg', 'image/webp')),
  -- SHA-256 in base64url: the name under which it is served, which changes with it.
  logo_hash text,
  check ((logo is null) = (logo_type is null) and (logo is null) = (logo_hash is null))
);
create index branding_by_logo on branding (logo_hash) where logo_hash is not null;
