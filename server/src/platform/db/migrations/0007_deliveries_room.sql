-- A claim changes no indexed column, and writes no index entry while its page has room. With 30 % of the page 60 % of the
-- claims from a heap had it, with half of it all of them: 12 to 15 µs of Postgres' CPU less for each delivery.
alter table deliveries set (fillfactor = 50);
