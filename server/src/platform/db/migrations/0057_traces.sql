-- The span that made a row, as W3C Trace Context writes it, for whoever continues its trace; null where nothing is traced.
alter table checkout_sessions add column traceparent text;
alter table submissions add column traceparent text;
alter table payments add column traceparent text;
alter table payouts add column traceparent text;
alter table events add column traceparent text;
