-- The functions of the audit log find their tables and functions by a path of their own. They used the session's: where that led to a
-- temporary table or a function of the same name, the entry was written there, or from there. `audit_value` is bound to what it calls
-- since it was made, and `keep_audit_entries` calls nothing.
--
-- Locks: none on tables.
do $$
declare
  signature text;
begin
  foreach signature in array array['add_audit_entry(text, text, text, integer, jsonb, jsonb)', 'audited(text, jsonb)', 'write_audit_entry()',
      'write_audit_of_routes()'] loop
    execute format('alter function %s set search_path = pg_catalog, %s, pg_temp', signature,
      (select relnamespace::regnamespace from pg_class where oid = 'audit_entries'::regclass));
  end loop;
end $$;
