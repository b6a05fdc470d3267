-- What was served before answers were recorded counts as answered.
update settlements set answered_at = served_at where served_at is not null and answered_at is null;
