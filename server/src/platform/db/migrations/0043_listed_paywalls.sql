-- Whether agents find a paywall at `/.well-known/x402`.
alter table paywalls add column listed boolean not null default false;
