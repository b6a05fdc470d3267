-- What is listed for agents is public, and was found by reading all paywalls and bundles there are.
--
-- Locks: `paywalls` and `bundles` against writes while the indexes are built: they are short.
create index paywalls_listed on paywalls (updated_at desc) where listed and active and slug is not null;
create index bundles_listed on bundles (updated_at desc) where listed and active;
